"""Which image is in which stream, in which file, and in which document."""

import contextlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from run_documents import Documents, new_run_engine, until

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import CaptureError, FrameDetector

from .conftest import Source, fly, images

KEY = "daq_port0_frames_images"


def read(detector: FrameDetector, source: Source, stream: str, count: int = 1) -> Any:
    """Readings of one image each, which is sent when the detector waits."""
    for _ in range(count):
        yield from bps.trigger(detector, group="image")
        source.send()
        yield from bps.wait("image")
        yield from bps.create(stream)
        yield from bps.read(detector)
        yield from bps.save()


def stored(catalog: Catalog, uid: str) -> dict[str, list[int]]:
    """Numbers of the images of each stream; the pixels are those of their numbers."""
    run = catalog.client[uid]
    found = {}
    for name in run:
        dataset = run[name].read()
        numbers = np.asarray(dataset[f"{KEY}_batch"])
        np.testing.assert_array_equal(np.asarray(dataset[KEY]), images(numbers))
        found[name] = numbers.tolist()
    return found


def names(files: list[Path]) -> list[int]:
    """Numbers of the images in each file, which all are in documents."""
    return [len(h5py.File(file)["entry/data/batch"]) for file in files]


def dark_first(detector: FrameDetector, source: Source, declare: bool) -> Any:
    if declare:
        for stream in ("dark", "primary"):
            yield from bps.declare_stream(detector, name=stream)
    yield from read(detector, source, "dark")
    yield from read(detector, source, "primary", 3)
    yield from read(detector, source, "dark")
    yield from read(detector, source, "primary", 4)


@pytest.mark.parametrize("declare", [False, True])
@pytest.mark.parametrize("told", [False, True])
def test_images_are_in_their_streams(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    declare: bool,
    told: bool,
) -> None:
    if told:
        run_engine.preprocessors.append(plans.reading_streams_wrapper)
    plan = bpp.run_wrapper(dark_first(detector, source, declare))
    (uid,) = run_engine(bpp.stage_wrapper(plan, [detector]))
    assert stored(catalog, uid) == {"dark": [0, 4], "primary": [1, 2, 3, 5, 6, 7, 8]}
    # Without being told, each reading may belong to either stream.
    assert names(detector.files) == ([1, 3, 1, 4] if told else [1] * 9)


def test_readings_of_an_outer_preprocessor_are_in_their_stream(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    """They are inserted into messages that the wrapper has passed."""

    def framed(plan: Any) -> Any:
        def insert(msg: Any) -> Any:
            if msg.command == "open_run":
                return None, read(detector, source, "baseline")
            if msg.command == "close_run":
                return _before(msg, read(detector, source, "baseline")), None
            return None, None

        return (yield from bpp.plan_mutator(plan, insert))

    run_engine.preprocessors += [plans.reading_streams_wrapper, framed]
    plan = bpp.run_wrapper(read(detector, source, "primary", 3))
    (uid,) = run_engine(bpp.stage_wrapper(plan, [detector]))
    assert stored(catalog, uid) == {"baseline": [0, 4], "primary": [1, 2, 3]}


def _before(msg: Any, first: Any) -> Any:
    yield from first
    return (yield msg)


def test_the_next_image_before_the_reading_is_saved(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    def plan() -> Any:
        yield from bps.trigger(detector, group="image")
        for number in range(5):
            source.send()
            yield from bps.wait("image")
            yield from bps.create()
            yield from bps.read(detector)
            if number < 4:
                yield from bps.trigger(detector, group="image")
            yield from bps.save()

    (uid,) = run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [detector]))
    assert stored(catalog, uid) == {"primary": [0, 1, 2, 3, 4]}


@pytest.mark.files_in_no_document("the plan drops readings")
def test_readings_that_are_dropped(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    def plan() -> Any:
        for number in range(6):
            yield from bps.trigger(detector, group="image")
            source.send()
            yield from bps.wait("image")
            yield from bps.create()
            yield from bps.read(detector)
            yield from bps.drop() if number in (2, 3) else bps.save()

    (uid,) = run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [detector]))
    assert stored(catalog, uid) == {"primary": [0, 1, 4, 5]}


