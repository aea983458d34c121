"""Calls Python on events of the engine, on one thread.

Native threads never wait for the interpreter. They write to eventfds; the pump's thread waits for
all of them and calls the registered callbacks.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
from collections.abc import Callable

__all__ = ["EventPump", "default_pump"]

_log = logging.getLogger(__name__)


class EventPump:
    """Calls Python when eventfds are written.

    All callbacks run on the pump's thread, one after the other, so they must be short. An exception
    in a callback is logged, and the pump continues.

    Parameters
    ----------
    name : str
        Name of the thread.
    """

    def __init__(self, name: str = "daqiri-events") -> None:
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, fd: int, callback: Callable[[], object]) -> None:
        """Call ``callback()`` whenever an eventfd is written.

        Parameters
        ----------
        fd : int
            A non-blocking eventfd, such as `Recorder.fileno`; the pump reads it. Writes in quick
            succession may cause one call. Remove it before it is closed.
        callback : callable
            Called without arguments on the pump's thread.

        Raises
        ------
        ValueError
            If `fd` was added already, or is negative.
        RuntimeError
            If the pump is closed.
        OSError
            If `fd` cannot be watched.
        """
        with self._lock:
            if self.closed:
                raise RuntimeError("the event pump is closed")
            if fd in self._callbacks:
                raise ValueError(f"descriptor {fd} has a callback already; remove it first")
            self._epoll.register(fd, select.EPOLLIN)
            self._callbacks[fd] = callback

    def remove(self, fd: int) -> None:
        """Stop calling the callback of a descriptor; unknown ones are ignored.

        A callback that has already begun may still be running.
        """
        with self._lock:
            if self._callbacks.pop(fd, None) is None or self.closed:
                return
            try:
                self._epoll.unregister(fd)
            except OSError:
                _log.debug("Descriptor %d was closed before it was removed.", fd)

    @property
    def is_current(self) -> bool:
        """Whether its thread calls."""
        return threading.current_thread() is self._thread

    @property
    def closed(self) -> bool:
        """Whether it was closed, or was created in the parent process before a fork."""
        return self._closed or self._process != os.getpid()

    def close(self) -> None:
        """Stop the thread after the current callback. Idempotent."""
        with self._lock:
            if self.closed:
                return
            self._closed = True
            self._callbacks.clear()
            os.eventfd_write(self._wake, 1)
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            for fd, _ in self._epoll.poll():
                callback = self._callbacks.get(fd)
                if callback is None or self._closed:
                    continue
                try:
                    os.eventfd_read(fd)
                except BlockingIOError:
                    continue
                except OSError:
                    if self._callbacks.get(fd) is callback:  # else another thread has removed it
                        _log.exception("Descriptor %d cannot be read; it is no longer watched.", fd)
                        self.remove(fd)
                    continue
                self._call(callback)
        with self._lock:  # else `close` may not have written yet
            self._epoll.close()
            os.close(self._wake)

    @staticmethod
    def _call(callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:
            _log.exception("Event callback %r failed.", callback)


_default: EventPump | None = None
_default_lock = threading.Lock()


def default_pump() -> EventPump:
    """Return the shared pump of this process; it is closed when the interpreter exits."""
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = EventPump()
            atexit.register(_default.close)
        return _default


def _renew_lock() -> None:
    global _default_lock
    _default_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
