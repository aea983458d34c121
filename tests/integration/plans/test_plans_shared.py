"""Several captures in one stream: a row has the files and counters of all."""

import threading

import numpy as np
import pytest
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, RunEngineInterrupted
from run_documents import Documents, until
from waiting import eventually, wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import capture_files
from daqiri_ophyd.catalog._unfinished import UnfinishedRun
from daqiri_ophyd.devices import CaptureError, CaptureTrigger, make_daq

from .conftest import collect, fly, kick_off, loopback, packets, prepare_captures

COUNTERS = ("packets", "dropped", "bytes", "t_first_ns", "t_last_ns")


def check_stored(run, captures, count, size):
    table = run["primary"].read()
    for capture in captures:
        name = capture.name
        files = capture_files(run, key=f"{name}_files")
        assert [packets([file]) for file in files] == [size] * count
        assert table[f"{name}_files"].values.tolist() == [file.name for file in files]
        records = run["primary"].base[f"{name}_files", "summaries"].read()
        np.testing.assert_array_equal(table[f"{name}_packets"].values, [size] * count)
        for counter in COUNTERS:
            stored = table[f"{name}_{counter}"].values
            assert stored.dtype == np.dtype("<i8")
            np.testing.assert_array_equal(stored, records[counter])
        assert table[f"{name}_lost_before_engine"].values.tolist() == [0] * count
    run.validate()


def test_two_captures_of_an_engine(both, run_engine, documents, catalog, send_to):
    daq, *captures = both

    def send():
        send_to(daq, 5000, 30)
        send_to(daq, 5001, 30)

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures, files=3)
        yield from fly(captures, send)

    (uid,) = run_engine(plan())
    keys = documents.descriptor()["data_keys"]
    assert len(keys) == 14 and all(key["external"] == "STREAM:" for key in keys.values())
    assert documents.stop["num_events"] == {"primary": 3}
    assert not documents.of("event_page")
    check_stored(catalog.client[uid], captures, 3, 10)
    # The same through databroker, and after an export.
    table = catalog.databroker().v2[uid].primary.read()
    for capture in captures:
        np.testing.assert_array_equal(table[f"{capture.name}_packets"].values, [10, 10, 10])
    exported = [(name, doc.to_dict()) for name, doc in catalog.client[uid].documents()]
    catalog.client.delete_contents(uid, recursive=True, external_only=False)
    writer = catalog.writer()
    for name, doc in exported:
        writer(name, doc)
    check_stored(catalog.client[uid], captures, 3, 10)


def test_captures_of_two_engines(make, captures, run_engine, catalog, send_to):
    first = make()
    second = make_daq(loopback(), "bench", directory=captures)
    devices = [first.port0.capture, second.port0.capture]

    @bpp.stage_decorator(devices)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*devices, files=2, size=20)
        yield from fly(devices, lambda: [send_to(daq, 5000, 40) for daq in (first, second)])

    with second:
        (uid,) = run_engine(plan())
        check_stored(catalog.client[uid], devices, 2, 20)


def test_a_capture_and_a_detector_of_ophyd_async(daq, run_engine, documents, send_to, tmp_path):
    ophyd_async = pytest.importorskip("ophyd_async.core", reason="needs ophyd-async")
    from ophyd_async.sim import SimBlobDetector

    provider = ophyd_async.StaticPathProvider(ophyd_async.StaticFilenameProvider("blob"), tmp_path)
    with ophyd_async.init_devices():
        camera = SimBlobDetector(provider, name="camera")
    capture = daq.port0.capture
    capture.roll_packets.put(10)

    @bpp.stage_decorator([capture, camera])
    @bpp.run_decorator()
    def plan():
        yield from bps.prepare(capture, ophyd_async.TriggerInfo(number_of_events=3), wait=True)
        info = ophyd_async.TriggerInfo(number_of_events=3, livetime=0.01)
        yield from bps.prepare(camera, info, wait=True)
        yield from fly([capture, camera], lambda: send_to(daq, 5000, 30))

    run_engine(plan())
    assert documents.stop["num_events"] == {"primary": 3}
    resources = {doc["uid"]: doc["data_key"] for doc in documents.of("stream_resource")}
    rows: dict[str, list[int]] = {key: [] for key in documents.descriptor()["data_keys"]}
    for doc in documents.of("stream_datum"):
        rows[resources[doc["stream_resource"]]].extend(range(*doc["seq_nums"].values()))
    assert {capture.name + "_files", "camera"} < set(rows)
    assert all(numbers == [1, 2, 3] for numbers in rows.values()), rows


