"""Numbers that are computed from each recorded frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["FrameReductions"]


class FrameReductions:
    """Functions that make a number of each frame of a recorder; see `ReorderPlan.record`.

    Each is a column of the files. Functions are called on the recorder's thread, which writes no
    frame meanwhile: what takes longer than frames come makes the plan lose frames for want of
    buffers. A function that does not return keeps the recorder from ending.

    Parameters
    ----------
    functions : mapping of str to callable
        ``function(frame) -> float`` by the name of its column. The frame is a `Frame` where it was
        assembled, so in GPU memory ``cupy.asarray(frame)`` needs no copy. Pixels of bf16 are
        numbers (float32). NaN means that there is no value.
    """

    def __init__(self, functions: Mapping[str, Callable[[Any], float]]) -> None:
        self._functions = dict(functions)
        self._make: Callable[[Any], Any] = lambda burst: burst
        self._latest: deque[list[float]] = deque(maxlen=1)
        self.error: str = ""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._functions)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._functions)

    def begin(self, frames: int = 1) -> None:
        """Forget frames so far; keep the numbers of this many from now on."""
        self._latest = deque(maxlen=max(1, frames))
        self.error = ""

    def means(self) -> dict[str, float]:
        """Return the mean of the numbers of the kept frames; NaN where no frame has one."""
        latest = list(self._latest)
        rows = np.array(latest, np.float64).reshape(len(latest), len(self._functions))
        means = {}
        for name, column in zip(self._functions, rows.T, strict=True):
            known = column[~np.isnan(column)]
            means[name] = float(known.mean()) if len(known) else float("nan")
        return means

    def made_by(self, make: Callable[[Any], Any]) -> FrameReductions:
        """Set how a frame is made of a burst; return these reductions."""
        self._make = make
        return self

    def __call__(self, burst: Any) -> list[float]:
        """Return the numbers of a frame, NaN for a function that fails; the first error is kept."""
        frame = self._make(burst)
        numbers = []
        for name, function in self._functions.items():
            try:
                numbers.append(float(function(frame)))
            except BaseException as error:  # on the engine's thread: nobody else catches it
                numbers.append(float("nan"))
                if not self.error:
                    self.error = f"reduction {name!r} of frame {frame.batch} failed: {error!r}"
        self._latest.append(numbers)
        return numbers
