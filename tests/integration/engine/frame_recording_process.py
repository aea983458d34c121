"""A process that records numbered frames until it is killed."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, ethernet

PACKETS, WORDS = 8, 1000
"""Packets of a frame, and their uint16 words."""
BUFFERS = 64
"""Frames that there is room for."""


def pixels(first: int, count: int, words: int = WORDS) -> NDArray[np.uint16]:
    """Frames whose values depend on their numbers."""
    packets = np.arange(first * PACKETS, (first + count) * PACKETS, dtype=np.uint32)
    values = packets[:, None] * 3 + np.arange(words, dtype=np.uint32)
    return values.astype(np.uint16).reshape(count, PACKETS, words)


def packets_of(first: int, data: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Packets of frames, numbered from ``first * PACKETS`` on."""
    count, words = len(data) * PACKETS, data.shape[-1]
    payloads = np.empty((count, 4 + 2 * words), np.uint8)
    numbers = np.arange(first * PACKETS, first * PACKETS + count, dtype=">u4")
    payloads[:, :4] = numbers.view(np.uint8).reshape(-1, 4)
    payloads[:, 4:] = data.reshape(count, words).view(np.uint8)
    return ethernet.udp_frames(
        payloads,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )


def config(words: int = WORDS) -> dict[str, Any]:
    packets = {"kind": "host", "num_bufs": 4096, "buf_size": 2176}
    queue = {"id": 0, "cpu_core": "any", "batch_size": 64}
    flow = {"name": "data", "id": 7, "match": {}, "action": {"type": "queue", "id": 0}}
    plan = {
        "name": "camera",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flow_ids": [7],
        "payload_base": "udp_payload",
        "payload_byte_offset": 4,
        "frame": {"shape": [PACKETS, words], "dtype": "uint16"},
        "timeout_us": 60_000_000,  # never, however busy the machine is
        "method": {
            "seq_packets_per_batch": {
                "sequence_number": {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"},
                "packets_per_batch": PACKETS,
            }
        },
    }
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "log_level": "error",
        "memory_regions": [
            {"name": "rx", **packets},
            {"name": "tx", **packets},
            {"name": "frames", "kind": "host", "num_bufs": BUFFERS, "buf_size": 2**14},
        ],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {
                    "queues": [
                        {"name": "rx0", "memory_regions": ["rx"], "timeout_us": 1000, **queue}
                    ],
                    "flows": [flow],
                    "reorder_configs": [plan],
                },
                "tx": {"queues": [{"name": "tx0", "memory_regions": ["tx"], **queue}]},
            }
        ],
    }


def main(directory: Path, words: int = WORDS, **options: Any) -> None:
    with Engine.open(config(words)) as engine:
        port = engine.ports[0]
        with port.reorder["camera"].record(directory, **options) as recorder:
            sys.stdout.write("recording\n")
            sys.stdout.flush()
            sent = 0
            # Never more in flight than there are buffers: nothing is lost.
            while True:
                if sent - recorder.snapshot().frames <= BUFFERS // 2:
                    count = BUFFERS // 4
                    port.tx[0].send(packets_of(sent, pixels(sent, count, words)))
                    sent += count
                # More of them would only take longer to read.
                time.sleep(0.004)


if __name__ == "__main__":
    given = (word.split("=") for word in sys.argv[2:])
    main(
        Path(sys.argv[1]),
        **{name: int(value) if value.isdecimal() else value for name, value in given},
    )
