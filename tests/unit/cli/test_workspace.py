"""What commands that run plans have in common."""

import signal
import threading

import pytest

from daqiri_ophyd.cli import _signals
from daqiri_ophyd.plans import WaitForPlan


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_signal_interrupts_the_completion_of_files(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_signals, "_received", None)
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        _signals.end_on_signals()
        monkeypatch.setattr(_signals, "_terminals", [])
        with _signals.completing_files():
            signal.raise_signal(number)
        ended_by = _signals.ended_by()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert ended_by == (None if number == signal.SIGINT else number)


def test_a_signal_that_another_thread_got_is_handled_during_a_plan():
    ended = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: ended.set())
    try:
        # It does not end a wait of the main thread.
        other = threading.Timer(
            0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        )
        other.start()
        WaitForPlan().block(ended)
        other.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.is_set()
