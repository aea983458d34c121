"""Progress watchers that raise or hang."""

import os
import threading
from types import SimpleNamespace

import pytest

from daqiri_ophyd.devices import EngineStatus
from daqiri_ophyd.devices.parts._watchers import Watcher, Watchers


@pytest.fixture
def status():
    instrument = SimpleNamespace(name="port0_capture", stop=lambda **_: None)
    return EngineStatus(instrument, action="capturing", timeout=10)


class Seen:
    """A watcher that keeps its progress, and can be waited for."""

    def __init__(self):
        self.values = []
        self._changed = threading.Condition()

    def __call__(self, *, current=None, **_):
        with self._changed:
            self.values.append(current)
            self._changed.notify_all()

    def wait(self, value):
        with self._changed:
            assert self._changed.wait_for(lambda: value in self.values, 60)


class Hanging:
    """A watcher that hangs until it is released."""

    def __init__(self):
        self.began, self.released = threading.Event(), threading.Event()
        self.values = []

    def __call__(self, *, current=None, **_):
        self.values.append(current)
        self.began.set()
        assert self.released.wait(60)


def test_a_watcher_that_raises_is_logged_once_and_dropped(status, caplog):
    seen, calls = Seen(), []

    def fail(*, current=None, **_):
        calls.append(current)
        raise OSError(5, "Input/output error")

    status.watch(fail)
    status.watch(seen)
    for current in range(1, 4):
        status.report(current, 3, "packets")
        seen.wait(current)
    status.finish()
    assert status.success
    assert calls == [1]
    (record,) = caplog.records
    assert record.getMessage() == (
        "port0_capture: a progress watcher failed; it is not called again."
    )


def test_a_watcher_that_hangs_delays_neither_the_action_nor_other_watchers(status):
    hanging, seen = Hanging(), Seen()
    status.watch(hanging)
    status.watch(seen)
    status.report(1, 100, "packets")
    assert hanging.began.wait(60)
    current = 1
    while len(seen.values) < 3:  # another thread takes over
        current += 1
        status.report(current, 1_000_000_000, "packets")
    status.finish()
    assert status.success
    assert hanging.values == [1]
    hanging.released.set()


def test_a_watcher_gets_the_latest_progress_only():
    watchers, hanging = Watchers(), Hanging()
    watcher = Watcher("port0_capture", hanging)
    watchers.call(watcher, {"current": 0})
    assert hanging.began.wait(60)
    for current in range(1, 1000):
        watchers.call(watcher, {"current": current})
    assert len(watchers._waiting) == 1
    hanging.released.set()
    while len(hanging.values) < 2:
        pass
    assert hanging.values == [0, 999]


def test_many_hanging_watchers_cost_few_threads_and_little_memory(monkeypatch):
    from daqiri_ophyd.devices.parts import _watchers

    monkeypatch.setattr(_watchers, "_HUNG_S", 0.0)
    watchers, hanging = Watchers(), [Hanging() for _ in range(200)]
    before = threading.active_count()
    for one in hanging:
        watchers.call(Watcher("port0_capture", one), {"current": 1})
    assert threading.active_count() - before <= _watchers._MOST_THREADS
    assert len(watchers._waiting) <= _watchers._MOST_WAITING
    for one in hanging:
        one.released.set()


def test_a_forked_child_has_its_own_thread(status):
    hanging = Hanging()
    status.watch(hanging)
    status.report(1, 3, "packets")
    assert hanging.began.wait(60)
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        seen = Seen()
        child = EngineStatus(status.device, action="capturing", timeout=10)
        child.watch(seen)
        child.report(2, 3, "packets")
        seen.wait(2)
        os.write(writer, b"seen")
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 4) == b"seen"
    os.close(reader)
    assert os.waitpid(pid, 0)[1] == 0
    hanging.released.set()
