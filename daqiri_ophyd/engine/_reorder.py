"""Reorder plans."""

from __future__ import annotations

from daqiri_ophyd import _native
from daqiri_ophyd._native import ReorderConfig

from ._counters import ReorderCounters

__all__ = ["ReorderPlan"]


class ReorderPlan:
    """A reorder plan of a port: packets of its flows become frames.

    Frames come from the receive queue of the flows, as bursts of one packet.

    Attributes
    ----------
    id : int
        Position among the port's plans.
    config : ReorderConfig
        Its part of the configuration.
    """

    def __init__(
        self, port: int, position: int, config: ReorderConfig, session: _native.Session
    ) -> None:
        self._place = (port, position)
        self.id = position
        self._session = session
        self.config = config

    @property
    def name(self) -> str:
        """Name of the plan."""
        return self.config.name

    def counters(self) -> ReorderCounters:
        """Return the counters, read now; those of a closed engine stay."""
        return ReorderCounters(*self._session.reorder_counters(*self._place))

    def __repr__(self) -> str:
        return f"<ReorderPlan {self.name!r}>"
