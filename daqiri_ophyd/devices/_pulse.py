"""A beat on the pump's thread, for what has to be looked at again and again."""

import logging
import os
import threading
from collections.abc import Callable

from daqiri_ophyd.engine import EventPump, default_pump

__all__ = ["Pulse", "default_pulse"]

_log = logging.getLogger(__name__)


class Pulse:
    """Calls functions periodically, on the thread of the event pump.

    Signals and status objects are touched by that thread alone, so timeouts, progress and
    monitored counters are looked after there. Nothing runs while there is nothing to call.

    Parameters
    ----------
    pump : EventPump
        Whose thread to use.
    period : float
        Time between calls, s.
    """

    def __init__(self, pump: EventPump, period: float = 0.1) -> None:
        self._pump = pump
        self._period = period
        self._calls: dict[Callable[[], object], None] = {}
        self._lock = threading.Lock()
        self._end: threading.Event | None = None

    def add(self, call: Callable[[], object]) -> None:
        """Begin to call ``call``; adding it again changes nothing."""
        with self._lock:
            self._calls[call] = None
            if self._end is None:
                self._end = threading.Event()
                beat = threading.Thread(
                    target=self._beat, args=(self._end,), name="daqiri-pulse", daemon=True
                )
                beat.start()

    def remove(self, call: Callable[[], object]) -> None:
        """Call ``call`` no more, except once if it is about to be called."""
        with self._lock:
            self._calls.pop(call, None)
            if not self._calls and self._end is not None:
                self._end.set()
                self._end = None

    def _beat(self, end: threading.Event) -> None:
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._pump.add(fd, self._call_all)
        try:
            while not end.wait(self._period):
                os.eventfd_write(fd, 1)
        finally:
            self._pump.remove(fd)
            os.close(fd)

    def _call_all(self) -> None:
        for call in list(self._calls):
            try:
                call()
            except Exception:
                _log.exception("Periodic call of %r failed; it is called no more.", call)
                self.remove(call)


_default: Pulse | None = None
_default_lock = threading.Lock()


def default_pulse() -> Pulse:
    """Return the pulse that the devices of this process share."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Pulse(default_pump())
        return _default
