"""UDP reception on 127.0.0.1 without loss: the highest rate that every receiver takes whole.

One sender on one core sends the same packets to each receiver on another core, at rates found by
bisection: a rate counts when every packet of a trial has reached the consumer. A trial that loses
is repeated once, because a core that is taken away for longer than the receive buffer lasts says
nothing about the receiver. All receive buffers of the kernel are equally large. The limit is a bare
C++ loop over recvmmsg with UDP_GRO, which counts packets in a ring of memory and looks at none.
"""

from __future__ import annotations

import argparse
from functools import partial

from loss_free import bisect, send_and_count
from programs import Program, built, cores, script
from runner import Comparison, Measurement, Want, arguments

RECEIVE_BUFFER = 64 << 20
# As large as the region into which the engine receives.
RING = 64 << 20
SIZES = (1000, 8000, 64000)
LIMIT = "limit: bare loop, UDP_GRO"


def loss_free(command: list[str], size: int, seconds: float) -> Measurement:
    """Bisect the rate without loss; Mpps."""
    sending, receiving = cores()
    with Program(command, receiving) as receiver:
        port = str(receiver.ready["port"])
        with Program([built("peers_udp_send"), "127.0.0.1", port, str(size)], sending) as sender:
            # After this, pages, caches and peers are warm.
            send_and_count(sender, receiver, 1000, 0.02)
            return bisect(partial(send_and_count, sender, receiver, seconds=seconds), size)


def commands(size: int) -> dict[str, list[str]]:
    """Return the receivers of packets of that size."""
    ours = [str(size), str(RING)]
    bare = [str(size), str(RECEIVE_BUFFER), str(RING)]
    python = script("peers/udp_receive.py")
    return {
        "ours, C++": [built("ours_receive"), "udp", *ours],
        LIMIT: [built("peers_udp_receive"), "gro", *bare],
        "ours, Python": [*script("ours/udp_receive.py"), *ours],
        "spead2": [*python, "spead2", *bare[:2]],
        "bare loop, recvmmsg": [built("peers_udp_receive"), "recvmmsg", *bare],
        "Python recv_into": [*python, "recv_into", *bare[:2]],
    }


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a packet")
    args = arguments(__doc__, seconds=0.3, rounds=3, parser=parser)
    comparison = Comparison("udp_receive", "UDP reception", __doc__, args)
    for size in args.sizes:
        comparison.case(
            f"{size} B",
            "Mpps",
            {
                name: partial(loss_free, command, size, args.seconds)
                for name, command in commands(size).items()
            },
            wants=(
                Want("ours, C++", (LIMIT,), at_least=0.85),
                Want("ours, Python", (LIMIT,), at_least=0.85),
                Want("ours, C++", ("spead2",), at_least=1.5),
                Want("ours, Python", ("spead2",), at_least=1.5),
            ),
            digits=3,
        )
    comparison.finish()


if __name__ == "__main__":
    main()
