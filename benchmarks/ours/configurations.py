"""Parts of configurations, for the programs beside this file."""

from __future__ import annotations

import socket
from typing import Any

Config = dict[str, Any]
HERE = "127.0.0.1"


def region(name: str, count: int, size: int, kind: str = "host") -> Config:
    """Return a memory region of `count` buffers."""
    return {"name": name, "kind": kind, "num_bufs": count, "buf_size": size}


def queue(name: str, batch: int, memory: str, number: int = 0, **keys: Any) -> Config:
    """Return a queue whose packets are in the region `memory`."""
    common = {"name": name, "id": number, "cpu_core": "any", "batch_size": batch}
    return {**common, "memory_regions": [memory], **keys}


def flow(port: int, number: int = 0, field: str = "udp_dst") -> Config:
    """Return the flow of a UDP port to the queue of this number."""
    return {
        "name": f"stream{number}",
        "id": number + 1,
        "match": {field: port},
        "action": {"type": "queue", "id": number},
    }


def server(port: int, host: str = HERE) -> Config:
    """Return the keys of an interface that is a UDP server."""
    socket_config = {"mode": "server", "local_addr": f"udp://{host}:{port}"}
    return {"address": host, "socket_config": socket_config}


def client(port: int, host: str = HERE) -> Config:
    """Return the keys of an interface that is a UDP client."""
    socket_config = {"mode": "client", "remote_addr": f"udp://{host}:{port}"}
    return {"address": host, "socket_config": socket_config}


def with_interface(interface: Config, regions: list[Config], **keys: Any) -> Config:
    """Return a configuration: of sockets, or of frames with `engine` or `loopback` among `keys`."""
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket" if "socket_config" in interface else "raw",
        "log_level": "error",
        **keys,
        "memory_regions": regions,
        "interfaces": [interface],
    }


def free_port(host: str = HERE) -> int:
    """Return a UDP port that is not in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
