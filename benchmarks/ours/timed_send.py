"""timed_send PORT SIZE GAP_NS COUNT: sends UDP packets at set times through the engine.

Prints how late its sends were, ns.
"""

import json
import sys

import numpy as np
from configurations import Config, client, queue, region, with_interface

from daqiri_ophyd.engine import Engine

BATCH = 1024


def configuration(port: int, size: int, count: int) -> Config:
    """Return a UDP client whose buffers hold all packets."""
    tx = {"queues": [queue("tx0", BATCH, "packets")]}
    regions = [region("packets", count + 2 * BATCH, size)]
    interface = {"name": "sender", **client(port), "tx": tx}
    return with_interface(interface, regions, tx_meta_buffers=count // BATCH + 8)


def main() -> None:
    """Send all packets and report."""
    port, size, gap, count = map(int, sys.argv[1:])
    with Engine.open(configuration(port, size, count)) as engine:
        sender = engine.port("sender")
        timed = sender.tx[0]
        packets = np.ones((count, size), np.uint8)
        # Late enough that all packets are submitted before the first one is due.
        due = sender.now() + 300_000_000 + gap * np.arange(count)
        timed.send(packets, launch_times=due)
        if not timed.wait_sent(60):
            sys.exit("packets are still waiting to be sent")
        lateness = timed.lateness()
        names = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
        print(json.dumps({name: lateness.quantile(q) for name, q in names.items()}))


main()
