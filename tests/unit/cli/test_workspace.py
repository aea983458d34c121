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


@pytest.mark.parametrize(
    ("first", "ended_by"), [(signal.SIGINT, None), (signal.SIGTERM, signal.SIGTERM)]
)
def test_the_first_signal_interrupts_and_decides_how_a_command_ends(
    first: signal.Signals,
    ended_by: signal.Signals | None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(_signals, "_received", None)
    monkeypatch.setattr(_signals, "_is_interrupted", False)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.signal(each, signal.SIG_DFL) for each in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cleaned: list[str] = []
    try:
        _signals.end_on_signals()
        monkeypatch.setattr(_signals, "_terminals", [])
        with pytest.raises(KeyboardInterrupt), _signals.interrupted_once("it is clean"):
            try:
                signal.raise_signal(first)
            finally:
                for each in (*numbers, *numbers):
                    signal.raise_signal(each)
                cleaned.append("all")
        # Python gives those with a handler the one of the system when it ends.
        assert {signal.getsignal(each) for each in numbers} == {signal.SIG_IGN}
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert cleaned == ["all"]
    assert _signals.ended_by() == ended_by
    assert capfd.readouterr().err == "\nends as soon as it is clean\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_cleaning_that_never_ends_can_be_interrupted(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_signals, "_received", None)
    monkeypatch.setattr(_signals, "_is_interrupted", False)
    for limit in ("_TOGETHER_S", "_LONGEST_HELD_S"):
        monkeypatch.setattr(_signals, limit, 0.0)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.signal(each, signal.SIG_DFL) for each in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _signals.end_on_signals()
        monkeypatch.setattr(_signals, "_terminals", [])
        with pytest.raises(KeyboardInterrupt), _signals.interrupted_once("it is clean"):
            try:
                signal.raise_signal(number)
            finally:
                for each in numbers:
                    with pytest.raises(KeyboardInterrupt):
                        signal.raise_signal(each)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert _signals.ended_by() == (None if number == signal.SIGINT else number)


def test_a_block_without_signals_leaves_their_handlers(monkeypatch: pytest.MonkeyPatch):
    before = signal.getsignal(signal.SIGINT)
    with _signals.interrupted_once("it is clean"):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


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
