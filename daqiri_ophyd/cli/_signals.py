"""SIGTERM and SIGHUP end a command as Ctrl-C does."""

import os
import signal
from types import FrameType
from typing import Any, Self

__all__ = ["HeldInterrupts", "end_on_signals", "ended_by"]

_received: signal.Signals | None = None
_terminals: list[int] = []


class HeldInterrupts:
    """Notes the first Ctrl-C, SIGTERM or SIGHUP in a ``with`` block; the second Ctrl-C raises."""

    def __init__(self) -> None:
        self.noted = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Handle signals as before the block. Idempotent."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True


def end_on_signals() -> None:
    """Handle SIGTERM and SIGHUP like SIGINT; an ignored SIGHUP (nohup) stays ignored."""
    _terminals[:] = [fd for fd in (0, 1, 2) if os.isatty(fd)]
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def ended_by() -> signal.Signals | None:
    """Return which of these signals ended the command; None: neither."""
    return _received


def _end(number: int, frame: FrameType | None) -> None:
    global _received
    if _received is not None:
        return  # A second signal would interrupt the completion of the files.
    _received = signal.Signals(number)
    if number == signal.SIGHUP:
        _leave_terminal()
    # A plan has its own handler for Ctrl-C; a shell's background job may ignore it.
    interrupt = signal.getsignal(signal.SIGINT)
    if not callable(interrupt):
        raise KeyboardInterrupt
    interrupt(signal.SIGINT, frame)


def _leave_terminal() -> None:
    """Discard further output: writing to a closed terminal is an error."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in _terminals:
        os.dup2(nowhere, fd)
    os.close(nowhere)