def test_losses_are_a_column(both, run_engine, catalog, send_to):
    daq, *captures = both
    for capture in captures:
        capture.on_drop.put("flag")

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures)
        yield from fly(captures, lambda: [send_to(daq, port, 10) for port in (5000, 5001)])

    (uid,) = run_engine(plan())
    stored = catalog.client[uid]["primary"][f"{captures[0].name}_lossy"].read()
    assert stored.dtype == bool and stored.tolist() == [False]


def test_rows_come_when_all_have_their_file(both, run_engine, documents, send_to):
    daq, *captures = both
    seen = []

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures, files=3)
        yield from kick_off(*captures)
        send_to(daq, 5000, 30)
        yield from until(lambda: len(captures[0].files) == 3)
        yield from bps.collect(*captures, name="primary")
        seen.append(len(documents.files()))
        send_to(daq, 5001, 10)
        yield from until(lambda: len(captures[1].files) == 1)
        yield from bps.collect(*captures, name="primary")
        seen.append(len(documents.files()))
        send_to(daq, 5001, 20)
        yield from collect(*captures)

    run_engine(plan())
    assert seen == [0, 2]
    assert len(documents.files()) == 6
    assert documents.stop["num_events"] == {"primary": 3}


@pytest.mark.files_in_no_document("the error comes after the run")
def test_different_numbers_of_files_are_an_error(both, run_engine, documents, send_to):
    daq, *captures = both

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures[:1], files=3)
        yield from prepare_captures(*captures[1:], files=4)
        yield from fly(captures, lambda: [send_to(daq, 5000, 30), send_to(daq, 5001, 40)])

    text = "1 files are in no document, such as .*_000003.pcap.*share a stream.*equally many files"
    with pytest.raises(CaptureError, match=text):
        run_engine(plan())
    assert documents.stop["num_events"] == {"primary": 3}
    assert not any(capture.prepared for capture in captures)


def test_a_file_that_a_failed_flight_completes_is_no_row(both):
    _, _, rest = both
    rest.timeout.put(0.5)
    rest.stage()
    rest.prepare(CaptureTrigger(number_of_files=3, packets_per_file=10)).wait(60)
    rest.describe_collect()
    rest.kickoff().wait(60)
    with pytest.raises(TimeoutError, match="no progress for 0.5 s: 0 of 30 packets"):
        rest.complete().wait(60)
    rest.stop()
    wait_for(lambda: rest.progress is None)
    # The open one, which is empty.
    assert len(rest.uncollected) == 1
    assert rest.get_index() == 0
    rest.unstage()


def test_one_of_two_fails(both, run_engine, documents, send_to):
    daq, *captures = both
    for capture in captures:
        capture.timeout.put(0.5)

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures, files=3)
        yield from fly(captures, lambda: send_to(daq, 5000, 30))

    with pytest.raises(FailedStatus, match="rest_capture.*no progress for 0.5 s: 0 of 30 packets"):
        run_engine(plan())
    assert documents.stop["exit_status"] == "fail"
    assert not documents.files()
    for name in ("frames", "rest"):
        assert daq.rx_queue("port0", name).counters().held == 0


@pytest.mark.parametrize("same", [True, False])
def test_only_a_failure_of_the_same_engine_excuses_files_without_a_row(
    both, captures, send_to, caplog, same
):
    first, whole, beside = both
    with make_daq(loopback(), "bench", directory=captures) as second:
        failed = beside if same else second.port0.capture
        for capture in (whole, failed):
            capture.stage()
            capture.prepare(CaptureTrigger(number_of_files=1, packets_per_file=10))
            capture.kickoff()
        send_to(first, 5000, 10)
        whole.complete().wait(60)
        failed.stop()
        assert isinstance(failed.complete().exception(20), CaptureError)
        text = "1 files are in no document"
        if same:
            whole.unstage()
            assert text in caplog.text
        else:
            with pytest.raises(CaptureError, match=text):
                whole.unstage()
        failed.unstage()


@pytest.mark.parametrize("other", ["capture", "tx"])
def test_a_device_that_cannot_share_a_stream(both, run_engine, other):
    daq, first, second = both
    devices = [first, second if other == "capture" else daq.port0.tx.out]

    @bpp.stage_decorator(devices)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(first, files=3)
        yield from bps.declare_stream(*devices, name="primary", collect=True)
        yield from bps.collect(*devices, name="primary")

    name = devices[1].name
    with pytest.raises(AssertionError, match=f"'{name}'.*not implement all WritesStreamAss"):
        run_engine(plan())


# --- capture_during


def test_several_captures_during_a_plan(both, run_engine, documents, catalog, send_to):
    daq, *captures = both

    def motion():
        for port in (5000, 5001):
            yield from bps.checkpoint()
            send_to(daq, port, 30)
        return "there"

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures, files=3)
        return (yield from plans.capture_during(captures, motion(), flush_period=0.05))

    (uid,) = run_engine(plan())
    check_stored(catalog.client[uid], captures, 3, 10)


