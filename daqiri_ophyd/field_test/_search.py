"""The highest rate at which no packet is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ._traffic import Outcome, Traffic

__all__ = ["Found", "rate_without_loss"]

_MOST_TRIALS = 8
_NEAR = 0.05


@dataclass
class Found:
    """Result of a search.

    Parameters
    ----------
    best : Outcome or None
        The fastest trial without loss; None: each lost packets.
    by_sender : bool
        Whether the sender, not a loss, limited the rate.
    trials : list of dict
        Rate, losses and their names, in order.
    """

    best: Outcome | None = None
    by_sender: bool = False
    trials: list[dict[str, Any]] = field(default_factory=list)
    last_losses: str = ""

    def add(self, outcome: Outcome, asked: float | None) -> bool:
        """Note a trial; return whether all of its packets arrived."""
        self.trials.append(
            {
                "asked_packets_per_s": None if asked is None else round(asked, 1),
                "packets_per_s": round(outcome.packet_rate, 1),
                "Gb_per_s": round(outcome.gbps, 6),
                "lost": outcome.lost,
                "losses": outcome.losses,
            }
        )
        clean = not outcome.faults
        if clean and (self.best is None or outcome.packet_rate > self.best.packet_rate):
            self.best = outcome
        if not clean:
            self.last_losses = outcome.faults
        return clean


def rate_without_loss(traffic: Traffic, seconds: float) -> Found:
    """Search the highest rate at which no packet is lost.

    The first trial is as fast as the sender can. If it loses packets, the rate is bisected, until
    it is known to 5 %, or after 8 trials; two of which nothing arrives are the last.

    Parameters
    ----------
    traffic : Traffic
        The packets.
    seconds : float
        Time of each trial.
    """
    found = Found()
    first = traffic.run(seconds=seconds, hurries=True)
    if found.add(first, None):
        found.by_sender = True
        return found
    low, high = 0.0, first.offered / first.seconds
    rate = 0.9 * first.arrived / first.seconds if first.arrived else 0.1 * high
    for _ in range(_MOST_TRIALS - 1 if rate else 0):
        outcome = traffic.run(seconds=seconds, rate=rate, hurries=True)
        if found.add(outcome, rate):
            low = max(low, rate)
        else:
            high = min(high, rate)
        if high - low < _NEAR * high or not (first.arrived or outcome.arrived):
            break
        rate = (low + high) / 2 if low else high / 4
    return found
