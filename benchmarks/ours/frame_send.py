"""frame_send DEVICE SIZE PORT: a Python program that sends frames through the engine.

It sends as many frames as a line says, and answers when all have been sent.
"""

import json
import sys
import time

import numpy as np

from daqiri_ophyd.engine import Engine, frames

BATCH = 64


def configuration(device: str, size: int) -> dict:
    """Return a port with one transmit queue."""
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "engine": "packet",
        "log_level": "error",
        "memory_regions": [{"name": "packets", "kind": "host", "num_bufs": 8192, "buf_size": size}],
        "interfaces": [
            {
                "name": "sender",
                "address": device,
                "tx": {
                    "queues": [
                        {
                            "name": "tx0",
                            "id": 0,
                            "cpu_core": "any",
                            "batch_size": BATCH,
                            "memory_regions": ["packets"],
                        }
                    ]
                },
            }
        ],
    }


def main() -> None:
    """Answer lines."""
    device, size, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Engine.open(configuration(device, size)) as engine:
        queue = engine.ports[0].tx[0]
        print("{}", flush=True)
        for line in sys.stdin:
            count = int(line)
            packets = frames.udp_frames(
                np.zeros((count, size - 42), np.uint8),
                src_mac="02:00:00:00:00:01",
                dst_mac="02:00:00:00:00:02",
                src_ip="192.0.2.1",
                dst_ip="192.0.2.2",
                src_port=4000,
                dst_port=port,
            )
            begun = time.monotonic_ns()
            queue.send(packets)
            if not queue.wait_sent(60):
                raise SystemExit("not all frames left within a minute")
            print(json.dumps({"begun": begun, "sent": queue.counters().sent}), flush=True)


if __name__ == "__main__":
    main()
