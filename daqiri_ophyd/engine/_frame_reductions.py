"""Numbers that are computed from each recorded frame."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["FrameReductions"]

_LONGEST_TEXT = 500
_BREATH_S = 0.002


class FrameReductions:
    """Functions that make a number of each frame of a recorder; see `ReorderPlan.record`.

    Each is a column of the files. Functions are called on the recorder's thread, which writes no
    frame meanwhile: what takes longer than frames come makes the plan lose frames for want of
    buffers. A function that does not return keeps the recorder from ending, and the engine from
    closing, until the process is killed (SIGKILL). Functions must not use the device, the engine or
    its recorders, which may wait for them; they raise an exception to fail a reading. One object is
    for one recorder.

    Parameters
    ----------
    functions : mapping of str to callable
        ``function(frame) -> float`` by the name of its column. The frame is a `Frame` where it was
        assembled, so in GPU memory ``cupy.asarray(frame)`` needs no copy. Pixels of bf16 are
        numbers (float32). NaN means that there is no value.
    """

    def __init__(self, functions: Mapping[str, Callable[[Any], float]]) -> None:
        self._functions = dict(functions)
        for name, function in self._functions.items():
            if not callable(function):
                raise TypeError(f"reduction {name!r} is {function!r}; accepted is a function")
        self._seconds, self._frames = 0.0, 0
        self._latest: deque[list[float]] = deque(maxlen=1)
        self._running: tuple[str, float] | None = None
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
        self._seconds, self._frames = 0.0, 0
        self.error = ""

    def means(self) -> dict[str, float]:
        """Return the mean of the numbers of the kept frames; NaN where no frame has one."""
        latest = list(self._latest.copy())
        rows = np.array(latest, np.float64).reshape(len(latest), len(self._functions))
        means = {}
        for name, column in zip(self._functions, rows.T, strict=True):
            known = column[~np.isnan(column)]
            means[name] = float(known.mean()) if len(known) else float("nan")
        return means

    @property
    def running(self) -> tuple[str, float]:
        """What is computed now, and for how long, s; an empty name: nothing."""
        now = self._running
        if now is None:
            return "", 0.0
        name, begun = now
        return name, time.monotonic() - begun

    def wait(self, longest: float) -> bool:
        """Wait for the function that is running; return False if that takes longer, s."""
        now = self._running
        while now is not None and self._running is now:
            if time.monotonic() - now[1] > longest:
                return False
            time.sleep(_BREATH_S)
        return True

    @property
    def seconds(self) -> float:
        """How long the numbers of a frame take, s: the mean since `begin`."""
        return self._seconds / max(1, self._frames)

    def __call__(self, make: Callable[[Any], Any], burst: Any) -> list[float]:
        """Return the numbers of the frame that is made of a burst; NaN for a function that fails.

        The first error is kept.
        """
        numbers = [float("nan")] * len(self._functions)
        name, begun = "of a frame", time.monotonic()
        try:
            frame = make(burst)
            name = f"of frame {frame.batch}"
            for index, (column, function) in enumerate(self._functions.items()):
                self._running = column, time.monotonic()
                try:
                    numbers[index] = float(function(frame))
                except BaseException as error:  # on the engine's thread: nobody else catches it
                    self._fail(f"{column!r} {name}", error)
        except BaseException as error:
            self._fail(name, error)
        self._running = None
        self._seconds += time.monotonic() - begun
        self._frames += 1
        self._latest.append(numbers)
        return numbers

    def _fail(self, what: str, error: BaseException) -> None:
        if self.error:
            return
        try:
            text = repr(error)[:_LONGEST_TEXT]
        except Exception:  # of a class of the user's
            text = type(error).__name__
        self.error = f"reduction {what} failed: {text}"