def test_several_captures_that_are_not_prepared(both, run_engine):
    _, *captures = both

    def motion():
        yield from bps.null()

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures[:1], files=3)
        yield from plans.capture_during(captures, motion())

    with pytest.raises(ValueError, match="rest_capture cannot share stream 'primary'.*prepare"):
        run_engine(plan())


def test_a_pause_between_the_files(both, run_engine, documents, send_to):
    daq, *captures = both

    def motion():
        send_to(daq, 5000, 30)
        yield from until(lambda: len(captures[0].files) == 3)
        send_to(daq, 5001, 10)
        yield from until(lambda: len(captures[1].files) == 1)
        yield from bps.checkpoint()
        yield from bps.sleep(0.3)
        if not resumed:
            yield from bps.sleep(20)
        send_to(daq, 5001, 20)

    resumed = []

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures, files=3)
        yield from plans.capture_during(captures, motion(), flush_period=0.0)

    def pause():
        eventually(lambda: len(documents.files()) >= 2, 60)
        resumed.append(True)
        run_engine.request_pause()

    watcher = threading.Thread(target=pause)
    watcher.start()
    with pytest.raises(RunEngineInterrupted):
        run_engine(plan())
    watcher.join()
    assert not daq.port0.rx.rest.capture.is_recording
    run_engine.resume()
    assert documents.stop["exit_status"] == "success"
    assert [packets([file]) for file in documents.files()] == [10] * 6
    starts = sorted(d["seq_nums"]["start"] for d in documents.of("stream_datum"))
    assert documents.stop["num_events"] == {"primary": 3} and starts[0] == 1


def test_an_abort_keeps_the_rows_that_there_are(both, run_engine, documents, send_to):
    daq, *captures = both

    def motion():
        send_to(daq, 5000, 30)
        send_to(daq, 5001, 15)
        yield from until(lambda: len(captures[1].files) == 1)
        raise RuntimeError("the beam is off")

    @bpp.stage_decorator(captures)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*captures, files=3)
        yield from plans.capture_during(captures, motion())

    with pytest.raises(RuntimeError, match="the beam is off"):
        run_engine(plan())
    assert documents.stop["reason"] == "the beam is off"
    counts = {key: [] for key in ("frames", "rest")}
    resources = {doc["uid"]: doc["data_key"] for doc in documents.of("stream_resource")}
    for doc in documents.of("stream_datum"):
        for name, rows in counts.items():
            if resources[doc["stream_resource"]] == f"daq_port0_rx_{name}_capture_files":
                rows.extend(range(doc["indices"]["start"], doc["indices"]["stop"]))
    assert counts == {"frames": [0, 1], "rest": [0, 1]}
    assert sorted(packets([file]) for file in documents.files()) == [5, 10, 10, 10]
    for name in ("frames", "rest"):
        assert daq.rx_queue("port0", name).counters().held == 0


# --- After a kill


@pytest.mark.parametrize("kept", ["nothing", "a row"])
def test_rows_of_a_killed_process_are_added(both, captures, run_engine, documents, send_to, kept):
    """The documents end where the process was killed; later files exist."""
    daq, *devices = both

    @bpp.stage_decorator(devices)
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(*devices, files=3)
        yield from kick_off(*devices)
        yield from bps.collect(*devices, name="primary")
        for count, done in ((10, 1), (20, 3)):
            send_to(daq, 5000, count)
            send_to(daq, 5001, count)
            yield from until(lambda n=done: all(len(device.files) >= n for device in devices))
            yield from bps.collect(*devices, name="primary")
        for device in devices:
            yield from bps.complete(device, wait=True)

    run_engine(plan())
    data = [n for n, (name, _) in enumerate(documents) if name == "stream_datum"]
    assert len(data) == 28
    cut = data[0] if kept == "nothing" else data[13] + 1
    run = UnfinishedRun(documents[:cut], [captures], lambda _: [])
    mended = Documents()
    for name, doc in run.complete():
        mended.take(name, doc)
    assert run.rows == (3 if kept == "nothing" else 2)
    assert not run.unlisted and not run.mended
    assert mended.stop["num_events"] == {"primary": 3}
    assert sorted(mended.files()) == sorted(documents.files())
    covered = {}
    resources = {doc["uid"]: doc["data_key"] for doc in mended.of("stream_resource")}
    for doc in mended.of("stream_datum"):
        numbers = covered.setdefault(resources[doc["stream_resource"]], [])
        numbers.extend(range(doc["seq_nums"]["start"], doc["seq_nums"]["stop"]))
    assert covered == dict.fromkeys(mended.descriptor()["data_keys"], [1, 2, 3])
