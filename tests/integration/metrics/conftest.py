"""An engine that receives, sends late and assembles frames, whose metrics are read."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine, ethernet

Config = dict[str, Any]
_PACKETS = 4


def _bits(at: int) -> Config:
    return {"bit_offset": at, "bit_width": 32, "base": "udp_payload"}


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only engines of the test are found."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def config() -> Config:
    """A loopback port with a flow and a reorder plan: frames of four packets."""
    queue = {"id": 3, "cpu_core": "any", "batch_size": 4}
    plan = {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "images",
        "flow_ids": [1],
        "payload_base": "udp_payload",
        "payload_byte_offset": 8,
        "frame": {"shape": [_PACKETS, 56], "dtype": "uint8"},
        "method": {
            "batch_packet_number": {
                "batch_number": _bits(0),
                "packet_number": _bits(32),
                "packets_per_batch": _PACKETS,
            }
        },
    }
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            {"name": name, "kind": "host", "num_bufs": 256, "buf_size": 512}
            for name in ("in", "images", "out")
        ],
        "interfaces": [
            {
                "name": "camera",
                "address": "loopback",
                "rx": {
                    "queues": [queue | {"name": "rx", "timeout_us": 100, "memory_regions": ["in"]}],
                    "reorder_configs": [plan],
                    "flows": [
                        {
                            "name": "pixels",
                            "id": 1,
                            "match": {"udp_dst": 6000},
                            "action": {"type": "queue", "id": 3},
                        }
                    ],
                },
                "tx": {"queues": [queue | {"name": "tx", "memory_regions": ["out"]}]},
            }
        ],
    }


@pytest.fixture
def send() -> Callable[[Engine, int, int], int]:
    """Send frames, with a launch time for each packet; returns the number of packets."""

    def frames(engine: Engine, first: int, count: int) -> int:
        port = engine.ports[0]
        numbers = [(frame, packet) for frame in range(first, first + count) for packet in range(4)]
        payload = np.zeros((len(numbers), 64), np.uint8)
        payload[:, :8] = np.array(numbers, ">u4").view(np.uint8).reshape(-1, 8)
        packets = ethernet.udp_frames(
            payload,
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=6000,
            dst_port=6000,
        )
        begin = port.now() + 1_000_000
        port.tx[0].send(packets, launch_times=[begin + 1000 * i for i in range(len(packets))])
        return len(packets)

    return frames


COMMAND = [sys.executable, "-m", "daqiri_ophyd", "metrics"]
