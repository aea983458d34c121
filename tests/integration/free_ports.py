"""Ports for servers with a fixed port."""

import random
import socket
from typing import Literal

# Below the range of ephemeral ports (ip_local_port_range), so that no other program gets the port
# by chance before the server starts.
_PORTS = range(15_000, 32_768)
_random = random.SystemRandom()  # processes differ, even with a fixed seed
_given: set[int] = set()


def free_port(protocol: Literal["tcp", "udp"], host: str = "127.0.0.1") -> int:
    """Return an unused port of this host; never the same port twice."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    for port in _random.sample(_PORTS, len(_PORTS)):
        with socket.socket(family, kind) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
    raise OSError(f"no {protocol} port of {host} is free in {_PORTS}")
