"""Status objects that say in words why they failed."""

import threading
import time
from collections.abc import Callable
from typing import Any

from ophyd.status import DeviceStatus

__all__ = ["EngineStatus"]


class EngineStatus(DeviceStatus):
    """Progress of an action of a device, whose text is its story.

    The RunEngine puts ``str(status)`` into the exception that it raises and into the ``reason`` of
    the RunStop document; here that text names the device, the action and the cause.

    The timeout counts from the last sign of progress (`report`) and not while the action is held
    (`hold`), so that neither a long capture nor a paused plan fails for its length. It is checked
    whenever `check` is called, which the device does several times a second.

    Parameters
    ----------
    device : ophyd.Device
        What acts.
    action : str
        What it does, as in "capturing".
    timeout : float
        Longest time without progress, s.
    """

    def __init__(self, device: Any, *, action: str, timeout: float) -> None:
        self._action = action
        self._patience = timeout
        self._text = ""
        self._current = -1
        self._began = self._progressed = time.monotonic()
        self._held_since: float | None = None
        self._ending = threading.Lock()
        self._ended = False
        # The base class would spend a thread per status on its timeout.
        super().__init__(device, timeout=None)

    @property
    def timeout(self) -> float:
        """Longest time without progress, s."""
        return self._patience

    def finish(self) -> None:
        """Mark as done; nothing happens if it is done or failed already."""
        if self._end():
            self.set_finished()

    def fail(self, cause: Exception) -> None:
        """Mark as failed for this cause; nothing happens if it is done or failed already."""
        if self._end():
            self._text = str(cause)
            self.set_exception(cause)

    def report(self, current: int, target: int | None, unit: str, text: str = "") -> None:
        """Note progress and tell the watchers.

        Parameters
        ----------
        current : int
            How far the action is.
        target : int or None
            Where it ends, if that is known.
        unit : str
            Unit of both.
        text : str
            What to say of it, in words.
        """
        if self._ended:
            return
        now = time.monotonic()
        if current != self._current:
            self._current, self._progressed = current, now
        self._text = text or (
            f"{current} {unit}" if target is None else f"{current} of {target} {unit}"
        )
        elapsed = now - self._began
        news: dict[str, Any] = {
            "name": self.device.name,
            "current": current,
            "initial": 0,
            "unit": unit,
            "precision": 0,
            "time_elapsed": elapsed,
        }
        if target:
            remaining = max(0.0, 1.0 - current / target)
            news |= {"target": target, "fraction": remaining}
            if current:
                news["time_remaining"] = elapsed * remaining / (1.0 - remaining)
        for watcher in list(self._watchers):
            watcher(**news)

    def check(self) -> None:
        """Fail if there was no progress for too long."""
        if self._ended or self._held_since is not None:
            return
        if time.monotonic() - self._progressed > self._patience:
            self.fail(
                TimeoutError(f"no progress for {self._patience:g} s: {self._text or 'nothing yet'}")
            )

    def hold(self) -> None:
        """Stop the clock of the timeout: the action is paused."""
        if self._held_since is None:
            self._held_since = time.monotonic()

    def proceed(self) -> None:
        """Let the clock of the timeout run again."""
        if self._held_since is not None:
            self._progressed += time.monotonic() - self._held_since
            self._held_since = None

    def watch(self, func: Callable[..., None]) -> None:
        """Call ``func`` with the progress, as keyword arguments of Bluesky's progress bars."""
        self._watchers.append(func)

    def _end(self) -> bool:
        with self._ending:
            ended, self._ended = self._ended, True
            return not ended

    def __str__(self) -> str:
        device = self.device.name
        if not self.done and not self._ended:
            return f"{device}: {self._action}" + (f", {self._text}" if self._text else "")
        # While the callbacks run, the exception is set and `done` may not be yet.
        outcome = "failed" if self._exception is not None else "done"
        return f"{device}: {self._action} {outcome}" + (f": {self._text}" if self._text else "")

    __repr__ = __str__
