"""The kernel's receive buffer of a socket, equally large for every receiver."""

from __future__ import annotations

import socket

RCVBUFFORCE = 33


def set_receive_buffer(receiver: socket.socket, size: int) -> int:
    """Request it, beyond the limit of the system if permitted; return the granted size."""
    try:
        receiver.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, size)
    except PermissionError:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    return receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
