"""The kernel's receive buffer of a socket, equally large for every receiver."""

from __future__ import annotations

import socket

RCVBUFFORCE = 33


def set_receive_buffer(receiver: socket.socket, size: int) -> int:
    """Ask for it, beyond the system's limit where that is allowed; what was granted."""
    try:
        receiver.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, size)
    except PermissionError:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    return receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
