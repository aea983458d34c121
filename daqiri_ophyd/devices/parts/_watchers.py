"""Calls of progress watchers, such as progress bars, on a thread that nothing waits for."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Watcher", "Watchers", "default_watchers"]

_log = logging.getLogger(__name__)

_HUNG_S = 1.0  # after which the other watchers get another thread
_MOST_THREADS = 4
_MOST_WAITING = 64


@dataclass(eq=False)
class Watcher:
    """A function that shows the progress of an action.

    Parameters
    ----------
    name : str
        Name of the device, for the log.
    function : callable
        Called with the progress as keyword arguments.
    """

    name: str
    function: Callable[..., object]
    dropped: bool = False


class Watchers:
    """Calls watchers with the latest progress, so that none of them can harm an action.

    A watcher may raise, or hang: terminals are closed, or stopped by Ctrl-S. One daemon thread
    calls all watchers. A watcher that raises is dropped. While a watcher hangs, another thread
    calls the others. Progress that arrives meanwhile replaces earlier progress of that watcher.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Watcher, Mapping[str, Any]] = {}
        self._calling: dict[Watcher, float] = {}  # since when
        self._threads = self._idle = 0

    def call(self, watcher: Watcher, progress: Mapping[str, Any]) -> None:
        """Call a watcher soon, and return at once."""
        with self._changed:
            if watcher.dropped:
                return
            self._waiting[watcher] = progress
            if len(self._waiting) > _MOST_WAITING:  # all threads hang
                del self._waiting[next(iter(self._waiting))]
            since = time.monotonic() - _HUNG_S
            hung = sum(began < since for began in self._calling.values())
            if hung == self._threads < _MOST_THREADS:
                self._start_thread()
            self._changed.notify()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._run, name="daqiri-watchers", daemon=True).start()
        except RuntimeError:  # the interpreter exits, or the process has too many threads
            return
        self._threads += 1

    def _next(self) -> Watcher | None:
        return next((one for one in self._waiting if one not in self._calling), None)

    def _run(self) -> None:
        while True:
            with self._changed:
                while (watcher := self._next()) is None:
                    if self._idle:  # another thread waits: this one has replaced a hung one
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                progress = self._waiting.pop(watcher)
                self._calling[watcher] = time.monotonic()
            try:
                watcher.function(**progress)
            except BaseException:
                watcher.dropped = True
                _log.exception(
                    "%s: a progress watcher failed; it is not called again.", watcher.name
                )
            with self._changed:
                del self._calling[watcher]


_default = Watchers()


def default_watchers() -> Watchers:
    """Return the watchers' thread that all statuses of this process share."""
    return _default


def _begin_child() -> None:
    global _default
    _default = Watchers()


os.register_at_fork(after_in_child=_begin_child)
