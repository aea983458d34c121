"""Ports for servers that are told theirs."""

import random
import socket
from typing import Literal

# Below those that Linux gives to whoever asks for any (ip_local_port_range): between the choice and
# the server's start, nobody gets one by chance.
_PORTS = range(15_000, 32_768)
_random = random.SystemRandom()  # processes differ, also with a seed of their own
_given: set[int] = set()


def free_port(protocol: Literal["tcp", "udp"], host: str = "127.0.0.1") -> int:
    """Return a port of this host that nobody has; each is given once."""
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
