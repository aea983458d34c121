"""Plans that forget a call: an error in words, and no file outside of the documents."""

import asyncio
import shutil
import threading
import time

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import RunEngineInterrupted
from ophyd.sim import det
from run_documents import until

from daqiri_ophyd.devices import CaptureError
from daqiri_ophyd.devices.reductions import Reduction


@pytest.fixture
def capture(daq):
    return daq.port0.capture


@pytest.fixture
def flown(capture, send):
    """A plan that declares, kicks off and records 50 packets, and then does what is given."""

    def make(*more):
        def plan():
            yield from bps.declare_stream(capture, name="primary", collect=True)
            yield from bps.kickoff(capture, wait=True)
            send(capture.daq, 50)
            yield from until(lambda: capture.progress and capture.progress.packets == 50)
            for stub in more:
                yield from stub()

        return bpp.stage_wrapper(bpp.run_wrapper(plan()), [capture])

    return make


LOST = "capture: 1 files are in no document, such as .*_000000.pcap. Collect until the status of"


@pytest.mark.files_in_no_document("the error comes after the run")
def test_a_fly_scan_that_is_never_completed(run_engine, documents, capture, flown):
    with pytest.raises(CaptureError, match=LOST):
        run_engine(flown())
    assert documents.stop["num_events"] == {"primary": 0}


@pytest.mark.files_in_no_document("the error comes after the run")
def test_a_fly_scan_that_is_only_stopped(run_engine, capture, flown):
    with pytest.raises(CaptureError, match=LOST):
        run_engine(flown(lambda: bps.stop(capture)))


def test_a_reading_in_a_fly_scan(run_engine, capture, flown):
    with pytest.raises(CaptureError, match="a fly scan is running; complete it first"):
        run_engine(flown(lambda: bps.trigger(capture)))


def test_a_reading_after_a_fly_scan_that_was_not_collected(run_engine, capture, flown):
    def complete():
        yield from bps.complete(capture, wait=True)
        yield from bps.trigger(capture)

    with pytest.raises(CaptureError, match=LOST):
        run_engine(flown(complete))


@pytest.mark.files_in_no_document("the operator stops it before the rows are collected")
@pytest.mark.parametrize("ending", ["abort", "stop", "halt"])
def test_a_fly_scan_that_is_ended_hides_nothing(
    run_engine, documents, capture, caplog, ending, flown
):
    def end():
        threading.Timer(0.1, getattr(run_engine, ending)).start()
        yield from bps.sleep(60)

    # After a stop, the run is a success.
    expected = CaptureError if ending == "stop" else RunEngineInterrupted
    with pytest.raises(expected) as error:
        run_engine(flown(end))
    assert documents.stop["exit_status"] == ("success" if ending == "stop" else "abort")
    assert "files are in no document" in (f"{error.value}" if ending == "stop" else caplog.text)


def test_a_motor_that_fails_is_not_hidden(run_engine, documents, capture, flown):
    def fail():
        yield from bps.null()
        raise RuntimeError("the motor is stuck")

    with pytest.raises(RuntimeError, match="the motor is stuck"):
        run_engine(flown(fail))
    assert documents.stop["reason"] == "the motor is stuck"


def test_a_failure_that_no_status_told(run_engine, documents, capture, captures, send, flown):
    """The recording fails, and the plan never asks."""
    capture.roll_packets.put(100)

    def lose_the_directory():
        file = next(captures.rglob("*.pcap*"))
        shutil.rmtree(file.parent)
        send(capture.daq, 100)
        yield from until(lambda: capture.failed)

    with pytest.raises(CaptureError, match="capture failed: .*(No such file|removed|is gone)"):
        run_engine(flown(lose_the_directory))


@pytest.mark.parametrize("plan", ["fly", "fly_during_wrapper", "SupplementalData"])
def test_stock_fly_plans_say_what_to_use(run_engine, documents, capture, plan):
    capture.acquire_time.put(0.1)
    made = {
        "fly": lambda: bp.fly([capture]),
        "fly_during_wrapper": lambda: bpp.fly_during_wrapper(bp.count([det]), [capture]),
        "SupplementalData": lambda: bpp.SupplementalData(flyers=[capture])(bp.count([det])),
    }[plan]
    with pytest.raises(CaptureError, match="no stream was declared.*capture_during_wrapper, or"):
        run_engine(bpp.stage_wrapper(made(), [capture]))
    assert documents.stop["exit_status"] == "fail"


def test_a_second_reading_without_a_trigger(run_engine, documents, capture):
    capture.acquire_time.put(0.05)

    def twice(second):
        yield from bps.trigger_and_read([capture])
        yield from bps.create(second)
        yield from bps.read(capture)
        yield from bps.save()

    for second in ("primary", "copy"):
        with pytest.raises(CaptureError, match="was not triggered since its last reading"):
            run_engine(bpp.stage_wrapper(bpp.run_wrapper(twice(second)), [capture]))
        assert documents.stop["num_events"] == {"primary": 1}


