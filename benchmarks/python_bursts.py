"""What consuming packets in Python costs: bursts of 1024 as arrays against one object per packet.

A burst is received from the loopback engine (packets of 1000 B), used and released; times are those
of the consumer alone, taken around its calls, per packet. *Arrays* takes lengths, flow ids,
timestamps and addresses of all packets. *Gather* copies the packets into an array that is there
already; its limit is numpy's copy of as many bytes. *bytes* copies each packet to an object of its
own, *memoryview* does so by the cheapest way there is: a list of slices of one gathered buffer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from runner import Comparison, Want, arguments

from daqiri_ophyd.engine import Burst, Engine, RxQueue, TxQueue

BURST = 1024
SIZE = 1000
CONFIG = {
    "version": 1,
    "stream_type": "raw",
    "loopback": "sw",
    "master_core": 0,
    "memory_regions": [
        {"name": name, "kind": "host", "num_bufs": 8 * BURST, "buf_size": SIZE}
        for name in ("rx", "tx")
    ],
    "interfaces": [
        {
            "name": "port",
            "address": "loopback",
            "rx": {
                "queues": [
                    {
                        "name": "rx",
                        "id": 0,
                        "cpu_core": "any",
                        "batch_size": BURST,
                        "memory_regions": ["rx"],
                    }
                ]
            },
            "tx": {
                "queues": [
                    {
                        "name": "tx",
                        "id": 0,
                        "cpu_core": "any",
                        "batch_size": BURST,
                        "memory_regions": ["tx"],
                    }
                ]
            },
        }
    ],
}


class Consumer:
    """A queue with bursts, and ways to use them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rx: RxQueue = engine.port("port").rx[0]
        self.tx: TxQueue = engine.port("port").tx[0]
        self.packets = np.ones((BURST, SIZE), np.uint8)
        self.rows = np.ones((BURST, SIZE), np.uint8)
        self.flat = np.ones(BURST * SIZE, np.uint8)

    def cost(self, use: Callable[[Burst], object], seconds: float) -> float:
        """Ns per packet to receive a burst, use it and release it."""
        spent = bursts = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._put_burst()
            begun = time.perf_counter_ns()
            burst = self.rx.receive()
            # The ring may report a burst a moment before it can be received.
            while burst is None:
                begun = time.perf_counter_ns()
                burst = self.rx.receive()
            use(burst)
            burst.release()
            spent += time.perf_counter_ns() - begun
            bursts += 1
        return spent / bursts / BURST

    def _put_burst(self) -> None:
        """Send a burst, and wait until it is in the ring, so that waiting is not measured."""
        self.tx.send(self.packets)
        end = time.monotonic() + 10
        while self.engine.snapshot().rx[0].levels.ring == 0:
            if time.monotonic() > end:
                raise RuntimeError("the engine handed no burst over within 10 s")

    def arrays(self, burst: Burst) -> object:
        """Get the known values of all packets as arrays."""
        return burst.lengths, burst.flow_ids, burst.timestamps, burst.addresses()

    def views(self, burst: Burst) -> object:
        """Make an array of each packet, without copies."""
        return burst[:]

    def gathered(self, burst: Burst) -> object:
        """Copy all packets to rows."""
        return burst.gather(self.rows)

    def as_bytes(self, burst: Burst) -> object:
        """Copy each packet to an object."""
        return [packet.tobytes() for packet in burst]

    def sliced(self, burst: Burst) -> object:
        """Copy each packet to an object, from one buffer."""
        data, offsets = burst.gather_flat(self.flat)
        view = memoryview(data)
        ends = offsets.tolist()
        return [bytes(view[a:b]) for a, b in zip(ends, ends[1:], strict=False)]

    def copied(self, seconds: float) -> float:
        """Ns per packet to copy as many bytes with numpy."""
        spent = rounds = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.perf_counter_ns()
            np.copyto(self.rows, self.packets)
            spent += time.perf_counter_ns() - begun
            rounds += 1
        return spent / rounds / BURST


def main() -> None:
    """Measure all of them in turn."""
    args = arguments(__doc__, seconds=0.5, rounds=7)
    comparison = Comparison("python_bursts", "Packets in Python", __doc__, args)
    with Engine.open(CONFIG) as engine:
        consumer = Consumer(engine)

        def cost(use: Callable[[Burst], object]) -> Callable[[], float]:
            return lambda: consumer.cost(use, args.seconds)

        comparison.case(
            f"bursts of {BURST}",
            "ns a packet",
            {
                "arrays": cost(consumer.arrays),
                "bytes": cost(consumer.as_bytes),
                "memoryview": cost(consumer.sliced),
                "views": cost(consumer.views),
                "gather": cost(consumer.gathered),
                "limit of gather: memcpy": lambda: consumer.copied(args.seconds),
            },
            wants=(
                Want("arrays", ("bytes",), at_most=1 / 50),
                Want("gather", ("limit of gather: memcpy",), at_most=1 / 0.75),
            ),
            better="lower",
        )
    comparison.finish()


if __name__ == "__main__":
    main()
