"""At what pace captured packets are sent again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._capture_times import CaptureTimes
from ._source import ReplayError

__all__ = ["ReplayPace"]


@dataclass(frozen=True, kw_only=True)
class ReplayPace:
    """Options of a replay that change its times; see `Replay`.

    Raises
    ------
    ReplayError
        If one is not valid.
    """

    speed: float
    max_gap_ns: int | None
    loops: int
    loop_gap_ns: int | None

    def __post_init__(self) -> None:
        """Check the options."""
        if not 0.0 < self.speed < float("inf"):
            raise ReplayError(f"speed is {self.speed}; accepted is a positive factor.")
        for name in ("max_gap_ns", "loop_gap_ns"):
            gap = getattr(self, name)
            if gap is not None and gap < 0:
                raise ReplayError(f"{name} is {gap}; accepted is 0 or more.")
        if type(self.loops) is not int or self.loops < 1:
            raise ReplayError(f"loops is {self.loops!r}; accepted is a whole number, 1 or more.")

    def times(self) -> CaptureTimes:
        """Return the times of a loop, without the speed."""
        return CaptureTimes(self.max_gap_ns)

    def loop_gap(self, packets: int, length_ns: int) -> int:
        """Return the gap after a loop of so many packets and of this length, ns."""
        if self.loop_gap_ns is not None:
            return self.loop_gap_ns
        return length_ns // (packets - 1) if packets > 1 else 0

    def duration_ns(self, packets: int, length_ns: int) -> int:
        """Return the time from the first to the last packet of all loops, ns."""
        gaps = (self.loops - 1) * self.loop_gap(packets, length_ns)
        return round((self.loops * length_ns + gaps) / self.speed)

    def scaled(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return times at the speed of the replay."""
        if self.speed == 1.0:
            return times
        return np.rint(times / self.speed).astype(np.int64)
