"""Frames in one stream with the rows of other flyers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from run_documents import Documents, until

from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.catalog._unfinished import UnfinishedRun
from daqiri_ophyd.cli import _frame_file
from daqiri_ophyd.devices import CaptureTrigger, Daq, FrameDetector, make_daq
from daqiri_ophyd.engine import PcapFile
from daqiri_ophyd.plans import capture_during

from .conftest import PACKETS, Source, configuration, images, recorded

KEY = "daq_port0_frames_images"


def seq_nums(documents: Documents) -> dict[str, list[int]]:
    """The rows that each column has."""
    resources = {doc["uid"]: doc["data_key"] for doc in documents.of("stream_resource")}
    rows: dict[str, list[int]] = {}
    for doc in documents.of("stream_datum"):
        numbers = range(doc["seq_nums"]["start"], doc["seq_nums"]["stop"])
        rows.setdefault(resources[doc["stream_resource"]], []).extend(numbers)
    return rows


def fly(devices: list[Any], motion: Any) -> Any:
    """Kick off devices that are prepared, in one stream, and collect their rows."""
    yield from bps.declare_stream(*devices, name="primary", collect=True)
    yield from bps.kickoff_all(*devices, wait=True)
    yield from motion
    yield from bps.collect_while_completing(
        devices, devices, flush_period=0.05, stream_name="primary"
    )


@pytest.mark.parametrize("policy", ["fail", "flag"])
def test_a_row_has_a_frame_and_the_file_of_its_packets(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
    policy: str,
) -> None:
    capture = daq.port0.rx.q.capture
    detector.on_drop.put(policy)
    detector.roll_frames.put(2)
    devices = [detector, capture]

    def motion() -> Any:
        for count in range(1, 6):
            source.send()
            yield from until(lambda n=count: detector.get_index() == capture.get_index() == n)
            yield from bps.collect(*devices, name="primary")

    def plan() -> Any:
        yield from bps.prepare(detector, 5, wait=True)
        trigger = CaptureTrigger(number_of_files=5, packets_per_file=PACKETS)
        yield from bps.prepare(capture, trigger, wait=True)
        yield from bpp.run_wrapper(fly(devices, motion()))

    run_engine(bpp.stage_wrapper(plan(), devices))
    rows = seq_nums(documents)
    assert set(rows) == set(documents.of("descriptor")[0]["data_keys"])
    assert set(rows) > {KEY, f"{capture.name}_files", f"{capture.name}_packets"}
    assert (f"{KEY}_lossy" in rows) == (policy == "flag")
    assert all(numbers == [1, 2, 3, 4, 5] for numbers in rows.values()), rows
    assert documents.of("stop")[0]["num_events"] == {"primary": 5}
    run = catalog.client[documents.of("start")[0]["uid"]]
    columns = run["primary"].base
    np.testing.assert_array_equal(columns[KEY].read(), images(range(5)))
    for number, path in enumerate(capture_files(run, key=f"{capture.name}_files")):
        with PcapFile(path) as file:
            pixels = np.concatenate([packet[46:] for packet in file[:]]).view(np.uint16)
        np.testing.assert_array_equal(pixels.reshape(images(0).shape), images(number))


def test_detectors_during_a_motion_have_a_stream_each(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
    captures: Path,
) -> None:
    capture = daq.port0.capture
    with make_daq(configuration(), "bench", directory=captures) as bench:
        other, others = bench.port0.frames.images, Source(bench)
        for one in (detector, other):
            one.num_frames.put(0)
        streams = {"images": detector, "bench": [other], "packets": capture}

        def motion() -> Any:
            source.send(5)
            others.send(3)
            yield from recorded(detector, 5)
            yield from recorded(other, 3)
            return "there"

        @bpp.stage_decorator([detector, other, capture])
        @bpp.run_decorator()
        def plan() -> Any:
            moved = yield from capture_during(streams, motion(), flush_period=0.05)
            assert moved == "there"

        run_engine(plan())
        assert documents.of("stop")[0]["num_events"] == {"images": 5, "bench": 3, "packets": 1}
        run = catalog.client[documents.of("start")[0]["uid"]]
        for stream, name, count in (("images", KEY, 5), ("bench", other.name, 3)):
            columns = run[stream].base
            np.testing.assert_array_equal(columns[name].read(), images(range(count)))
        (path,) = capture_files(run, stream="packets")
        with PcapFile(path) as file:
            assert len(file) == 5 * PACKETS


def test_prepared_detectors_during_a_motion_share_a_stream(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    daq: Daq,
) -> None:
    devices = [detector, daq.port0.rx.q.capture]

    def motion() -> Any:
        yield from bps.null()
        source.send(5)

    def plan(files: int) -> Any:
        yield from bps.prepare(detector, 5, wait=True)
        if files:
            trigger = CaptureTrigger(number_of_files=files, packets_per_file=PACKETS)
            yield from bps.prepare(devices[1], trigger, wait=True)
        yield from capture_during(devices, motion())

    def run(files: int) -> None:
        run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan(files)), devices))

    with pytest.raises(ValueError, match="q_capture cannot share stream 'primary': it is not prep"):
        run(0)
    with pytest.raises(ValueError, match=f"equal numbers of rows.*{KEY}: 5, {devices[1].name}: 4"):
        run(4)
    run(5)
    assert documents.stop["num_events"] == {"primary": 5}
    rows = seq_nums(documents)
    assert all(numbers == [1, 2, 3, 4, 5] for numbers in rows.values()), rows


def test_detectors_are_in_one_stream_each(run_engine: RunEngine, daq: Daq) -> None:
    def motion() -> Any:
        yield from bps.null()

    detector = daq.port0.frames.images
    given = {"a": detector, "b": detector}
    with pytest.raises(ValueError, match=f"{KEY} is in several streams"):
        run_engine(capture_during(given, motion()))
    with pytest.raises(ValueError, match="stream 'transmit' is used by daq_port0_tx_out"):
        run_engine(capture_during({"transmit": detector}, motion(), tx=daq.port0.tx.out))
    with pytest.raises(ValueError, match="no detector is given"):
        run_engine(capture_during({}, motion()))


def test_frames_of_two_engines(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    captures: Path,
) -> None:
    with make_daq(configuration(), "bench", directory=captures) as bench:
        others = Source(bench)
        others.next = 100
        devices = [detector, bench.port0.frames.images]

        def motion() -> Any:
            source.send(3)
            others.send(2)
            yield from until(lambda: [device.get_index() for device in devices] == [3, 2])
            yield from bps.collect(*devices, name="primary")
            # A row appears once all devices have theirs.
            assert {tuple(rows) for rows in seq_nums(documents).values()} == {(1, 2)}
            others.send(1)

        def plan() -> Any:
            for device in devices:
                yield from bps.prepare(device, 3, wait=True)
            yield from bpp.run_wrapper(fly(devices, motion()))

        run_engine(bpp.stage_wrapper(plan(), devices))
        columns = catalog.client[documents.of("start")[0]["uid"]]["primary"].base
        for device, first in zip(devices, (0, 100), strict=True):
            np.testing.assert_array_equal(
                columns[device.name].read(), images(range(first, first + 3))
            )
            assert columns[f"{device.name}_batch"].read().tolist() == list(range(first, first + 3))


def test_frames_and_a_detector_of_ophyd_async(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
) -> None:
    ophyd_async = pytest.importorskip("ophyd_async.core", reason="needs ophyd-async")
    from ophyd_async.sim import SimBlobDetector

    provider = ophyd_async.StaticPathProvider(ophyd_async.StaticFilenameProvider("blob"), tmp_path)
    with ophyd_async.init_devices():
        camera = SimBlobDetector(provider, name="camera")

    def motion() -> Any:
        source.send(3)
        yield from bps.null()

    def plan() -> Any:
        yield from bps.prepare(detector, ophyd_async.TriggerInfo(number_of_events=3), wait=True)
        info = ophyd_async.TriggerInfo(number_of_events=3, livetime=0.01)
        yield from bps.prepare(camera, info, wait=True)
        yield from bpp.run_wrapper(fly([detector, camera], motion()))

    run_engine(bpp.stage_wrapper(plan(), [detector, camera]))
    rows = seq_nums(documents)
    assert {KEY, f"{KEY}_batch", "camera"} < set(rows)
    assert all(numbers == [1, 2, 3] for numbers in rows.values()), rows


@pytest.mark.parametrize("kept", ["nothing", "a row"])
def test_rows_that_all_have_are_added_to_the_run_of_a_killed_process(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    captures: Path,
    daq: Daq,
    kept: str,
) -> None:
    capture = daq.port0.rx.q.capture
    devices = [detector, capture]

    def motion() -> Any:
        yield from bps.collect(*devices, name="primary")
        for count in range(1, 4):
            source.send()
            yield from until(lambda n=count: detector.get_index() == capture.get_index() == n)
            yield from bps.collect(*devices, name="primary")

    def plan() -> Any:
        yield from bps.prepare(detector, 3, wait=True)
        trigger = CaptureTrigger(number_of_files=3, packets_per_file=PACKETS)
        yield from bps.prepare(capture, trigger, wait=True)
        yield from bpp.run_wrapper(fly(devices, motion()))

    run_engine(bpp.stage_wrapper(plan(), devices))
    whole = seq_nums(documents)
    data = [n for n, (name, _) in enumerate(documents) if name == "stream_datum"]
    assert len(data) == 3 * len(whole)
    cut = data[0] if kept == "nothing" else data[len(whole)]
    last = capture.files[-1]
    last.unlink()  # the third row has a frame, and no file
    last.with_name(last.name + ".json").unlink()
    run = UnfinishedRun(
        documents[:cut], [captures], lambda p: _frame_file.repair(p) if p.suffix == ".h5" else []
    )
    mended = Documents()
    for name, doc in run.complete():
        mended.take(name, doc)
    assert run.rows == (2 if kept == "nothing" else 1)
    assert seq_nums(mended) == {key: [1, 2] for key in whole}
    assert mended.of("stop")[0]["num_events"] == {"primary": 2}


def test_more_frames_than_rows_of_others_are_an_error(
    run_engine: RunEngine,
    documents: Documents,
    source: Source,
    daq: Daq,
    detector: FrameDetector,
    make: Callable[..., Daq],
) -> None:
    capture = daq.port0.rx.q.capture

    def motion() -> Any:
        source.send(4)
        yield from bps.null()

    def plan() -> Any:
        yield from bps.prepare(detector, 4, wait=True)
        trigger = CaptureTrigger(number_of_files=3, packets_per_file=PACKETS)
        yield from bps.prepare(capture, trigger, wait=True)
        yield from bpp.run_wrapper(fly([detector, capture], motion()))

    with pytest.raises(Exception, match="rows of .*_000000.h5 are in no document"):
        run_engine(bpp.stage_wrapper(plan(), [detector, capture]))
    assert documents.of("stop")[0]["num_events"] == {"primary": 3}
