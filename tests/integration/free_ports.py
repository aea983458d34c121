"""Ports for servers with a fixed port."""

import random
import socket
from typing import Literal

# Below the range of ephemeral ports (ip_local_port_range), so that no other program gets the port
# by chance before the server starts.
_FIRST, _SIZE, _COUNT = 15_000, 256, (32_768 - 15_000) // 256
_ports: list[int] = []


def _reserve() -> None:
    """Reserve a block of ports by an abstract Unix socket, until the process ends.

    All tests, also those in C++ (free_port.h), have different ones.
    """
    # Processes differ, even with a fixed seed.
    for block in random.SystemRandom().sample(range(_COUNT), _COUNT):
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind(f"\0daqiri-test-ports-{block}")
        except OSError:
            lock.close()
            continue
        lock.detach()
        _ports.extend(range(_FIRST + block * _SIZE, _FIRST + (block + 1) * _SIZE))
        return
    raise OSError("other tests have reserved all ports")


_reserve()  # now: a test would seem to leave the socket open


def free_port(protocol: Literal["tcp", "udp"], host: str = "127.0.0.1") -> int:
    """Return an unused port of this host; never the same port twice."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    while True:
        if not _ports:
            _reserve()
        port = _ports.pop()
        with socket.socket(family, kind) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port


def free_ports(protocol: Literal["tcp", "udp"], count: int) -> int:
    """Return the first of so many unused ports, one after the other."""
    found: list[int] = []
    while len(found) < count:
        port = free_port(protocol)
        found = [*found, port] if found and port == found[-1] - 1 else [port]
    return found[-1]
