"""Prepared captures that fail, are paused or are ended, and their results."""

from contextlib import nullcontext

import pytest
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, RunEngineInterrupted
from run_documents import until

from daqiri_ophyd.devices import CaptureError

from .conftest import collect, fly, kick_off, packets, prepare, prepare_captures, settings
from .pauses import paused_when

NAME = "daq_port0_capture"


def test_a_file_takes_too_long_although_packets_come(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, {"count": 1000, "size": 60, "rate": 100})
        yield from prepare_captures(capture, files=2, size=400, timeout=0.5)
        yield from kick_off(capture)
        yield from bps.trigger(tx, group="sent")
        yield from collect(capture)

    with pytest.raises(FailedStatus, match=r"no complete file for 0.5 s: \d+ of 800 packets, 0 of"):
        run_engine(plan())
    assert documents.stop["exit_status"] == "fail"
    assert capture.progress is None


def test_a_file_that_begins_within_the_dead_time(daq, run_engine, send):
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=2, deadtime=30.0)
        yield from fly([capture], lambda: send(daq, 20))

    with pytest.raises(FailedStatus, match=r"file 2 begins 0\.\d+ s after.*dead time is 30 s: it"):
        run_engine(plan())


def test_a_source_that_pauses_longer_than_the_dead_time(daq, run_engine, documents, send):
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=2, deadtime=0.1)
        yield from kick_off(capture)
        send(daq, 10)
        yield from bps.sleep(0.2)
        send(daq, 10)
        yield from collect(capture)

    run_engine(plan())
    assert [packets([file]) for file in documents.files()] == [10, 10]


def test_an_abort_between_kickoff_and_complete(daq, run_engine, documents, send):
    capture = daq.port0.capture
    before = settings(capture)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=2)
        yield from kick_off(capture)
        send(daq, 15)
        yield from until(lambda: capture.progress.packets == 15 and len(capture.files) == 1)
        yield from bps.collect(capture, name="primary")
        raise RuntimeError("the beam is off")

    with pytest.raises(RuntimeError, match="the beam is off"):
        run_engine(plan())
    assert [packets([file]) for file in documents.files()] == [10]
    assert packets(capture.files) == 15
    assert settings(capture) == before
    assert capture.progress is None
    assert daq.rx_queue("port0", "frames").counters().held == 0


def test_a_pause_of_a_plan_of_bluesky_stubs(daq, run_engine, documents, send):
    capture = daq.port0.capture

    def flight():
        yield from bps.kickoff(capture, wait=True)
        send(daq, 15)
        yield from until(lambda: capture.progress is None or capture.progress.packets == 15)
        yield from bps.pause()
        assert capture.is_recording
        send(daq, 15)
        yield from collect(capture)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=3)
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.checkpoint()
        yield from bpp.rewindable_wrapper(flight(), False)

    with pytest.raises(RunEngineInterrupted):
        run_engine(plan())
    assert not capture.is_recording and capture.progress.packets == 15
    run_engine.resume()
    assert [packets([file]) for file in documents.files()] == [10, 10, 10]
    assert documents.stop["num_events"] == {"primary": 3}


@pytest.mark.files_in_no_document("the error comes after the run")
def test_a_pause_while_bluesky_collects_is_an_error(daq, run_engine, documents, send):
    """Bluesky's stub then ends before the capture is complete."""
    capture = daq.port0.capture
    before = settings(capture)

    def flight():
        yield from bps.kickoff(capture, wait=True)
        send(daq, 15)
        yield from collect(capture)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=3)
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.checkpoint()
        yield from bpp.rewindable_wrapper(flight(), False)

    with paused_when(run_engine, documents.files):
        run_engine(plan())
    with pytest.raises(CaptureError, match="1 files are in no document.*capture_during"):
        run_engine.resume()
    assert packets(capture.files) == 15
    assert settings(capture) == before
    assert daq.rx_queue("port0", "frames").counters().held == 0


@pytest.mark.files_in_no_document("the operator stops it before the rows are collected")
@pytest.mark.parametrize("end", ["abort", "stop", "halt"])
def test_the_operator_ends_it_between_kickoff_and_complete(daq, run_engine, send, end):
    capture = daq.port0.capture
    before = settings(capture)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=3)
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.checkpoint()
        yield from bps.kickoff(capture, wait=True)
        send(daq, 15)
        yield from until(lambda: capture.progress.packets == 15)
        yield from bps.pause()

    with pytest.raises(RunEngineInterrupted):
        run_engine(plan())
    # After a stop, the run is a success.
    error = pytest.raises(CaptureError, match="are in no document")
    with error if end == "stop" else nullcontext():
        getattr(run_engine, end)()
    if end == "halt":
        capture.unstage()  # a plan that is halted does not clean up
    assert packets(capture.files) == 15
    assert capture.progress is None and not capture.prepared
    assert settings(capture) == before
    assert daq.rx_queue("port0", "frames").counters().held == 0
