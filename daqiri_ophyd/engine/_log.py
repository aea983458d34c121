"""Forwards log lines of the engine to Python's logging."""

from __future__ import annotations

import atexit
import logging
import os
import threading

from daqiri_ophyd import _native

from .events import default_pump

__all__ = ["forward_log"]

_log = logging.getLogger("daqiri_ophyd.engine")
_TRACE = 5
_LEVELS = {
    "trace": _TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_lock = threading.Lock()
_forwarding = 0


def forward_log() -> None:
    """Forward lines of the engine's log to the logger ``daqiri_ophyd.engine`` from now on.

    Native threads put lines into a bounded ring and never wait; the event pump's thread reads them
    from there. ``log_level`` of the configuration selects the levels; with several engines in a
    process, the engine opened last selects them. Records have the attributes ``interface`` and
    ``queue`` with the names that the line concerns; empty: none.
    """
    global _forwarding
    with _lock:
        # A forked child has neither the thread nor the ring.
        if _forwarding == os.getpid():
            return
        default_pump().add(_native.attach_log(), _deliver)
        atexit.register(_finish, os.getpid())
        _forwarding = os.getpid()


def _deliver() -> None:
    lines, lost = _native.take_log_records()
    for level, time_ns, text, interface, queue in lines:
        if _log.isEnabledFor(_LEVELS[level]):
            origin = {"interface": interface, "queue": queue}
            record = _log.makeRecord(
                _log.name, _LEVELS[level], "(engine)", 0, text, (), None, extra=origin
            )
            record.created = time_ns / 1e9
            record.msecs = time_ns // 1_000_000 % 1000
            _log.handle(record)
    if lost:
        _log.warning(
            "%d lines of the engine's log were lost: they arrived faster than they were read.",
            lost,
            extra={"interface": "", "queue": ""},
        )


def _finish(pid: int) -> None:
    if pid == os.getpid():
        _deliver()
        _native.detach_log()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
