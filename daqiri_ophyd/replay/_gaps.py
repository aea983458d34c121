"""Deviations of the gaps between packets from the intended gaps."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["GapErrors", "GapStatistics", "gap_errors"]

_STEPS = 64  # of the histogram, from one power of 2 to the next


@dataclass(frozen=True, slots=True)
class GapErrors:
    """Deviations of gaps between packets from the intended gaps, ns.

    Parameters
    ----------
    count : int
        Number of gaps.
    p50, p99, maximum : int
        Quantiles and maximum of the absolute deviation.
    mean : float
        Mean of the signed deviation.
    """

    count: int
    p50: int
    p99: int
    maximum: int
    mean: float


def gap_errors(intended_ns: ArrayLike, found_ns: ArrayLike) -> GapErrors:
    """Compare the gaps between packets with the intended gaps.

    Parameters
    ----------
    intended_ns : array_like of int, shape (n,)
        Due times of the packets: `schedule` of the source, or the original timestamps.
    found_ns : array_like of int, shape (n,)
        Timestamps of the same packets in the capture.

    Returns
    -------
    GapErrors
        Zeros if there are fewer than two packets. Quantiles are the nearest values at or above them
        (``method="higher"`` of `numpy.quantile`).

    Raises
    ------
    ValueError
        If the numbers of packets differ: gaps cannot be matched if a packet is missing.
    """
    intended = np.asarray(intended_ns, np.int64)
    found = np.asarray(found_ns, np.int64)
    if intended.shape != found.shape or intended.ndim != 1:
        raise ValueError(
            f"Gaps of {intended.shape} intended and {found.shape} found packets cannot be "
            "compared; give the same packets, one-dimensional."
        )
    if len(intended) < 2:
        return GapErrors(0, 0, 0, 0, 0.0)
    errors = np.diff(found) - np.diff(intended)
    sizes = np.abs(errors)
    p50, p99 = np.quantile(sizes, (0.5, 0.99), method="higher")
    return GapErrors(len(errors), int(p50), int(p99), int(sizes.max()), float(errors.mean()))


class GapStatistics:
    """Deviations of gaps between any number of packets, in bounded memory.

    As `gap_errors`, but quantiles are up to 1.6 % too large: the upper ends of the bins of a
    logarithmic histogram.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._bins = np.zeros(65 * _STEPS, np.int64)
        self._count = self._sum = self._maximum = 0

    def add(self, intended_ns: NDArray[np.int64], found_ns: NDArray[np.int64]) -> None:
        """Add the due times and the capture times of the next packets, ns."""
        if not len(intended_ns):
            return
        last = self._last or (int(intended_ns[0]), int(found_ns[0]))
        errors = np.diff(found_ns, prepend=last[1]) - np.diff(intended_ns, prepend=last[0])
        if self._last is None:
            errors = errors[1:]
        self._last = int(intended_ns[-1]), int(found_ns[-1])
        sizes = np.abs(errors)
        self._count += len(errors)
        self._sum += int(errors.sum())
        self._maximum = max(self._maximum, int(sizes.max(initial=0)))
        mantissa, exponent = np.frexp(sizes.astype(np.float64))
        steps = np.ceil((mantissa * 2 - 1) * _STEPS).astype(np.int64)
        bins = np.where(sizes == 0, 0, exponent.astype(np.int64) * _STEPS + steps)
        self._bins += np.bincount(bins, minlength=len(self._bins))

    def result(self) -> GapErrors:
        """Return the statistics of the added packets; zeros for fewer than two."""
        if not self._count:
            return GapErrors(0, 0, 0, 0, 0.0)
        mean = self._sum / self._count
        return GapErrors(
            self._count, self._quantile(0.5), self._quantile(0.99), self._maximum, mean
        )

    def _quantile(self, fraction: float) -> int:
        rank = int(np.ceil(fraction * (self._count - 1)))
        place = int(np.searchsorted(np.cumsum(self._bins), rank, side="right"))
        if place == 0:
            return 0
        exponent, step = divmod(place, _STEPS)
        return min(self._maximum, math.ceil((1 + step / _STEPS) * 2.0 ** (exponent - 1)))
