"""udp_receive SIZE REGION_BYTES: a Python program that receives bursts through the engine."""

import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from answers import answer_lines

from daqiri_ophyd.engine import Engine

BATCH = 1024


def configuration(port: int, size: int, region_bytes: int) -> dict:
    """Return a UDP server with one queue."""
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket",
        "log_level": "error",
        "memory_regions": [
            {
                "name": "packets",
                "kind": "host",
                "num_bufs": max(region_bytes // size, 2 * BATCH),
                "buf_size": size,
            }
        ],
        "interfaces": [
            {
                "name": "receiver",
                "address": "127.0.0.1",
                "socket_config": {"mode": "server", "local_addr": f"udp://127.0.0.1:{port}"},
                "rx": {
                    "queues": [
                        {
                            "name": "rx0",
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
    """Receive until the input ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    engine = Engine.open(configuration(port, int(sys.argv[1]), int(sys.argv[2])))
    counts = {"packets": 0, "bytes": 0, "latest": 0}
    answer_lines(lambda: counts, port=port)
    for burst in engine.port("receiver").rx[0].bursts(timeout=None):
        counts["packets"] += len(burst)
        counts["bytes"] += burst.nbytes
        counts["latest"] = time.monotonic_ns()
        burst.release()


main()
