"""The system clock."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .._record import read_record
from .._root import FactError, Root

__all__ = ["SystemClock", "read_system_clock"]

RECORDED = "/recorded/clock.json"
_UNSYNCHRONIZED = 0x40  # STA_UNSYNC


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The clock that receive timestamps are taken from.

    Parameters
    ----------
    synchronized : bool
        Whether it is synchronized.
    max_error : int
        Maximum error, in microseconds.
    """

    synchronized: bool
    max_error: int


class _Timex(ctypes.Structure):
    """The first fields of struct timex (adjtimex(2)); the rest is padding."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_char * 256),
    ]


def read_system_clock(root: Root) -> SystemClock:
    """
    Return the state of the clock; that of a recorded host is in its ``recorded/clock.json``.

    Raises
    ------
    FactError
        If the kernel does not report it, or the recording is malformed.
    """
    if not root.live:
        recorded = read_record(root, RECORDED, SystemClock)
        if recorded is None:
            raise FactError("the clock's state was not recorded")
        return recorded
    state = _Timex()
    # With modes = 0 it only reads.
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
        raise FactError(f"adjtimex: errno {ctypes.get_errno()}")
    return SystemClock(not state.status & _UNSYNCHRONIZED, state.maxerror)
