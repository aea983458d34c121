"""Timer latency and interruptions of a thread."""

from __future__ import annotations

import time

__all__ = ["sleep_lateness", "spin_interruptions"]

_SLEEP_NS = 100_000
# Reading the clock takes some hundred nanoseconds; a longer gap is an interruption.
_GAP_NS = 5_000
_MOST = 1_000_000


def sleep_lateness(seconds: float, _folder: str) -> tuple[dict[str, float], str]:
    """Return how late sleeps of 100 us end."""
    late = []
    end = time.monotonic_ns() + int(seconds * 1e9)
    now = time.monotonic_ns()
    while now < end and len(late) < _MOST:
        due = now + _SLEEP_NS
        time.sleep(_SLEEP_NS / 1e9)
        now = time.monotonic_ns()
        late.append(now - due)
    values = _quantiles(late)
    return values, _line("late", values)


def spin_interruptions(seconds: float, _folder: str) -> tuple[dict[str, float], str]:
    """Return how often and for how long a busy thread is interrupted."""
    gaps = []
    last = time.monotonic_ns()
    begin, end = last, last + int(seconds * 1e9)
    while last < end and len(gaps) < _MOST:
        now = time.monotonic_ns()
        if now - last > _GAP_NS:
            gaps.append(now - last)
        last = now
    values = {"per_s": len(gaps) / ((last - begin) / 1e9), **_quantiles(gaps or [0])}
    lost = sum(gaps) / (last - begin)
    values["lost_percent"] = 100 * lost
    return (
        values,
        f"{values['per_s']:.0f} a second, {_line('long', values)}, {lost:.2%} of the time",
    )


def _quantiles(times: list[int]) -> dict[str, float]:
    # Host checks, which import this module, do without numpy.
    import numpy as np

    names = ("p50_us", "p99_us", "p999_us", "max_us")
    values = np.quantile(times, (0.5, 0.99, 0.999, 1)) / 1e3
    return dict(zip(names, map(float, values), strict=True))


def _line(word: str, values: dict[str, float]) -> str:
    return (
        f"p50 {values['p50_us']:.1f}, p99 {values['p99_us']:.1f}, p99.9 {values['p999_us']:.1f}, "
        f"at most {values['max_us']:.1f} us {word}"
    )
