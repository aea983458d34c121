"""UDP reception on 127.0.0.1 without loss: the highest rate that every receiver takes whole.

One sender on one core sends the same packets to each receiver on another core, at rates found by
bisection: a rate counts when every packet of a trial has reached the consumer. A trial that loses
is repeated once, because a core that is taken away for longer than the receive buffer lasts says
nothing about the receiver. All receive buffers of the kernel are equally large. The limit is a bare
C++ loop over recvmmsg with UDP_GRO, which counts packets in a ring of memory and looks at none.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial

from programs import Program, built, cores, script
from runner import Comparison, Measurement, Want, arguments

RECEIVE_BUFFER = 64 << 20
# As large as the region that the engine receives into.
RING = 64 << 20
SIZES = (1000, 8000, 64000)
# The bisection ends when what passed and what did not are this near.
NEAR = 1.06
MAX_TRIALS = 9
LIMIT = "limit: bare loop, UDP_GRO"


@dataclass
class Trial:
    """What was sent and what arrived, and how long each took, s."""

    sent: int
    sending: float
    received: int
    receiving: float

    @property
    def whole(self) -> bool:
        """Whether everything arrived."""
        return self.received == self.sent

    @property
    def rate(self) -> float:
        """Packets a second, until the last one had reached the consumer."""
        return self.received / max(self.sending, self.receiving)

    @property
    def limited_by_sender(self) -> bool:
        """Whether the receiver kept up with all that was sent."""
        return self.whole and self.receiving < 1.05 * self.sending


def settled(receiver: Program) -> dict:
    """Return the receiver's counters once they no longer change, or those of 1 s later."""
    counters = receiver.ask()
    unchanged = 0
    for _ in range(100):
        time.sleep(0.01)
        latest = receiver.ask()
        unchanged = unchanged + 1 if latest["packets"] == counters["packets"] else 0
        counters = latest
        if unchanged == 3:
            break
    return counters


def trial(sender: Program, receiver: Program, rate: float, seconds: float) -> Trial:
    """Send at a rate, packets a second, 0: as fast as possible."""
    before = receiver.ask()["packets"]
    sent = sender.ask(f"{rate} {seconds}")
    received = settled(receiver)
    return Trial(
        sent["sent"],
        (sent["ended"] - sent["begun"]) / 1e9,
        received["packets"] - before,
        (received["latest"] - sent["begun"]) / 1e9,
    )


def loss_free(command: list[str], size: int, seconds: float) -> Measurement:
    """Bisect the rate at which nothing is lost; Mpps."""
    sending, receiving = cores()
    with (
        Program(command, receiving) as receiver,
        Program([built("peers_udp_send"), str(receiver.ready["port"]), str(size)], sending) as send,
    ):
        trial(send, receiver, 1000, 0.02)  # pages, caches and peers are known from now on
        first = trial(send, receiver, 0, seconds)
        best = first.rate if first.whole else 0.0
        fails = first.sent / first.sending
        guess = 0.9 * first.rate
        for _ in range(MAX_TRIALS):
            if first.whole or (best and fails / best < NEAR):
                break
            done = trial(send, receiver, guess, seconds)
            if not done.whole:
                done = trial(send, receiver, guess, seconds)
            if done.whole:
                best = max(best, done.rate)
            else:
                fails = min(fails, guess)
            guess = (best * fails) ** 0.5 if best else fails / 2
        notes: dict[str, float | str] = {
            "Gb/s": best * size * 8 / 1e9,
            "limited by": "sender" if first.limited_by_sender else "receiver",
        }
        return Measurement(best / 1e6, notes)


def commands(size: int) -> dict[str, list[str]]:
    """Return the receivers of packets of that size."""
    ours = [str(size), str(RING)]
    bare = [str(size), str(RECEIVE_BUFFER), str(RING)]
    python = script("peers/udp_receive.py")
    return {
        "ours, C++": [built("ours_udp_receive"), *ours],
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
