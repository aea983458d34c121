"""Status objects whose text has the cause of a failure."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from opentelemetry.trace import StatusCode
from ophyd.status import DeviceStatus, Status

from ._watchers import Watcher, default_watchers

__all__ = ["EngineStatus", "StageStatus", "TypedStatus"]

_TELLING_S = 10.0


class TypedStatus(Status):
    """A status typed by Bluesky's protocol, from which ophyd's own types differ."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception if it failed; None if not."""
        return super().exception(timeout)


class EngineStatus(DeviceStatus):
    """Status of an action of a device, with its progress as text.

    The RunEngine puts ``str(status)`` into the exception that it raises and into the ``reason`` of
    the RunStop document. That text names the device, the action and the cause.

    The timeout restarts with every `report` of progress and stops while the action is paused
    (`pause_timeout`), so a long capture or a paused plan does not time out. The device calls
    `check` several times a second to enforce it.

    Parameters
    ----------
    device : ophyd.Device
        Device that performs the action.
    action : str
        Name of the action, such as "capturing".
    timeout : float
        Longest time without progress, s.
    awaited : str
        Name of the expected progress, in the text of a timeout.
    settle_time : float
        Time from the end of the action until the status is done, s.
    """

    def __init__(
        self,
        device: Any,
        *,
        action: str,
        timeout: float,
        awaited: str = "progress",
        settle_time: float = 0.0,
    ) -> None:
        self._action = action
        self._awaited = awaited
        self._timeout_s = timeout
        self._text = ""
        self._current = -1
        self._began = self._progressed = time.monotonic()
        self._paused_since: float | None = None
        self._ending = threading.Lock()
        self._ended = False
        self._told = threading.Event()
        # No timeout in the base class: it would start a thread per status.
        super().__init__(device, timeout=None, settle_time=settle_time)
        # If tracing is configured, ophyd has a span for each status, all with one name.
        self._tracing_span.update_name(f"{device.name} {action}")

    @property
    def timeout(self) -> float:
        """Longest time without progress, s."""
        return self._timeout_s

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception if it failed; None if not."""
        return super().exception(timeout)

    @property
    def failed(self) -> bool:
        """Whether it has failed; True also while its callbacks run."""
        return self._exception is not None

    def finish(self) -> None:
        """Mark as done, unless it is done or has failed already."""
        if self._end():
            self.set_finished()

    def fail(self, cause: Exception) -> None:
        """Mark as failed for this cause, unless it is done or has failed already."""
        if self._end():
            self._text = str(cause)
            self.set_exception(cause)

    def end_with(self, work: Future[None]) -> Self:
        """Finish or fail together with work on a thread; return this status."""

        def end(_: Future[None]) -> None:
            error = work.exception()
            if isinstance(error, Exception):
                self.fail(error)
            elif error is not None:
                self.fail(RuntimeError(f"interrupted by {error!r}"))
            else:
                self.finish()

        work.add_done_callback(end)
        return self

    def report(self, current: int, target: int | None, unit: str, text: str = "") -> None:
        """Record progress; the watchers are called soon, on another thread.

        Parameters
        ----------
        current : int
            Progress so far.
        target : int or None
            Progress at the end, if known.
        unit : str
            Unit of both.
        text : str
            Progress as text; default: the numbers.
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
        progress: dict[str, Any] = {
            "name": self.device.name,
            "current": current,
            "initial": 0,
            "unit": unit,
            "precision": 0,
            "time_elapsed": elapsed,
        }
        if target:
            remaining = max(0.0, 1.0 - current / target)
            progress |= {"target": target, "fraction": remaining}
            if current:
                progress["time_remaining"] = elapsed * remaining / (1.0 - remaining)
        self._show(progress)

    def check(self, cause: Callable[[], str] = str) -> None:
        """Fail if there was no progress for longer than the timeout.

        Parameters
        ----------
        cause : callable
            Returns the cause, if known; called only after the timeout.
        """
        if self._ended or self._paused_since is not None:
            return
        if time.monotonic() - self._progressed > self._timeout_s:
            text = "; ".join(filter(None, [self._text or "nothing yet", cause()]))
            self.fail(TimeoutError(f"no {self._awaited} for {self._timeout_s:g} s: {text}"))

    def pause_timeout(self) -> None:
        """Stop the timeout's clock: the action is paused."""
        if self._paused_since is None:
            self._paused_since = time.monotonic()

    def resume_timeout(self) -> None:
        """Start the timeout's clock again."""
        if self._paused_since is not None:
            self._progressed += time.monotonic() - self._paused_since
            self._paused_since = None

    def watch(self, func: Callable[..., None]) -> None:
        """Call ``func`` with the progress, in the keyword arguments of Bluesky's progress bars.

        It is called on a separate thread, with the latest progress. If it raises, that is logged,
        and it is not called again.
        """
        self._watchers.append(Watcher(self.device.name, func))

    def wait_told(self) -> None:
        """If the action has ended, wait until its callbacks have run.

        A status is done a moment before its callbacks run. A caller that polls it, such as
        ``collect_while_completing``, could otherwise continue as if it had not failed.
        """
        if self._ended:
            self._told.wait(_TELLING_S)

    def _update_trace_attributes(self) -> None:
        # Called by ophyd as the span ends. Exceptions are no attributes, but events.
        error = self._trace_attributes.pop("exception", None)
        self._trace_attributes |= {
            "daqiri.device.name": self.device.name,
            "daqiri.action": self._action,
            "daqiri.progress": self._text,
        }
        if error is not None:
            self._tracing_span.record_exception(error)
            self._tracing_span.set_status(StatusCode.ERROR, str(error))
        super()._update_trace_attributes()

    def _show(self, progress: Mapping[str, Any]) -> None:
        for watcher in list(self._watchers):
            default_watchers().call(watcher, progress)

    def _settled(self) -> None:
        # ophyd calls the watchers here, on the thread that finishes the status.
        self._show({"name": self.device.name, "fraction": 0.0})

    def _run_callbacks(self) -> None:
        super()._run_callbacks()
        self._told.set()

    def _end(self) -> bool:
        with self._ending:
            ended, self._ended = self._ended, True
            return not ended

    def __str__(self) -> str:
        device = self.device.name
        if not self.done and not self._ended:
            return f"{device}: {self._action}" + (f", {self._text}" if self._text else "")
        # While callbacks run, the exception is already set but `done` may still be False.
        outcome = "failed" if self.failed else "done"
        return f"{device}: {self._action} {outcome}" + (f": {self._text}" if self._text else "")

    __repr__ = __str__


class StageStatus(EngineStatus):
    """Status of staging while the engine is opened; also the list of what is staged.

    Parameters
    ----------
    device : ophyd.Device
        Device that is staged.
    staged : sequence of ophyd.Device
        Return value of `ophyd.Device.stage`, for preprocessors such as `lazily_stage_wrapper`.
    """

    def __init__(self, device: Any, staged: Sequence[object]) -> None:
        self._devices = list(staged)
        super().__init__(device, action="opening the engine", timeout=float("inf"))

    def __iter__(self) -> Iterator[object]:
        """Iterate over the devices that are staged."""
        return iter(self._devices)
