"""Receive flows."""

from __future__ import annotations

from daqiri_ophyd import _native
from daqiri_ophyd._native import FlowConfig

from ._counters import FlowCounters

__all__ = ["Flow"]


class Flow:
    """A receive flow of a port: which packets go to which queue.

    Attributes
    ----------
    config : FlowConfig
        Its part of the configuration.
    """

    def __init__(
        self, port: int, position: int, config: FlowConfig, session: _native.Session
    ) -> None:
        self._place = (port, position)
        self._session = session
        self.config = config

    @property
    def name(self) -> str:
        """Name of the flow."""
        return self.config.name

    @property
    def id(self) -> int:
        """Flow id of its packets."""
        return self.config.id

    def counters(self) -> FlowCounters:
        """Return the counters, read now; those of a closed engine stay."""
        return FlowCounters(*self._session.flow_counters(*self._place))

    def __repr__(self) -> str:
        return f"<Flow {self.name!r} ({self.id})>"
