"""Deviation of the gaps between packets from those intended."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["GapErrors", "gap_errors"]


@dataclass(frozen=True, slots=True)
class GapErrors:
    """Deviations of gaps between packets from what was intended, ns.

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
    """Compare the gaps between packets with the gaps that were intended.

    Parameters
    ----------
    intended_ns : array_like of int, shape (n,)
        When the packets were due: `schedule` of what was sent, or the original timestamps.
    found_ns : array_like of int, shape (n,)
        Timestamps of the same packets when they were captured.

    Returns
    -------
    GapErrors
        Zeros if there are fewer than two packets. Quantiles are the nearest values at or above them
        (``method="higher"`` of `numpy.quantile`).

    Raises
    ------
    ValueError
        If the numbers of packets differ: with a packet missing, gaps cannot be matched.
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
