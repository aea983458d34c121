"""A thread that creates rows in order, if that takes time."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["RowWorker"]

_log = logging.getLogger(__name__)

_Call = Callable[[], Any]
_Failed = Callable[[Exception], Any]


class RowWorker:
    """Calls functions one after the other on a separate thread.

    The thread is a daemon: a function that never returns does not keep the program from ending.

    Parameters
    ----------
    name : str
        Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[_Call, _Failed] | None] = queue.SimpleQueue()
        self._begun: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: _Call, failed: _Failed) -> None:
        """Call a function after those submitted earlier.

        Parameters
        ----------
        call : callable
            The function.
        failed : callable
            Called with an exception that it raises.
        """
        self._calls.put((call, failed))

    def wait(self, seconds: float) -> bool:
        """Wait until all calls submitted so far have returned; return False on timeout.

        Called from such a call, it returns at once.
        """
        if threading.current_thread() is self._thread:
            return True
        done = threading.Event()
        self._calls.put((done.set, _log.error))
        return done.wait(seconds)

    def busy(self) -> float:
        """Return how long the current call has been running, s; 0 if there is none."""
        begun = self._begun
        return 0.0 if begun is None else time.monotonic() - begun

    def close(self) -> None:
        """End the thread after the calls submitted so far."""
        self._calls.put(None)

    def _run(self) -> None:
        while (entry := self._calls.get()) is not None:
            call, failed = entry
            self._begun = time.monotonic()
            try:
                call()
            except Exception as error:
                _log.exception("A row could not be created.")
                failed(error)
            self._begun = None
