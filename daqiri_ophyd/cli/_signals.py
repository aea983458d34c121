"""SIGTERM and SIGHUP end a command as Ctrl-C does."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

__all__ = ["HeldInterrupts", "completing_files", "end_on_signals", "ended_by", "interrupted_once"]

# A second signal within this time is part of the first, s: shells may send two.
_TOGETHER_S = 1.0
# Longest time that a signal is held, s; systemd kills a service that has not ended after 90 s.
_LONGEST_HELD_S = 60.0

_received: signal.Signals | None = None
_received_at = 0.0
_held: "HeldInterrupts | None" = None
_is_completing = False
_is_interrupted = False
_terminals: list[int] = []


class HeldInterrupts:
    """Notes the first Ctrl-C, SIGTERM or SIGHUP in a ``with`` block, for a command to act on.

    A later one, or 60 s, raises `KeyboardInterrupt`.

    Parameters
    ----------
    stop : callable, optional
        Stops what the first one ends, in its handler. Default: the first one aborts a run.
    """

    def __init__(self, stop: Callable[[], None] | None) -> None:
        self.stop = stop
        self.noted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        global _held
        _held = self
        for number, handler in ((signal.SIGINT, self._note), (signal.SIGALRM, self._give_up)):
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Handle signals as before the block. Idempotent."""
        global _held
        _held = None
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True
        if self.stop is not None:
            self.stop()
        signal.setitimer(signal.ITIMER_REAL, _LONGEST_HELD_S)
        with suppress(OSError):
            os.write(2, b"\nends as soon as the run is stored; another signal ends it at once\n")

    def _give_up(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt


@contextmanager
def completing_files() -> Iterator[None]:
    """Let no signal interrupt a block that completes files; a first SIGTERM or SIGHUP is noted."""
    global _is_completing
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    _is_completing = True
    try:
        yield
    finally:
        _is_completing = False
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted_once(until: str) -> Iterator[None]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP interrupt a block, and none that come after it.

    The first one decides how the command ends, which it does after the block: later ones are
    ignored there, too. In the block, one after 60 s interrupts again: something may wait without
    end.

    Parameters
    ----------
    until : str
        What is done before the command ends, for those who press Ctrl-C again.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        # A shell's background job ignores it. Of the other signals, `_end` handles the first only.
        yield
        return
    first: float | None = None
    is_told = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _is_interrupted
        nonlocal first, is_told
        now = time.monotonic()
        if first is not None and now - first < _LONGEST_HELD_S:
            if not is_told:
                is_told = True
                # The terminal may be gone.
                with suppress(OSError):
                    os.write(2, f"\nends as soon as {until}\n".encode())
            return
        first, _is_interrupted = now, True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if first is None:
            signal.signal(signal.SIGINT, before)
        else:
            # When Python ends, signals with handlers get those of the system, which kill.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)


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
    global _received, _received_at
    now = time.monotonic()
    if _received is not None:
        if now - _received_at < _TOGETHER_S:
            return
        if _held is None and not _is_interrupted:
            return  # A second signal would interrupt the completion of the files.
    if not _is_interrupted:
        _received, _received_at = signal.Signals(number), now
    if number == signal.SIGHUP:
        _leave_terminal()
    if _is_completing:
        return
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
