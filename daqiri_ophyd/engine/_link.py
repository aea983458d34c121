"""State of a port's network interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Link"]


@dataclass(frozen=True)
class Link:
    """The network interface of a port, at the time it was asked.

    Attributes
    ----------
    state : str
        ``up``; ``down``: switched off, or without a carrier; ``removed``; ``none``: the port has no
        interface of its own (loopback, sockets).
    speed : int
        Mb/s; 0: not known.
    mtu : int
        Bytes; 0: not known.
    """

    state: Literal["up", "down", "removed", "none"]
    speed: int
    mtu: int
