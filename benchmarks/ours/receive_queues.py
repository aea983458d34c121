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

from daqiri_ophyd.engine import Engine, RxQueue

BATCH = 1024


def configuration(
    path: str, device: str, size: int, region_bytes: int, port: int, queues: int, core: int
) -> dict:
    """Return an interface with that many queues, each with a flow."""
    udp = path == "udp"
    interface = {"name": "receiver", "address": "127.0.0.1" if udp else device}
    if udp:
        interface["socket_config"] = {"mode": "server", "local_addr": f"udp://127.0.0.1:{device}"}
    rx = {
        "queues": [
            {
                "name": f"rx{i}",
                "id": i,
                "cpu_core": core + i,
                "batch_size": BATCH,
                "timeout_us": 10_000,
                "memory_regions": [f"packets{i}"],
            }
            for i in range(queues)
        ],
        "flows": [
            {
                "name": f"stream{i}",
                "id": i + 1,
                "match": {"udp_src" if udp else "udp_dst": port + i},
                "action": {"type": "queue", "id": i},
            }
            for i in range(queues)
        ],
    }
    if not udp:
        rx |= {"receive_path": path, "flow_isolation": True}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket" if udp else "raw",
        **({} if udp else {"engine": "packet"}),
        "log_level": "error",
        "memory_regions": [
            {
                "name": f"packets{i}",
                "kind": "host",
                "num_bufs": max(region_bytes // queues // size, 4 * BATCH),
                "buf_size": size,
            }
            for i in range(queues)
        ],
        "interfaces": [interface | {"rx": rx}],
    }


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
    consumers = [Consumer(queue, core + i) for i, queue in enumerate(engine.ports[0].rx)]

    def counters() -> dict[str, int]:
        return {
            "packets": sum(each.packets for each in consumers),
            "latest": max(each.latest for each in consumers),
            "others": sum(queue.counters().dropped_total for queue in engine.ports[0].rx),
        }

    answer_lines(counters)
    threading.Event().wait()


if __name__ == "__main__":
    main()
