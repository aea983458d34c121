"""Numbers from frames: in events, in rows of fly scans, and in files."""

import math
import threading
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.callbacks.best_effort import BestEffortCallback
from bluesky.utils import FailedStatus, RunEngineInterrupted
from numpy.typing import NDArray
from ophyd.sim import NullStatus, SynAxis
from run_documents import Documents, until

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog, frames_dataset
from daqiri_ophyd.devices import Daq, FrameDetector, reductions

from .conftest import PACKETS, SHAPE, Source, fly, images

KEY = "daq_port0_frames_images"
NAMES = ("total", "mean", "top", "beam", "y", "spread")


def own(frame: Any) -> float:
    """The difference between the largest and the smallest pixel."""
    return float(np.ptp(frame))


@pytest.fixture
def reduced(detector: FrameDetector) -> FrameDetector:
    detector.reductions = {
        "total": reductions.total(),
        "mean": reductions.mean(),
        "top": reductions.maximum(),
        "beam": reductions.roi((2, 5), (10, 20)),
        "y": reductions.centroid(0),
        "spread": own,
    }
    return detector


def expected(batches: Any) -> dict[str, np.ndarray]:
    """The numbers of the images with these numbers."""
    pixels = images(batches).astype(np.float64)
    places = np.arange(SHAPE[0])[:, None]
    axes = (-2, -1)
    return {
        "total": pixels.sum(axes),
        "mean": pixels.mean(axes),
        "top": pixels.max(axes),
        "beam": pixels[..., 2:5, 10:20].sum(axes),
        "y": (pixels * places).sum(axes) / pixels.sum(axes),
        "spread": np.ptp(pixels, axes),
    }


def check(found: dict[str, Any], batches: Any) -> None:
    for name, values in expected(batches).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12)


def column(run: Any, stream: str, name: str) -> Any:
    return run[stream].base[f"{KEY}_{name}"].read()


def test_readings_have_numbers(
    run_engine: RunEngine,
    documents: Documents,
    reduced: FrameDetector,
    source: Source,
    catalog: Catalog,
) -> None:
    source.start()
    (uid,) = run_engine(bp.scan([reduced], SynAxis(name="x"), 0, 1, 5))
    run = catalog.client[uid]
    batches = column(run, "primary", "batch")
    events = [doc["data"] for doc in documents.of("event")]
    check({name: [row[f"{KEY}_{name}"] for row in events] for name in NAMES}, batches)
    rows = run["primary"].read()
    check({name: rows[f"{KEY}_{name}"] for name in NAMES}, batches)
    dataset = frames_dataset(run)
    check({name: dataset[f"{KEY}_{name}"] for name in NAMES}, batches)
    (descriptor,) = documents.of("descriptor")
    assert descriptor["hints"][KEY]["fields"][-6:] == [f"{KEY}_{name}" for name in NAMES]
    configured = descriptor["configuration"][KEY]["data"][f"{KEY}_reduction_table"]
    assert '"beam": "roi((2, 5), (10, 20), total())"' in configured
    (path,) = reduced.files
    with h5py.File(path) as file:
        check({name: file[f"entry/data/{name}"][:] for name in NAMES}, batches)


def test_a_reading_of_several_frames_has_their_mean(
    run_engine: RunEngine, reduced: FrameDetector, source: Source, catalog: Catalog
) -> None:
    reduced.num_frames.put(3)
    source.start()
    (uid,) = run_engine(bp.count([reduced], 4))
    run = catalog.client[uid]
    numbers = expected(column(run, "primary", "batch"))
    rows = run["primary"].read()
    for name in NAMES:
        np.testing.assert_allclose(rows[f"{KEY}_{name}"], numbers[name].mean(axis=1), rtol=1e-12)


@pytest.mark.parametrize("roll", [0, 4])
def test_rows_of_fly_scans_have_numbers(
    run_engine: RunEngine,
    documents: Documents,
    reduced: FrameDetector,
    source: Source,
    catalog: Catalog,
    roll: int,
) -> None:
    """An image that does not come has none."""
    reduced.roll_frames.put(roll)
    reduced.on_drop.put("ignore")

    def motion() -> Any:
        source.send(3)
        source.next += 1
        source.send(6)
        yield from bps.null()

    run_engine(bpp.stage_wrapper(fly(reduced, motion(), prepared=10), [reduced]))
    run = catalog.client[documents.of("start")[0]["uid"]]
    batches = column(run, "primary", "batch")
    assert list(batches) == list(range(10))
    found = {name: column(run, "primary", name) for name in NAMES}
    assert all(math.isnan(values[3]) for values in found.values())
    came = np.arange(10) != 3
    check({name: values[came] for name, values in found.items()}, batches[came])
    assert set(run["primary"].read()) >= {f"{KEY}_{name}" for name in NAMES}
    assert run.validate()
    dataset = frames_dataset(run)
    np.testing.assert_array_equal(dataset[f"{KEY}_total"], found["total"])
    if not roll:
        check_table(catalog.databroker(), run, found)