@pytest.mark.files_in_no_document("an image is not read")
def test_an_unread_image_is_not_in_a_fly_scan(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    def plan() -> Any:
        yield from bps.trigger(detector, group="image")
        source.send()
        yield from bps.wait("image")
        yield from bps.prepare(detector, None, wait=True)
        yield from fly(detector, sent(source, 3), prepared=0)

    detector.num_frames.put(1)
    with pytest.raises(CaptureError, match="rows of .* are in no document yet; collect them"):
        run_engine(
            bpp.stage_wrapper(
                bpp.pchain(
                    bps.trigger(detector, group="image"),
                    sent(source, 1),
                    bps.wait("image"),
                    bps.prepare(detector, 3, wait=True),
                ),
                [detector],
            )
        )
    (uid,) = run_engine(bpp.stage_wrapper(plan(), [detector]))
    assert stored(catalog, uid) == {"primary": [2]}


def test_beside_another_run_engine(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    plan = bpp.run_wrapper(dark_first(detector, source, declare=False))
    with new_run_engine():
        (uid,) = run_engine(bpp.stage_wrapper(plan, [detector]))
    assert stored(catalog, uid) == {"dark": [0, 4], "primary": [1, 2, 3, 5, 6, 7, 8]}


@pytest.mark.files_in_no_document("the plan continues after a failure")
def test_rows_of_a_failed_fly_scan_are_no_readings(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    detector.timeout.put(0.3)

    def plan() -> Any:
        yield from bps.prepare(detector, 10, wait=True)
        yield from bps.declare_stream(detector, name="flown", collect=True)
        yield from bps.kickoff(detector, wait=True)
        source.send(2)
        with contextlib.suppress(FailedStatus):
            yield from bps.complete(detector, wait=True)
        yield from read(detector, source, "primary", 2)

    (uid,) = run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [detector]))
    numbers = catalog.client[uid]["primary"][f"{KEY}_batch"].read()
    assert numbers.tolist() == [2, 3]


def test_a_stream_after_a_dark_image_is_in_one_file(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    def plan() -> Any:
        yield from read(detector, source, "dark")
        yield from read(detector, source, "primary", 30)

    run_engine.preprocessors.append(plans.reading_streams_wrapper)
    (uid,) = run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [detector]))
    assert stored(catalog, uid) == {"dark": [0], "primary": list(range(1, 31))}
    assert names(detector.files) == [1, 30]


def test_runs_of_one_stage_have_a_file_each(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    def plan() -> Any:
        for _ in range(3):
            yield from bpp.run_wrapper(read(detector, source, "primary", 4))

    uids = run_engine(bpp.stage_wrapper(plan(), [detector]))
    assert [stored(catalog, uid)["primary"] for uid in uids] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]
    ]  # fmt: skip
    assert names(detector.files) == [4, 4, 4]


@pytest.mark.parametrize("told", [False, True])
def test_runs_in_turn(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog, told: bool
) -> None:
    def plan() -> Any:
        for run in "ab":
            yield from bpp.set_run_key_wrapper(bps.open_run(), run)
        for _ in range(3):
            for run in "ab":
                yield from bpp.set_run_key_wrapper(read(detector, source, "primary"), run)
        for run in "ab":
            yield from bpp.set_run_key_wrapper(bps.close_run(), run)

    if told:
        run_engine.preprocessors.append(plans.reading_streams_wrapper)
    uids = run_engine(bpp.stage_wrapper(plan(), [detector]))
    assert [stored(catalog, uid)["primary"] for uid in uids] == [[0, 2, 4], [1, 3, 5]]


def test_a_path_named_after_one_of_several_runs_is_refused(
    run_engine: RunEngine, detector: FrameDetector, source: Source, documents: Documents
) -> None:
    def plan() -> Any:
        for run in "ab":
            yield from bpp.set_run_key_wrapper(bps.open_run(), run)
        yield from bpp.set_run_key_wrapper(read(detector, source, "primary"), "a")

    detector.path.put("{scan_id}")
    with pytest.raises(CaptureError, match="images: 2 runs are open, and its path needs one"):
        run_engine(bpp.stage_wrapper(plan(), [detector]))
    assert {doc["exit_status"] for doc in documents.of("stop")} == {"fail"}


def test_a_reading_without_a_trigger_is_refused(
    run_engine: RunEngine, detector: FrameDetector, source: Source, documents: Documents
) -> None:
    def twice(streams: tuple[str, str]) -> Any:
        yield from bps.trigger(detector, group="image")
        source.send()
        yield from bps.wait("image")
        for stream in streams:
            yield from bps.create(stream)
            yield from bps.read(detector)
            yield from bps.save()

    for streams in (("primary", "primary"), ("primary", "copy")):
        with pytest.raises(CaptureError, match="was not triggered since its last reading"):
            run_engine(bpp.stage_wrapper(bpp.run_wrapper(twice(streams)), [detector]))
        assert documents.stop["num_events"] == {"primary": 1}


