"""What DAQIRI's Python functions cost against our own Python interface.

Bursts of 1024 packets of 1000 B are received from the loopback engine, used and freed, by
`daqiri_ophyd.compat` and by `daqiri_ophyd.engine`, which have an engine each in the same process.
Times are those of the consumer alone, taken around its calls. *Whole bursts*: the number of packets
and bytes is asked for. *Bytes*: each packet is copied to an object of its own; *gather* copies all
of them with one call, which only our own interface has.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from python_bursts import BURST, CONFIG, SIZE, Consumer
from runner import Comparison, Want, arguments

from daqiri_ophyd import compat
from daqiri_ophyd.engine import Burst, Engine

PACKET = bytes(SIZE)


class CompatConsumer:
    """The same with DAQIRI's functions."""

    def cost(self, use: Callable[[compat.BurstParams], object], seconds: float) -> float:
        """Ns per burst to receive it, use it and free it."""
        spent = bursts = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._put_burst()
            begun = time.perf_counter_ns()
            status, burst = compat.get_rx_burst(0, 0)
            while status != compat.Status.SUCCESS or burst is None:
                begun = time.perf_counter_ns()
                status, burst = compat.get_rx_burst(0, 0)
            use(burst)
            compat.free_all_packets_and_burst_rx(burst)
            spent += time.perf_counter_ns() - begun
            bursts += 1
        return spent / bursts

    def _put_burst(self) -> None:
        burst = compat.create_tx_burst_params()
        compat.set_header(burst, 0, 0, BURST, 1)
        while compat.get_tx_packet_burst(burst) != compat.Status.SUCCESS:
            time.sleep(0)
        compat.set_all_packet_lengths(burst, [SIZE])
        if compat.send_tx_burst(burst) != compat.Status.SUCCESS:
            raise RuntimeError(compat.last_error())

    @staticmethod
    def whole(burst: compat.BurstParams) -> object:
        """Get the numbers of packets and bytes."""
        return compat.get_num_packets(burst), compat.get_burst_tot_byte(burst)

    @staticmethod
    def as_bytes(burst: compat.BurstParams) -> object:
        """Copy each packet to an object."""
        return [compat.get_packet_bytes(burst, i)[1] for i in range(compat.get_num_packets(burst))]


def whole(burst: Burst) -> object:
    """Get the numbers of packets and bytes."""
    return len(burst), burst.nbytes


def main() -> None:
    """Measure both in turn."""
    args = arguments(__doc__, seconds=0.5, rounds=7)
    comparison = Comparison("python_compat", "DAQIRI's Python functions", __doc__, args)
    if compat.daqiri_init(CONFIG) != compat.Status.SUCCESS:
        raise RuntimeError(compat.last_error())
    with Engine.open(CONFIG) as engine:
        ours, theirs = Consumer(engine), CompatConsumer()
        ours.packets = np.zeros((BURST, SIZE), np.uint8)

        def native(use: Callable[[Burst], object]) -> Callable[[], float]:
            return lambda: ours.cost(use, args.seconds) * BURST / 1e3

        def documented(use: Callable[[compat.BurstParams], object]) -> Callable[[], float]:
            return lambda: theirs.cost(use, args.seconds) / 1e3

        comparison.case(
            "whole bursts",
            "µs a burst",
            {"daqiri": documented(theirs.whole), "native": native(whole)},
            wants=(Want("daqiri", ("native",), at_most=1.5),),
            better="lower",
        )
        comparison.case(
            f"bytes of {BURST} packets",
            "µs a burst",
            {
                "daqiri": documented(theirs.as_bytes),
                "native, bytes": native(ours.as_bytes),
                "native, gather": native(ours.gathered),
            },
            wants=(Want("daqiri", ("native, bytes",), at_most=1.5),),
            better="lower",
            digits=1,
        )
    compat.shutdown()
    comparison.finish()


if __name__ == "__main__":
    main()
