"""Periodic calls on the thread of the event pump."""

import logging
import os
import threading
from collections.abc import Callable

from daqiri_ophyd.engine import EventPump, default_pump

__all__ = ["Ticker", "default_ticker"]

_log = logging.getLogger(__name__)


class Ticker:
    """Calls functions periodically, on the thread of the event pump.

    Only that thread touches signals and status objects, so timeouts, progress and monitored
    counters are updated there. While there is nothing to call, no thread runs.

    Parameters
    ----------
    pump : EventPump
        Event pump whose thread is used.
    period : float
        Time between calls, s.
    """

    def __init__(self, pump: EventPump, period: float = 0.1) -> None:
        self._pump = pump
        self._period = period
        self._calls: dict[Callable[[], object], Callable[[Exception], object] | None] = {}
        self._lock = threading.Lock()
        self._end: threading.Event | None = None

    def add(
        self,
        call: Callable[[], object],
        failed: Callable[[Exception], object] | None = None,
    ) -> None:
        """Call a function periodically, until it raises; adding it again changes nothing.

        Parameters
        ----------
        call : callable
            The function.
        failed : callable, optional
            Called with the exception that it raises. A function that enforces a timeout has to fail
            its status here, because nothing else ends it.
        """
        with self._lock:
            self._calls[call] = failed
            if self._end is None:
                self._end = threading.Event()
                thread = threading.Thread(
                    target=self._run, args=(self._end,), name="daqiri-ticker", daemon=True
                )
                thread.start()

    def remove(self, call: Callable[[], object]) -> None:
        """Stop calling ``call``; a call that is about to begin may still occur."""
        with self._lock:
            self._calls.pop(call, None)
            if not self._calls and self._end is not None:
                self._end.set()
                self._end = None

    def _run(self, end: threading.Event) -> None:
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._pump.add(fd, self._call_all)
        try:
            while not end.wait(self._period):
                os.eventfd_write(fd, 1)
        finally:
            self._pump.remove(fd)
            os.close(fd)

    def _call_all(self) -> None:
        for call, failed in list(self._calls.items()):
            try:
                call()
            except Exception as error:
                _log.exception("Periodic call of %r failed; it is not called again.", call)
                self.remove(call)
                if failed is not None:
                    self._report(failed, error)

    @staticmethod
    def _report(failed: Callable[[Exception], object], error: Exception) -> None:
        try:
            failed(error)
        except Exception:
            _log.exception("Report of a failed periodic call by %r failed.", failed)


_default: Ticker | None = None
_default_lock = threading.Lock()


def default_ticker() -> Ticker:
    """Return the ticker that the devices of this process share."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Ticker(default_pump())
        return _default


def _begin_child() -> None:
    global _default, _default_lock
    _default, _default_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_begin_child)
