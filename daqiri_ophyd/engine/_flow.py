"""Receive flows."""

from __future__ import annotations

from daqiri_ophyd import _native
from daqiri_ophyd._native import FlowConfig

from ._counters import FlowCounters

__all__ = ["Flow"]


class Flow:
    """A receive flow of a port: a match, and the queue of matched packets.

    Attributes
    ----------
    config : FlowConfig
        Its part of the configuration, or its description as added.
    added : bool
        Whether it was added at run time (`Port.add_flow`).
    """

    def __init__(
        self, port: int, key: int, config: FlowConfig, added: bool, session: _native.Session
    ) -> None:
        self._place = (port, key)
        self._session = session
        self.config = config
        self.added = added

    @property
    def name(self) -> str:
        """Name of the flow."""
        return self.config.name

    @property
    def id(self) -> int:
        """Flow id of its packets."""
        return self.config.id

    @property
    def offload(self) -> str:
        """What selects its packets before the engine does; empty: nothing.

        ``"xdp"``: the program of AF_XDP; ``"hardware"``: rules of the network card.

        Raises
        ------
        InvalidParameterError
            If the flow was removed.
        """
        return self._session.flow_offload(*self._place)

    @property
    def offload_reason(self) -> str:
        """Why `offload` is empty, as the engine or the network card says; empty: nothing to say.

        Raises
        ------
        InvalidParameterError
            If the flow was removed.
        """
        return self._session.flow_offload_reason(*self._place)

    def counters(self) -> FlowCounters:
        """Return the current counters; a closed engine keeps its last values.

        Raises
        ------
        InvalidParameterError
            If the flow was removed.
        """
        return FlowCounters(*self._session.flow_counters(*self._place))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flow):
            return NotImplemented
        return self._session is other._session and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    def __repr__(self) -> str:
        return f"<Flow {self.name!r} ({self.id})>"
