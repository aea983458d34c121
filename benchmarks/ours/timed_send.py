"""timed_send PORT SIZE GAP_NS COUNT: sends UDP packets at set times through the engine.

Prints how late its sends were, ns.
"""

import json
import sys

import numpy as np

from daqiri_ophyd.engine import Engine

BATCH = 1024


def configuration(port: int, size: int, count: int) -> dict:
    """Return a UDP client whose buffers hold all packets."""
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket",
        "log_level": "error",
        "tx_meta_buffers": count // BATCH + 8,
        "memory_regions": [
            {"name": "packets", "kind": "host", "num_bufs": count + 2 * BATCH, "buf_size": size}
        ],
        "interfaces": [
            {
                "name": "sender",
                "address": "127.0.0.1",
                "socket_config": {"mode": "client", "remote_addr": f"udp://127.0.0.1:{port}"},
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
    """Send all packets and report."""
    port, size, gap, count = map(int, sys.argv[1:])
    with Engine.open(configuration(port, size, count)) as engine:
        sender = engine.port("sender")
        queue = sender.tx[0]
        packets = np.ones((count, size), np.uint8)
        # Late enough that all packets are submitted before the first one is due.
        due = sender.now() + 300_000_000 + gap * np.arange(count)
        queue.send(packets, launch_times=due)
        if not queue.wait_sent(60):
            sys.exit("packets are still waiting to be sent")
        lateness = queue.lateness()
        names = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
        print(json.dumps({name: lateness.quantile(q) for name, q in names.items()}))


main()
