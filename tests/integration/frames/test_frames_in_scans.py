"""Frames of a detector in scans of the RunEngine, read back from a catalog."""

from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from ophyd.sim import SynAxis
from run_documents import Documents

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq, FrameDetector

from .conftest import SHAPE, Source, fly, images

KEY = "daq_port0_frames_images"


def read(catalog: Catalog, uid: str, stream: str = "primary") -> dict[str, Any]:
    """Return the columns of the detector, after a check that its images equal those sent."""
    part = catalog.client[uid][stream].base
    names = {"data": KEY} | {name: f"{KEY}_{name}" for name in ("timestamp", "batch", "missing")}
    columns = {name: part[key].read() for name, key in names.items()}
    np.testing.assert_array_equal(columns["data"], images(columns["batch"]))
    assert columns["data"].dtype == np.uint16
    assert not columns["missing"].any()
    assert (np.diff(columns["timestamp"].ravel()) > 0).all()
    return columns


def idle(daq: Daq) -> None:
    """Check that nothing is being recorded, and all buffers have been returned."""
    detector = daq.port0.frames.images
    assert detector.progress is None
    with daq.port("port0").reorder["images"].frames():
        pass  # rejected while they are in use
    assert daq.rx_queue("port0", "q").counters().held == 0


def test_count_and_scans_store_images(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog, daq: Daq
) -> None:
    x, y = SynAxis(name="x"), SynAxis(name="y")
    source.start()
    (counted,) = run_engine(bp.count([detector], 3))
    (scanned,) = run_engine(bp.scan([detector], x, 0, 1, 4))
    (gridded,) = run_engine(bp.grid_scan([detector], x, 0, 1, 2, y, 0, 1, 3))
    for uid, shape in ((counted, (3,)), (scanned, (4,)), (gridded, (6,))):
        assert read(catalog, uid)["data"].shape == (*shape, *SHAPE)
        run = catalog.client[uid]
        assert run.validate()
        assert run["primary"].read()[KEY].shape == (*shape, *SHAPE)
    (path,) = detector.files  # of the last stage
    assert path.exists()
    idle(daq)


def test_a_reading_has_so_many_frames(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
) -> None:
    detector.num_frames.put(3)
    source.start()
    (uid,) = run_engine(bp.count([detector], 4))
    columns = read(catalog, uid)
    assert columns["data"].shape == (4, 3, *SHAPE)
    assert columns["batch"].shape == (4, 3)
    assert (np.diff(columns["batch"], axis=1) == 1).all()
    assert catalog.client[uid].validate()
    counters = {f"{KEY}_frames": 3, f"{KEY}_dropped": 0, f"{KEY}_missing_packets": 0}
    counters[f"{KEY}_lost_before_engine"] = 0
    assert documents.rows() == [counters] * 4
    assert len({doc["uri"] for doc in documents.of("stream_resource")}) == 1


@pytest.mark.parametrize("num_frames", [1, 2])
def test_several_streams_and_runs_of_a_stage_read_back(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    num_frames: int,
) -> None:
    detector.num_frames.put(num_frames)
    source.start()

    def plan() -> Any:
        uids = []
        for _ in range(2):
            uids.append((yield from bps.open_run()))
            for stream in ("dark", "dark", "primary", "primary", "dark", "primary"):
                yield from bps.trigger_and_read([detector], name=stream)
            yield from bps.close_run()
        return uids

    run_engine(bpp.stage_wrapper(plan(), [detector]))
    of_row = (num_frames,) if num_frames > 1 else ()
    taken = []
    for uid in (doc["uid"] for doc in documents.of("start")):
        dark, primary = read(catalog, uid, "dark"), read(catalog, uid)
        assert dark["data"].shape == primary["data"].shape == (3, *of_row, *SHAPE)
        for stream in (dark, primary):
            assert (np.diff(stream["batch"].ravel()) > 0).all()
        taken += [*dark["batch"].ravel(), *primary["batch"].ravel()]
    assert len(set(taken)) == 2 * 6 * num_frames


def test_a_fly_scan_stores_each_frame_as_a_row(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
) -> None:
    detector.roll_frames.put(40)
    # A busy machine loses some, which have rows as well.
    detector.on_drop.put("ignore")
    source.start(0.003)

    run_engine(bpp.stage_wrapper(fly(detector, prepared=100), [detector]))
    columns = read(catalog, documents.of("start")[0]["uid"])
    assert columns["data"].shape == (100, *SHAPE)
    assert (np.diff(columns["batch"]) == 1).all()
    (resource,) = [doc for doc in documents.of("stream_resource") if doc["data_key"] == KEY]
    assert resource["parameters"]["frames_per_file"] == 40
    assert [file.name[-9:] for file in detector.files] == ["000000.h5", "000001.h5", "000002.h5"]
    idle(daq)


def test_readings_begin_with_a_packet_of_a_flow(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    detector.num_frames.set(2).wait()
    detector.start_flow.set("begin").wait()

    def plan() -> Any:
        yield from bps.open_run()
        for _ in range(2):
            yield from bps.trigger(detector, group="frames")
            source.send(3)
            source.send(1, port=4999)
            source.send(2)
            yield from bps.wait("frames")
            yield from bps.create()
            yield from bps.read(detector)
            yield from bps.save()
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [detector]))
    (path,) = detector.files
    with h5py.File(path) as file:
        assert file["entry/data/batch"][:].tolist() == [3, 4, 9, 10]
        assert np.array_equal(file["entry/data/data"][:], images([3, 4, 9, 10]))
