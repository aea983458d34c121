"""receive_queues PATH DEVICE SIZE REGION_BYTES PORT QUEUES FIRST_CORE: a Python receiver.

A queue for each UDP port from PORT on, on a core each from FIRST_CORE on. It counts packets and
releases them. With PATH ``udp``, DEVICE is the port of a UDP server on 127.0.0.1, and the others
are the ports of its peers; otherwise PATH is a ``receive_path``.
"""

import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from answers import answer_lines
from configurations import Config, flow, queue, region, server, with_interface

from daqiri_ophyd.engine import Engine, RxQueue

BATCH = 1024


def configuration(
    path: str, device: str, size: int, region_bytes: int, port: int, queues: int, core: int
) -> Config:
    """Return an interface with that many queues, each with a flow."""
    udp = path == "udp"
    count = max(region_bytes // queues // size, 4 * BATCH)
    numbers = range(queues)
    field = "udp_src" if udp else "udp_dst"
    rx = {
        "queues": [
            queue(f"rx{i}", BATCH, f"packets{i}", i, cpu_core=core + i, timeout_us=10_000)
            for i in numbers
        ],
        "flows": [flow(port + i, i, field) for i in numbers],
    }
    regions = [region(f"packets{i}", count, size) for i in numbers]
    if udp:
        interface = {"name": "receiver", **server(int(device)), "rx": rx}
        return with_interface(interface, regions)
    rx |= {"receive_path": path, "flow_isolation": True}
    interface = {"name": "receiver", "address": device, "rx": rx}
    return with_interface(interface, regions, engine="packet")


class Consumer:
    """Counts the packets of a queue, on the core of its poller."""

    def __init__(self, queue: RxQueue, core: int) -> None:
        self.packets, self.latest = 0, 0
        self._queue, self._core = queue, core
        threading.Thread(target=self._consume, daemon=True).start()

    def _consume(self) -> None:
        os.sched_setaffinity(0, {self._core})
        while True:
            burst = self._queue.receive(timeout=1)
            if burst is None:
                continue
            self.packets += len(burst)
            burst.release()
            self.latest = time.monotonic_ns()


def main() -> None:
    """Receive until the input ends."""
    path, device = sys.argv[1:3]
    size, region_bytes, port, queues, core = map(int, sys.argv[3:])
    engine = Engine.open(configuration(path, device, size, region_bytes, port, queues, core))
    receivers = engine.ports[0].rx
    consumers = [Consumer(each, core + i) for i, each in enumerate(receivers)]

    def counters() -> dict[str, int]:
        return {
            "packets": sum(each.packets for each in consumers),
            "latest": max(each.latest for each in consumers),
            "others": sum(each.counters().dropped_total for each in receivers),
        }

    answer_lines(counters)
    threading.Event().wait()


if __name__ == "__main__":
    main()
