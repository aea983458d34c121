"""udp_receive SIZE REGION_BYTES: a Python program that receives bursts through the engine."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from answers import answer_lines
from configurations import Config, free_port, queue, region, server, with_interface

from daqiri_ophyd.engine import Engine

BATCH = 1024


def configuration(port: int, size: int, region_bytes: int) -> Config:
    """Return a UDP server with one queue."""
    rx = {"queues": [queue("rx0", BATCH, "packets")]}
    regions = [region("packets", max(region_bytes // size, 2 * BATCH), size)]
    return with_interface({"name": "receiver", **server(port), "rx": rx}, regions)


def main() -> None:
    """Receive until the input ends."""
    port = free_port()
    engine = Engine.open(configuration(port, int(sys.argv[1]), int(sys.argv[2])))
    counts = {"packets": 0, "bytes": 0, "latest": 0}
    answer_lines(lambda: counts, port=port)
    for burst in engine.port("receiver").rx[0].bursts(timeout=None):
        counts["packets"] += len(burst)
        counts["bytes"] += burst.nbytes
        counts["latest"] = time.monotonic_ns()
        burst.release()


main()
