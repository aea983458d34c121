"""Connections of socket streams."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from ._errors import InvalidParameterError

__all__ = ["Connection", "option_bytes"]


@dataclass(frozen=True)
class Connection:
    """A connection of a port, at the time it was listed.

    Attributes
    ----------
    id : int
        Number of the connection in this process: `Burst.connection_id`, `RxQueue.receive_from`,
        and ``connection_id`` of `TxQueue.send`.
    peer : str
        Address of the peer, ``192.0.2.1:5000`` or ``[2001:db8::1]:5000``; empty for the socket of a
        server.
    local : str
        Local address of the connection; empty while it is not known.
    state : str
        ``listening``: the socket of a server. ``connected``: TCP, established; UDP, the peer is
        known. ``connecting``: a TCP client waits for its server. ``closed``: the peer has closed
        the connection, or the engine is closed.
    error : str
        Why the connection was lost or cannot be established; empty: no error.
    """

    id: int
    peer: str
    local: str
    state: Literal["listening", "connecting", "connected", "closed"]
    error: str


def option_bytes(value: int | bytes) -> bytes:
    """Return the value of a socket option as bytes for the kernel.

    Parameters
    ----------
    value : int or bytes
        A number is passed as a C ``int``, bytes unchanged.

    Raises
    ------
    InvalidParameterError
        If a number does not fit into 32 bits.
    """
    if isinstance(value, bytes):
        return value
    try:
        return value.to_bytes(4, sys.byteorder, signed=True)
    except OverflowError:
        raise InvalidParameterError(
            f"socket option value {value} does not fit a C int; pass the option's bytes"
        ) from None
