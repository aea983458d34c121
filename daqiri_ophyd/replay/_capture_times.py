"""When captured packets are due, from time stamps that may be out of order."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["CaptureTimes"]

# Stamps of several queues of a card, or of merged captures, differ by less.
_LARGE_STEP_NS = 1_000_000_000


class CaptureTimes:
    """Times of packets since the first one, for their stamps, part by part.

    A packet is due when the latest of the stamps until then was, so that stamps slightly out of
    order neither delay later packets nor make the whole longer. With a stamp more than a second
    before an earlier one, as of a clock that was set, times start anew: it is due at once, and
    those after it with their gaps.

    Parameters
    ----------
    max_gap_ns : int, optional
        Longest gap, ns; longer gaps are shortened to it.
    """

    def __init__(self, max_gap_ns: int | None = None) -> None:
        self._max_gap_ns = max_gap_ns
        self._latest: int | None = None
        self.elapsed_ns = 0
        """Time of the last packet."""

    def of(self, stamps: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
        """Return the times of the next packets, and those with which they start anew.

        Parameters
        ----------
        stamps : ndarray of int64, shape (n,)
            Time stamps of the packets, ns.

        Returns
        -------
        times : ndarray of int64, shape (n,)
            ns since the first packet, never decreasing.
        anew : list of (int, int)
            Index of each packet with which times start anew, and the step back, ns.
        """
        gaps = np.zeros(len(stamps), np.int64)
        anew: list[tuple[int, int]] = []
        first = 0
        while first < len(stamps):
            before = int(stamps[first]) if self._latest is None else self._latest
            latest = np.maximum.accumulate(np.concatenate([[before], stamps[first:]]))
            back = latest[:-1] - stamps[first:]
            large = np.flatnonzero(back > _LARGE_STEP_NS)
            end = first + int(large[0]) if large.size else len(stamps)
            gaps[first:end] = np.diff(latest[: end - first + 1])
            self._latest = int(latest[end - first])
            if end < len(stamps):
                anew.append((end, int(back[end - first])))
                self._latest = int(stamps[end])
            first = end
        if self._max_gap_ns is not None:
            np.minimum(gaps, self._max_gap_ns, out=gaps)
        times = self.elapsed_ns + np.cumsum(gaps)
        if len(times):
            self.elapsed_ns = int(times[-1])
        return times, anew
