"""Limits of a field test: its time, and the bytes that it sends."""

from __future__ import annotations

import time

from ._step import StepSkippedError

__all__ = ["Budget"]


class Budget:
    """Time and bytes that are left.

    Parameters
    ----------
    seconds : float
        Time from now on.
    traffic : int
        Bytes to send at most.
    """

    def __init__(self, seconds: float, traffic: int) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._traffic = traffic
        self.spent = 0

    @property
    def seconds_left(self) -> float:
        """Time that is left, s; at least 0."""
        return max(0.0, self._end - time.monotonic())

    def require(self) -> None:
        """Raise `StepSkippedError` if nothing is left; a later run does the step."""
        if not self.seconds_left:
            raise self.out_of_time()
        if self.spent >= self._traffic:
            raise StepSkippedError(
                f"the limit of {self._traffic / 1e9:g} GB was reached; the same command goes on",
                again=True,
            )

    def out_of_time(self) -> StepSkippedError:
        """Return the error of a step that the time limit cut; a later run does the step."""
        return StepSkippedError(
            f"the time limit of {self._seconds:g} s was reached; the same command goes on",
            again=True,
        )

    def require_bytes(self, wanted: int) -> None:
        """Raise `StepSkippedError` if so many bytes cannot be sent any more."""
        self.require()
        if self.spent + wanted > self._traffic:
            raise StepSkippedError(
                f"the step sends {wanted / 1e6:,.1f} MB, and "
                f"{(self._traffic - self.spent) / 1e6:,.1f} of {self._traffic / 1e6:,.1f} MB are "
                "left; the same command goes on",
                again=True,
            )

    def packets_left(self, size: int, lanes: int) -> int:
        """Return how many packets of a size each lane may send, at least one."""
        return max(1, (self._traffic - self.spent) // (size * lanes))

    def spend(self, traffic: int) -> None:
        """Count bytes that were sent."""
        self.spent += traffic
