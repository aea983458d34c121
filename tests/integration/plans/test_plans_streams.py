"""Several streams in a run, several runs in a stage, and files that are in no document."""

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from ophyd.sim import det
from ophyd.utils.errors import RedundantStaging

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureError

from .conftest import kick_off, packets, prepare

# --- Streams and runs


def test_a_dark_stream_and_a_primary_one(daq, run_engine, documents, send):
    capture = daq.port0.capture
    capture.num_packets.put(10)

    def reading(name):
        yield from bps.trigger(capture, group="capture")
        send(daq, 10)
        yield from bps.wait("capture")
        yield from bps.create(name)
        yield from bps.read(capture)
        yield from bps.save()

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        for name in ("dark", "primary", "primary", "dark"):
            yield from reading(name)

    run_engine(plan())
    files = {name: documents.files(name) for name in ("dark", "primary")}
    assert [file.name[-11:] for file in files["dark"]] == ["000000.pcap", "000003.pcap"]
    assert [file.name[-11:] for file in files["primary"]] == ["000001.pcap", "000002.pcap"]
    assert packets(documents.files()) == 40


def test_several_runs_in_a_stage(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(100)

    @bpp.stage_decorator([capture, tx])
    def plan():
        for _ in range(3):
            yield from prepare(tx, {"count": 100, "size": 60})

            @bpp.run_decorator()
            def run():
                yield from plans.capture_during(capture, bps.null(), tx=tx)

            yield from run()

    run_engine(plan())
    runs = [doc["uid"] for doc in documents.of("start")]
    assert [doc["run_start"] for doc in documents.of("stream_resource")] == runs
    assert [doc["exit_status"] for doc in documents.of("stop")] == ["success"] * 3
    files = documents.files()
    assert [packets([file]) for file in files] == [100, 100, 100] and len(set(files)) == 3


# --- A file in no document


@pytest.mark.files_in_no_document("a file is not read")
def test_a_reading_that_is_not_read_is_logged(daq, run_engine, send, caplog):
    capture = daq.port0.capture
    capture.num_packets.put(10)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from bps.trigger(capture, group="capture")
        send(daq, 10)
        yield from bps.wait("capture")

    run_engine(plan())
    assert "1 files are in no document, such as" in caplog.text


@pytest.mark.files_in_no_document("the error comes after the run")
def test_a_fly_plan_that_forgets_to_collect_is_an_error(daq, run_engine, send):
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from kick_off(capture)
        send(daq, 10)
        yield from bps.complete(capture, group="capture")

    with pytest.raises(CaptureError, match="1 files are in no document, such as .*_000000.pcap"):
        run_engine(plan())
    run_engine(bp.count([det]))  # the device is unstaged all the same
    assert capture.progress is None


def test_another_failure_is_not_hidden_by_a_file_in_no_document(daq, run_engine, documents, send):
    capture = daq.port0.capture
    capture.num_packets.put(10)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from bps.trigger(capture, group="capture")
        send(daq, 10)
        yield from bps.wait("capture")
        raise RuntimeError("the shutter is closed")

    with pytest.raises(RuntimeError, match="the shutter is closed"):
        run_engine(plan())
    assert documents.stop["reason"] == "the shutter is closed"


def test_another_failure_is_not_hidden_by_files_of_a_fly_scan(daq, run_engine, send, caplog):
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from kick_off(capture)
        raise RuntimeError("the shutter is closed")

    with pytest.raises(RuntimeError, match="the shutter is closed"):
        run_engine(plan())
    assert "1 files are in no document, such as" in caplog.text


@pytest.mark.files_in_no_document("a file is not read")
def test_a_second_reading_before_the_first_is_read_is_logged(daq, run_engine, send, caplog):
    capture = daq.port0.capture
    capture.num_packets.put(10)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        for _ in range(2):
            yield from bps.trigger(capture, group="capture")
            send(daq, 10)
            yield from bps.wait("capture")
        yield from bps.create("primary")
        yield from bps.read(capture)
        yield from bps.save()

    run_engine(plan())
    assert "_000000.pcap was not read; it is in no document" in caplog.text


def test_a_second_stage_loses_nothing(daq, run_engine, documents, send):
    capture = daq.port0.capture
    capture.num_packets.put(10)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from bps.trigger(capture, group="capture")
        send(daq, 10)
        yield from bps.wait("capture")
        with pytest.raises(RedundantStaging):
            capture.stage()
        yield from bps.create("primary")
        yield from bps.read(capture)
        yield from bps.save()

    run_engine(plan())
    assert packets(documents.files()) == 10
