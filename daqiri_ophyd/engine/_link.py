"""State of a port's network interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Link"]


@dataclass(frozen=True)
class Link:
    """The network interface of a port, at the time of the query.

    Attributes
    ----------
    state : str
        ``up``; ``down``: switched off, or without a carrier; ``removed``; ``none``: the port has no
        separate interface (loopback, sockets).
    speed : int
        Mb/s; 0: unknown.
    mtu : int
        Bytes; 0: unknown.
    """

    state: Literal["up", "down", "removed", "none"]
    speed: int
    mtu: int
