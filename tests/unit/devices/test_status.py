import threading
from types import SimpleNamespace

import ophyd.status
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from daqiri_ophyd.devices import EngineStatus
from daqiri_ophyd.devices.parts import _status


class Instrument:
    name = "port0_capture"

    def __init__(self):
        self.stopped = 0

    def stop(self, *, success=False):
        self.stopped += 1


@pytest.fixture
def instrument():
    return Instrument()


def test_the_text_tells_the_story(instrument):
    status = EngineStatus(instrument, action="capturing", timeout=10)
    assert str(status) == "port0_capture: capturing"
    status.report(120, 1000, "packets")
    assert str(status) == repr(status) == "port0_capture: capturing, 120 of 1000 packets"
    status.finish()
    assert str(status) == "port0_capture: capturing done: 120 of 1000 packets"
    assert status.success


def test_spans_have_the_device_the_action_and_the_progress(instrument, monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(ophyd.status, "tracer", provider.get_tracer("test"))
    done = EngineStatus(instrument, action="capturing", timeout=10)
    done.report(120, 1000, "packets")
    done.finish()
    done.wait(10)
    failed = EngineStatus(instrument, action="sending", timeout=10)
    failed.fail(OSError("no space left on device"))
    failed.exception(10)
    first, last = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time)
    assert (first.name, last.name) == ("port0_capture capturing", "port0_capture sending")
    assert first.attributes["daqiri.progress"] == "120 of 1000 packets"
    assert first.status.is_unset
    assert (last.status.status_code, last.status.description) == (
        StatusCode.ERROR,
        "no space left on device",
    )
    assert [event.attributes["exception.type"] for event in last.events] == ["OSError"]


def test_a_failure_says_why_already_when_callbacks_run(instrument):
    status = EngineStatus(instrument, action="capturing", timeout=10)
    seen = []
    status.add_callback(lambda status: seen.append(str(status)))
    status.fail(OSError("no space left on device"))

    assert seen == ["port0_capture: capturing failed: no space left on device"]
    assert instrument.stopped == 1
    with pytest.raises(OSError, match="no space"):
        status.wait(1)


def test_only_the_first_end_counts(instrument):
    status = EngineStatus(instrument, action="capturing", timeout=10)
    status.finish()
    status.fail(RuntimeError("too late"))
    status.finish()
    assert status.success


@pytest.fixture
def clock(monkeypatch):
    """The clock of the statuses, which stands still until a test moves ``now``."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(_status, "time", clock)
    return clock


def test_silence_fails_it(instrument, clock):
    status = EngineStatus(instrument, action="capturing", timeout=0.05)
    assert status.timeout == 0.05
    status.report(3, 10, "packets")
    clock.now += 0.1
    status.report(3, 10, "packets")
    status.check()
    assert not status.success
    assert str(status.exception()) == "no progress for 0.05 s: 3 of 10 packets"


def test_progress_and_holding_put_the_timeout_off(instrument, clock):
    status = EngineStatus(instrument, action="capturing", timeout=0.05)
    clock.now += 0.1
    status.report(1, 10, "packets")
    status.check()
    status.pause_timeout()
    clock.now += 0.1
    status.check()
    status.resume_timeout()
    status.check()
    assert not status.done


def test_watchers_are_told_what_progress_bars_understand(instrument):
    status = EngineStatus(instrument, action="capturing", timeout=10)
    news, told = [], threading.Semaphore(0)

    def watch(**progress):
        news.append(progress)
        told.release()

    status.watch(watch)
    status.report(25, 100, "packets")
    assert told.acquire(timeout=60)
    status.report(40, None, "packets")
    assert told.acquire(timeout=60)
    status.finish()
    assert told.acquire(timeout=60)

    assert news[0]["name"] == "port0_capture"
    assert (news[0]["current"], news[0]["target"], news[0]["fraction"]) == (25, 100, 0.75)
    assert news[0]["time_remaining"] == pytest.approx(3 * news[0]["time_elapsed"])
    assert "target" not in news[1]
    assert news[2] == {"name": "port0_capture", "fraction": 0.0}
