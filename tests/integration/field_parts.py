"""Parts of configurations for field tests."""

from typing import Any

Config = dict[str, Any]


def region(name: str, num_bufs: int = 8192, buf_size: int = 2048) -> Config:
    return {"name": name, "kind": "host", "num_bufs": num_bufs, "buf_size": buf_size}


def rx_queue(number: int, *regions: str, **keys: Any) -> Config:
    return {
        "name": f"rx{number}",
        "id": number,
        "cpu_core": "any",
        "batch_size": 64,
        "timeout_us": 1000,
        "memory_regions": list(regions or ("rx",)),
        **keys,
    }


TX_QUEUE = {
    "name": "tx0",
    "id": 0,
    "cpu_core": "any",
    "batch_size": 64,
    "memory_regions": ["tx"],
}
COMMON = {"version": 1, "master_core": 0, "log_level": "error"}


def flow(name: str, number: int, match: Config, queue: int = 0) -> Config:
    return {
        "name": name,
        "id": number,
        "match": match,
        "action": {"type": "queue", "id": queue},
    }