def check_table(databroker: Any, run: Any, found: dict[str, Any]) -> None:
    """A table of databroker has a row for each frame."""
    header = databroker[run.metadata["start"]["uid"]]
    table = header.table()
    assert table.index.name == "seq_num" and table.index.tolist() == list(range(1, 11))
    columns = {f"{KEY}_{name}" for name in ("timestamp", "batch", "missing", *NAMES)}
    assert set(table.columns) == {"time", *columns}
    stamps = column(run, "primary", "timestamp")
    np.testing.assert_array_equal(table["time"], stamps.astype("datetime64[ns]"))
    np.testing.assert_array_equal(table[f"{KEY}_batch"], range(10))
    assert table[f"{KEY}_missing"].tolist() == [0] * 3 + [PACKETS] + [0] * 6
    np.testing.assert_array_equal(table[f"{KEY}_total"], found["total"])
    some = header.table(fields=[f"{KEY}_batch"], convert_times=False, localize_times=False)
    assert some.columns.tolist() == ["time", f"{KEY}_batch"]
    np.testing.assert_array_equal(some["time"], stamps / 1e9)
    np.testing.assert_array_equal(header.table(fill=[KEY])[KEY][3], images([2])[0])
    assert len(databroker.get_table([header, header])) == 20
    with pytest.raises(ValueError, match="can only be requested with fill=True"):
        header.table(fields=[KEY])


def test_streams_of_a_run_have_their_own_numbers(
    run_engine: RunEngine,
    documents: Documents,
    reduced: FrameDetector,
    source: Source,
    catalog: Catalog,
) -> None:
    """The second stream's first reading moves to another file."""
    source.start()

    def plan() -> Any:
        yield from bps.open_run()
        for stream in ("dark", "primary", "primary", "dark"):
            yield from bps.trigger_and_read([reduced], name=stream)
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [reduced]))
    run = catalog.client[documents.of("start")[0]["uid"]]
    for stream in ("dark", "primary"):
        rows, batches = run[stream].read(), column(run, stream, "batch")
        check({name: rows[f"{KEY}_{name}"] for name in NAMES}, batches)
    for path in reduced.files:
        with h5py.File(path) as file:
            data = file["entry/data"]
            check({name: data[name][:] for name in NAMES}, data["batch"][:])


class Beam(Source):
    """A beam at 0.25, which a motor moves through; each trigger sends an image of it."""

    name, parent = "beam", None

    def __init__(self, daq: Daq, motor: SynAxis) -> None:
        super().__init__(daq)
        self._motor = motor

    def image(self, batch: int) -> NDArray[np.uint16]:
        away = self._motor.readback.get() - 0.25
        return np.full(SHAPE, round(1000 * math.exp(-(away**2) / 0.1)), np.uint16)

    def trigger(self) -> Any:
        self.send()
        return NullStatus()

    def read(self) -> dict[str, Any]:
        return {}

    describe = read_configuration = describe_configuration = read


def test_a_scan_finds_the_centre_by_a_number(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, daq: Daq
) -> None:
    detector.reductions = {"mean": reductions.mean()}
    motor = SynAxis(name="motor")
    daq.open()
    plan = bp.tune_centroid(
        [detector, Beam(daq, motor)], f"{KEY}_mean", motor, -2, 2, 0.01, 11, step_factor=2
    )
    run_engine(plan)
    assert motor.readback.get() == pytest.approx(0.25, abs=0.05)
    for doc in documents.of("event"):
        away = doc["data"]["motor"] - 0.25
        assert doc["data"][f"{KEY}_mean"] == round(1000 * math.exp(-(away**2) / 0.1))


