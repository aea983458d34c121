"""Rate of memory copies."""

from __future__ import annotations

import time

__all__ = ["memory_copy"]

# Larger than any cache.
_SIZE = 128 << 20


def memory_copy(seconds: float, _folder: str) -> tuple[dict[str, float], str]:
    """Return the rate at which one core copies memory."""
    # Host checks, which import this module, do without numpy.
    import numpy as np

    source = np.ones(_SIZE, np.uint8)
    target = np.empty_like(source)
    # The first copy includes page faults.
    np.copyto(target, source)
    rates = []
    end = time.perf_counter() + seconds
    while not rates or time.perf_counter() < end:
        begin = time.perf_counter()
        np.copyto(target, source)
        rates.append(_SIZE / (time.perf_counter() - begin))
    best, middle = max(rates) / 1e9, float(np.median(rates)) / 1e9
    values = {"median_GB_s": middle, "best_GB_s": best}
    return values, f"{middle:.1f} GB/s, at best {best:.1f}"
