"""The highest rate without loss at a receiver, by bisection."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from programs import Program
from runner import Measurement

# The bisection ends when the highest passing and the lowest failing rate are this close.
NEAR = 1.06
TRIALS = 10


@dataclass
class Trial:
    """The numbers of sent and received packets, and the times of both, s."""

    sent: int
    sending: float
    received: int
    receiving: float
    # Processor time of the receiver, s.
    cpu: float = 0.0

    @classmethod
    def of(cls, sent: list[dict], before: dict, after: dict) -> Trial:
        """Return the numbers of several senders, and of the receiver before and after them."""
        begun = min(each["begun"] for each in sent)
        return cls(
            sum(each["sent"] for each in sent),
            (max(each["ended"] for each in sent) - begun) / 1e9,
            after["packets"] - before["packets"],
            (after["latest"] - begun) / 1e9,
            after["cpu"] - before["cpu"],
        )

    @property
    def whole(self) -> bool:
        """Whether all packets arrived."""
        return self.received == self.sent

    @property
    def rate(self) -> float:
        """Packets a second, until the last one had reached the consumer."""
        return self.received / max(self.sending, self.receiving)

    @property
    def limited_by_sender(self) -> bool:
        """Whether the receiver kept up with the sender."""
        return self.whole and self.receiving < 1.05 * self.sending

    @property
    def cpu_ns(self) -> float:
        """Processor time of the receiver, ns per packet."""
        return self.cpu * 1e9 / max(self.received, 1)


def settled(receiver: Program, count: str) -> dict:
    """Return the receiver's counters when `count` no longer changes, or after 2 s.

    A receiver that does not say when it got the latest gets the time at which this saw it.
    """
    counters = receiver.ask()
    seen, unchanged = time.monotonic_ns(), 0
    for _ in range(200):
        time.sleep(0.01)
        latest = receiver.ask()
        if latest[count] == counters[count]:
            unchanged += 1
        else:
            unchanged, seen = 0, time.monotonic_ns()
        counters = latest
        if unchanged == 4:
            break
    return {"latest": seen, **counters}


def send_and_count(sender: Program, receiver: Program, rate: float, seconds: float) -> Trial:
    """Send at a rate, packets a second, 0: as fast as possible; between two running programs."""
    before = receiver.ask()
    sent = sender.ask(f"{rate} {seconds}")
    after = settled(receiver, "packets")
    return Trial(
        sent["sent"],
        (sent["ended"] - sent["begun"]) / 1e9,
        after["packets"] - before["packets"],
        (after["latest"] - sent["begun"]) / 1e9,
        after["cpu"] - before["cpu"],
    )


def bisect(trial: Callable[[float], Trial], size: int, trials: int = TRIALS) -> Measurement:
    """Mpps without loss for packets of that size; `trial` sends at a rate, 0: as fast as possible.

    A trial that loses is repeated once. There are at most so many trials.
    """
    left = trials

    def attempt(rate: float) -> Trial:
        nonlocal left
        left -= 1
        done = trial(rate)
        if not done.whole and left > 0 and rate > 0:
            left -= 1
            done = trial(rate)
        return done

    first = best = attempt(0)
    fails = first.sent / first.sending
    guess = 0.9 * first.rate
    passed = first.whole
    while left > 0 and not first.whole and not (passed and fails / best.rate < NEAR):
        done = attempt(guess)
        if done.whole:
            if not passed or done.rate > best.rate:
                best, passed = done, True
        else:
            fails = min(fails, guess)
        guess = (best.rate * fails) ** 0.5 if passed else fails / 2
    rate = best.rate if passed else 0.0
    return Measurement(
        rate / 1e6,
        {
            "Gb/s": rate * size * 8 / 1e9,
            "CPU, ns a packet": best.cpu_ns,
            "limited by": "sender" if first.limited_by_sender else "receiver",
        },
    )
