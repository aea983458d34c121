import logging
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from daqiri_ophyd.engine import EventPump, default_pump


@pytest.fixture
def pump() -> Iterator[EventPump]:
    pump = EventPump("test-pump")
    yield pump
    pump.close()


@pytest.fixture
def eventfd() -> Iterator[int]:
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


def test_callbacks_run_on_the_pumps_thread(pump: EventPump, eventfd: int) -> None:
    seen: list[str] = []
    done = threading.Event()

    def call() -> None:
        seen.append(threading.current_thread().name)
        done.set()

    pump.add(eventfd, call)
    for count in (1, 2, 3):
        done.clear()
        os.eventfd_write(eventfd, 1)
        assert done.wait(60)
        assert seen == ["test-pump"] * count


def test_a_failing_callback_is_logged_and_the_pump_goes_on(
    pump: EventPump, eventfd: int, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    done = threading.Event()

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            done.set()
            raise RuntimeError("first call fails")
        done.set()

    pump.add(eventfd, call)
    with caplog.at_level(logging.ERROR):
        os.eventfd_write(eventfd, 1)
        assert done.wait(60)
        done.clear()
        os.eventfd_write(eventfd, 1)
        assert done.wait(60)
    assert "first call fails" in caplog.text


def test_removed_descriptors_call_nothing(pump: EventPump, eventfd: int) -> None:
    calls: list[int] = []
    pump.add(eventfd, lambda: calls.append(1))
    pump.remove(eventfd)
    pump.remove(eventfd)
    os.eventfd_write(eventfd, 1)
    marker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    done = threading.Event()
    pump.add(marker, done.set)
    os.eventfd_write(marker, 1)
    assert done.wait(60)
    pump.remove(marker)
    os.close(marker)
    assert not calls


def test_a_callback_may_remove_its_descriptor_and_add_others(pump: EventPump, eventfd: int) -> None:
    other = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    done = threading.Event()

    def first() -> None:
        pump.remove(eventfd)
        pump.add(other, done.set)
        os.eventfd_write(other, 1)

    pump.add(eventfd, first)
    os.eventfd_write(eventfd, 1)
    assert done.wait(60)
    pump.remove(other)
    os.close(other)


def test_a_descriptor_that_was_closed_first_can_be_removed(pump: EventPump, eventfd: int) -> None:
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    pump.add(fd, lambda: None)
    os.close(fd)
    pump.remove(fd)
    done = threading.Event()
    pump.add(eventfd, done.set)
    os.eventfd_write(eventfd, 1)
    assert done.wait(60)


def test_a_descriptor_has_one_callback(pump: EventPump, eventfd: int) -> None:
    pump.add(eventfd, lambda: None)
    with pytest.raises(ValueError, match="has a callback already"):
        pump.add(eventfd, lambda: None)
    with pytest.raises(ValueError, match="negative"):
        pump.add(-1, lambda: None)


def test_close_ends_the_thread_from_anywhere(eventfd: int) -> None:
    pump = EventPump("closing-pump")
    pump.add(eventfd, pump.close)
    os.eventfd_write(eventfd, 1)
    (thread,) = [t for t in threading.enumerate() if t.name == "closing-pump"] or [None]
    if thread is not None:
        thread.join(60)
    assert pump.closed
    pump.close()
    pump.remove(eventfd)
    with pytest.raises(RuntimeError, match="closed"):
        pump.add(eventfd, lambda: None)
    assert not any(t.name == "closing-pump" for t in threading.enumerate())


def test_a_thread_that_wakes_while_its_pump_is_closed_leaves_the_descriptors_open(
    eventfd: int,
) -> None:
    pump = EventPump("closing-pump")
    (thread,) = [t for t in threading.enumerate() if t.name == "closing-pump"]

    class Callbacks(dict[int, Callable[[], object]]):
        def clear(self) -> None:  # called while the pump is closed
            os.eventfd_write(eventfd, 1)
            thread.join(0.2)

    pump.add(eventfd, lambda: None)
    pump._callbacks = Callbacks(pump._callbacks)
    pump.close()
    assert not thread.is_alive()


def test_the_default_pump_is_shared() -> None:
    assert default_pump() is default_pump()
    assert not default_pump().closed