def test_a_look_at_a_detector_takes_no_row(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    def plan() -> Any:
        yield from bps.trigger(detector, group="image")
        source.send()
        yield from bps.wait("image")
        looked = yield from bps.read(detector)
        assert looked[f"{KEY}_frames"]["value"] == 1
        yield from bps.create()
        yield from bps.read(detector)
        yield from bps.save()

    (uid,) = run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [detector]))
    assert stored(catalog, uid) == {"primary": [0]}


ROLLS = {
    "frames": {"roll_frames": 10},
    "bytes": {"roll_bytes": 5120},
    "seconds": {"roll_seconds": 0.2},
}


@pytest.mark.parametrize(
    ("roll", "period"), [("frames", None), ("frames", 0.01), ("bytes", 1.0), ("seconds", None)]
)
def test_rolled_files_are_one_resource(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    roll: str,
    period: float | None,
) -> None:
    """Bluesky's plain kickoff, complete and collect, and collect_while_completing."""
    for setting, value in ROLLS[roll].items():
        getattr(detector, setting).put(value)

    def plan() -> Any:
        yield from bps.prepare(detector, 40, wait=True)
        yield from bps.declare_stream(detector, name="primary", collect=True)
        yield from bps.kickoff(detector, wait=True)
        for _ in range(4):
            source.send(10)
            seen = detector.get_index()
            yield from bps.sleep(0.25 if roll == "seconds" else 0.0)
            assert seen <= 40
        if period is None:
            yield from bps.complete(detector, wait=True)
            yield from bps.collect(detector, name="primary")
        else:
            yield from bps.collect_while_completing(
                [detector], [detector], flush_period=period, stream_name="primary"
            )

    (uid,) = run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [detector]))
    assert stored(catalog, uid) == {"primary": list(range(40))}
    (resource,) = [doc for doc in documents.of("stream_resource") if doc["data_key"] == KEY]
    assert documents.stop["num_events"] == {"primary": 40}
    assert sum(names(detector.files)) == 40 and len(detector.files) >= 3
    if roll != "seconds":
        assert names(detector.files) == [10] * 4
    parameters = resource["parameters"]
    assert [file.name for file in detector.files] == [
        parameters["template"].format(number) for number in range(len(detector.files))
    ]
    assert catalog.client[uid].validate(raise_on_error=True) is True


def test_a_fly_scan_that_nobody_completes_is_an_error(
    run_engine: RunEngine, detector: FrameDetector, source: Source, documents: Documents
) -> None:
    detector.num_frames.put(0)

    def plan() -> Any:
        yield from bps.declare_stream(detector, name="primary", collect=True)
        yield from bps.kickoff(detector, wait=True)
        source.send(5)
        yield from until(lambda: detector.get_index() == 5)

    with pytest.raises(CaptureError, match="rows of .*_000000.h5 are in no document"):
        run_engine(bpp.stage_wrapper(bpp.run_wrapper(plan()), [detector]))

    def mixed() -> Any:
        yield from bps.prepare(detector, 100, wait=True)
        yield from plan()
        yield from bps.trigger(detector, wait=True)

    detector.num_frames.put(1)
    with pytest.raises(CaptureError, match="a fly scan is running; complete it first"):
        run_engine(bpp.stage_wrapper(bpp.run_wrapper(mixed()), [detector]))


def test_a_reading_in_a_fly_scan_is_refused(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    def look() -> Any:
        yield from bps.prepare(detector, 10, wait=True)
        yield from bps.declare_stream(detector, name="primary", collect=True)
        yield from bps.kickoff(detector, wait=True)
        yield from bps.read(detector)

    with pytest.raises(CaptureError, match="rows of a fly scan are collected; they cannot be read"):
        run_engine(bpp.stage_wrapper(bpp.run_wrapper(look()), [detector]))


def test_step_and_fly_scans_in_one_stage(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    def plan() -> Any:
        yield from bpp.run_wrapper(read(detector, source, "primary", 2))
        yield from fly(detector, sent(source, 3), prepared=3)
        yield from bpp.run_wrapper(read(detector, source, "primary", 2))

    uids = run_engine(bpp.stage_wrapper(plan(), [detector]))
    found = [stored(catalog, uid)["primary"] for uid in uids]
    assert found == [[0, 1], [2, 3, 4], [5, 6]]


def sent(source: Source, count: int) -> Any:
    source.send(count)
    yield from bps.null()


def test_stock_fly_plans_say_what_to_use(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    detector.num_frames.put(2)
    source.start(0.01)
    with pytest.raises(CaptureError, match="no stream was declared.*capture_during_wrapper"):
        run_engine(bpp.stage_wrapper(bp.fly([detector]), [detector]))