def test_an_abort_does_not_wait_for_a_reduction(run_engine, documents, capture):
    begun, release = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        return float(release.wait(60))

    capture.acquire_time.put(0.05)
    capture.reductions = {"slow": Reduction(slow)}
    gaps = []

    async def beat():
        while not documents.of("stop"):
            last = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - last)

    def end():
        begun.wait(60)
        run_engine.abort()

    def plan():
        task = asyncio.ensure_future(beat())
        yield from bp.count([capture])
        task.cancel()

    watcher = threading.Thread(target=end)
    watcher.start()
    with pytest.raises(RunEngineInterrupted):
        run_engine(plan())
    release.set()
    watcher.join()
    assert documents.stop["exit_status"] == "abort"
    assert gaps and max(gaps) < capture.timeout.get() / 2
    capture.reductions = {}
    run_engine(bp.count([capture]))
    assert documents.stop["exit_status"] == "success"


def test_an_earlier_fly_scan_is_not_in_the_next_run(run_engine, documents, capture, send):
    capture.num_packets.put(50)

    def plan(complete):
        yield from bps.open_run()
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.kickoff(capture, wait=True)
        send(capture.daq, 50)
        yield from until(lambda: capture.uncollected)
        if complete:
            yield from bps.complete(capture, wait=True)
            yield from bps.collect(capture, name="primary")
        yield from bps.close_run()

    with pytest.raises(CaptureError, match=LOST):
        run_engine(bpp.stage_wrapper(bpp.pchain(plan(False), plan(True)), [capture]))
    assert [stop["num_events"] for stop in documents.of("stop")] == [{"primary": 0}] * 2


@pytest.mark.files_in_no_document("a file is not read")
def test_an_unread_file_is_not_in_a_fly_scan(run_engine, documents, capture, send):
    capture.num_packets.put(50)

    def plan():
        yield from bps.trigger(capture, group="file")
        send(capture.daq, 50)
        yield from bps.wait("file")
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.kickoff(capture, wait=True)
        send(capture.daq, 50)
        yield from bps.complete(capture, wait=True)
        yield from bps.collect(capture, name="primary")

    run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [capture]))
    assert [file.name for file in documents.files()] == ["port0_000001.pcap"]


def test_a_look_at_a_capture_before_a_fly_scan(run_engine, documents, capture, send):
    capture.num_packets.put(50)

    def plan():
        yield from bps.read(capture)
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.kickoff(capture, wait=True)
        yield from bps.collect(capture, name="primary")
        send(capture.daq, 50)
        yield from bps.complete(capture, wait=True)
        yield from bps.collect(capture, name="primary")

    run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [capture]))
    assert len(documents.files()) == 1


def test_a_motor_that_fails_in_a_run_without_a_wrapper(run_engine, documents, capture, send):
    def plan():
        yield from bps.open_run()
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.kickoff(capture, wait=True)
        send(capture.daq, 50)
        yield from until(lambda: capture.progress and capture.progress.packets == 50)
        raise RuntimeError("the motor is stuck")

    with pytest.raises(RuntimeError, match="the motor is stuck"):
        run_engine(bpp.stage_wrapper(plan(), [capture]))
    assert documents.stop["reason"] == "the motor is stuck"


@pytest.mark.files_in_no_document("a reading is interrupted and taken again")
def test_a_pause_during_a_reduction(run_engine, documents, capture):
    """The reading is taken again; its first file has a row without the reduction."""
    begun, release = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        return float(release.wait(60))

    capture.acquire_time.put(0.05)
    capture.reductions = {"slow": Reduction(slow)}
    watcher = threading.Thread(target=lambda: (begun.wait(60), run_engine.request_pause()))
    watcher.start()
    with pytest.raises(RunEngineInterrupted):
        run_engine(bp.count([capture], 2))
    watcher.join()
    threading.Timer(0.2, release.set).start()
    run_engine.resume()
    assert documents.stop["exit_status"] == "success"
    assert [row["daq_port0_capture_slow"] for row in documents.rows()] == [1.0, 1.0]
    assert len(documents.files()) == len(set(documents.files())) == 2


def test_a_path_named_after_one_of_several_runs(run_engine, documents, capture):
    capture.acquire_time.put(0.05)

    def plan():
        for run in "ab":
            yield from bpp.set_run_key_wrapper(bps.open_run(), run)
        for run in "ab":
            yield from bpp.set_run_key_wrapper(bps.trigger_and_read([capture]), run)
        for run in "ab":
            yield from bpp.set_run_key_wrapper(bps.close_run(), run)

    run_engine(bpp.stage_wrapper(plan(), [capture]))
    assert [stop["num_events"] for stop in documents.of("stop")] == [{"primary": 1}] * 2
    capture.path.put("{scan_id}")
    with pytest.raises(CaptureError, match="capture: 2 runs are open, and its path needs one"):
        run_engine(bpp.stage_wrapper(plan(), [capture]))