def test_a_number_that_fails_is_an_error_in_words(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    """Readings before have their numbers."""

    class NoTextError(Exception):
        def __repr__(self) -> str:
            raise ValueError

    calls = iter([1.0, 2.0])

    def count(frame: Any) -> float:
        for number in calls:
            return number
        raise NoTextError

    detector.reductions = {"good": reductions.total(), "calls": count}
    source.start()
    with pytest.raises(FailedStatus, match=r"reduction 'calls' of frame \d+ failed: NoTextError"):
        run_engine(bp.count([detector], 3))
    assert [doc["data"][f"{KEY}_calls"] for doc in documents.of("event")] == [1.0, 2.0]
    (path,) = detector.files
    with h5py.File(path) as file:
        data = file["entry/data"]
        assert list(data["calls"]) == [1.0, 2.0]
        np.testing.assert_array_equal(data["good"][:], expected(data["batch"][:])["total"])


def test_a_fly_scan_fails_by_a_number_that_fails(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    """All of its rows are in documents; those without a number have NaN."""
    calls = iter([1.0, 2.0])
    detector.reductions = {"calls": lambda frame: next(calls)}

    def motion() -> Any:
        source.send(4)
        yield from bps.null()

    with pytest.raises(FailedStatus, match="reduction 'calls' of frame 2 failed"):
        run_engine(bpp.stage_wrapper(fly(detector, motion(), prepared=4), [detector]))
    (path,) = detector.files
    with h5py.File(path) as file:
        found = file["entry/data/calls"][:]
    assert found[:2].tolist() == [1.0, 2.0] and np.isnan(found[2:]).all()


def test_a_reading_that_is_taken_again_has_numbers_of_its_own(
    run_engine: RunEngine,
    documents: Documents,
    reduced: FrameDetector,
    source: Source,
    catalog: Catalog,
) -> None:
    reduced.num_frames.put(2)

    def plan() -> Any:
        yield from bps.open_run()
        yield from bps.checkpoint()
        yield from bps.trigger(reduced, group="reading")
        if not source.next:
            source.send(1)
            yield from until(lambda: reduced.progress.frames == 1)
            yield from bps.pause()
        yield from bps.wait("reading")
        yield from bps.create()
        yield from bps.read(reduced)
        yield from bps.save()
        yield from bps.close_run()

    with pytest.raises(RunEngineInterrupted):
        run_engine(bpp.stage_wrapper(plan(), [reduced]))
    source.start()
    run_engine.resume()
    run = catalog.client[documents.of("start")[0]["uid"]]
    batches = column(run, "primary", "batch")
    assert batches.shape == (1, 2) and batches.min() > 0
    rows = run["primary"].read()
    for name, values in expected(batches).items():
        np.testing.assert_allclose(rows[f"{KEY}_{name}"], values.mean(axis=1), rtol=1e-12)


def test_frames_that_a_number_keeps_stay_as_they_are(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    kept = []

    def keep(frame: Any) -> float:
        kept.append(frame)
        return 0.0

    detector.reductions = {"kept": keep}
    source.start()
    run_engine(bp.count([detector], 5))
    source.stop()
    assert len(kept) == 5
    for frame in kept:
        np.testing.assert_array_equal(frame.data, images(frame.batch))


@pytest.mark.parametrize("action", ["stop", "close", "rewind"])
def test_a_number_cannot_end_its_recorder(
    run_engine: RunEngine, detector: FrameDetector, source: Source, daq: Daq, action: str
) -> None:
    """It would wait for itself."""

    def end(frame: Any) -> float:
        recorder, engine = detector._rows.recorder, daq.engine
        {"stop": recorder.stop, "close": engine.close, "rewind": lambda: recorder.rewind(0)}[
            action
        ]()
        return 0.0

    detector.reductions = {"end": end}
    source.start()
    with pytest.raises(FailedStatus, match="a reduction of frames cannot .* raise an exception"):
        run_engine(bp.count([detector]))


def test_a_number_that_takes_too_long_is_named(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    proceed = threading.Event()
    detector.reductions = {"slow": lambda frame: proceed.wait(60)}
    detector.timeout.put(0.3)
    status = []

    def plan() -> Any:
        status.append((yield from bps.trigger(detector)))
        source.send()
        yield from until(lambda: status[0].done)

    try:
        with pytest.raises(FailedStatus):
            run_engine(bpp.stage_wrapper(plan(), [detector]))
    finally:
        proceed.set()
    assert "reduction 'slow' has been running for 0." in str(status[0].exception())


def test_a_number_that_never_comes_stops_nothing_else(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    daq: Daq,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The scan ends in words, and other devices go on; the engine closes when it has returned."""
    proceed = threading.Event()
    detector.reductions = {"never": lambda frame: proceed.wait(250)}
    detector.timeout.put(0.3)

    def plan() -> Any:
        yield from bps.open_run()
        yield from bps.trigger(detector, group="reading")
        source.send()
        yield from bps.wait("reading")

    try:
        with pytest.raises(FailedStatus, match="reduction 'never' has been running for"):
            run_engine(bpp.stage_wrapper(plan(), [detector]))
        assert "reduction 'never' has been running" in caplog.text
        capture = daq.port0.capture
        capture.acquire_time.put(0.05)
        run_engine(bp.count([capture]))
    finally:
        proceed.set()
    assert documents.of("stop")[-1]["exit_status"] == "success"


def test_losses_tell_how_long_numbers_take(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    kept = []

    def keep(frame: Any) -> float:
        kept.append(frame)
        return 0.0

    detector.reductions = {"kept": keep}
    source.start(0.001)
    try:
        with pytest.raises(
            FailedStatus, match=r"lost.*\(reductions of frames take .* ms a frame\)"
        ):
            run_engine(bp.count([detector], 100))
    finally:
        kept.clear()


def test_libraries_keep_what_they_have_for_the_thread(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    kept = threading.local()

    def count(frame: Any) -> float:
        kept.calls = getattr(kept, "calls", 0) + 1
        return float(kept.calls)

    detector.reductions = {"calls": count}
    source.start()
    run_engine(bp.count([detector], 4))
    assert [doc["data"][f"{KEY}_calls"] for doc in documents.of("event")] == [1, 2, 3, 4]


@pytest.mark.parametrize("fly_scan", [False, True])
def test_live_plots_of_best_effort(
    run_engine: RunEngine,
    documents: Documents,
    reduced: FrameDetector,
    source: Source,
    fly_scan: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of fly scans are no events: nothing to plot."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib

    matplotlib.use("Agg")
    best = BestEffortCallback()
    run_engine.subscribe(best)
    source.start()
    if fly_scan:
        run_engine(plans.record(reduced, 5))
    else:
        run_engine(bp.scan([reduced], SynAxis(name="x"), 0, 1, 4))
    (descriptor,) = [doc for doc in documents.of("descriptor") if KEY in doc["data_keys"]]
    hinted = descriptor["hints"][KEY].get("fields", [])
    assert set(hinted) <= set(descriptor["data_keys"])
    assert (f"{KEY}_total" in hinted) is not fly_scan


def test_what_cannot_be_computed_is_refused(detector: FrameDetector) -> None:
    for given, error, text in [
        ({"batch": reductions.total()}, ValueError, "cannot be named 'batch'"),
        ({"data": reductions.total()}, ValueError, "cannot be named 'data'"),
        ({"frames": reductions.total()}, ValueError, "cannot be named 'frames'"),
        ({"a b": reductions.total()}, ValueError, "cannot be named 'a b'"),
        ({"total": len, "Total": len}, ValueError, "cannot be named 'Total'"),
        ({"Dropped": len}, ValueError, "cannot be named 'Dropped'"),
        ({3: len}, ValueError, "cannot be named 3"),
        ({"a": 3}, TypeError, "accepted is a function that returns a number"),
        ({"a": reductions.total}, TypeError, r"call it: total\(\)"),
        ({"a": reductions.rate()}, ValueError, r"rate\(\), which is computed from packets"),
        ({"a": reductions.roi((0, 9), (0, 3))}, ValueError, r"not in frames of shape \(8, 32\)"),
        ({"a": reductions.centroid(2)}, ValueError, "axis 2; frames of shape"),
    ]:
        with pytest.raises(error, match=text):
            detector.reductions = given
    assert detector.reductions == {}
    with pytest.raises(ValueError, match="accepted are first and end"):
        reductions.roi((3, 3), (0, 1))
    for given, error, text in [
        (((0, 1), (0.0, 3.0)), TypeError, "float"),
        (((0, 1), (0, 3), reductions.rate()), ValueError, "computed from packets"),
    ]:
        with pytest.raises(error, match=text):
            reductions.roi(*given)
    assert reductions.roi((0, 1), (0, 3), lambda pixels: pixels.size).function(np.ones((4, 4))) == 3
