"""Readings of frames that are interrupted, fail, or lose frames."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, RunEngineInterrupted
from run_documents import Documents, until

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import CaptureError, Daq, FrameDetector, PacketLossError
from daqiri_ophyd.devices.parts._status import EngineStatus
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.engine import GenericFailureError, Recorder
from daqiri_ophyd.plans import capture_during

from .conftest import PACKETS, SHAPE, Source, fly, image, images, recorded

KEY = "daq_port0_frames_images"


def batches(detector_files: list[Any]) -> list[list[int]]:
    """Return the numbers of the images in files, after a check that they equal those sent."""
    found = []
    for path in detector_files:
        with h5py.File(path) as file:
            numbers = file["entry/data/batch"][:]
            np.testing.assert_array_equal(file["entry/data/data"][:], images(numbers))
            found.append(numbers.tolist())
    return found


@pytest.mark.parametrize("num_frames", [1, 3])
def test_a_reading_that_a_pause_interrupts_is_taken_again(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    num_frames: int,
) -> None:
    detector.num_frames.put(num_frames)

    def plan() -> Any:
        yield from bps.open_run()
        for point in range(4):
            yield from bps.checkpoint()
            yield from bps.trigger(detector, group="reading")
            if point == 2:
                source.send(num_frames - 1)
                expected = 3 * num_frames - 1
                yield from until(lambda count=expected: detector.progress.frames == count)
                yield from bps.pause()
            elif point < 2:
                source.send(num_frames)
            yield from bps.wait("reading")
            yield from bps.create()
            yield from bps.read(detector)
            if point == 3:
                yield from bps.pause()  # it is read, and in no document
            yield from bps.save()
        yield from bps.close_run()

    with pytest.raises(RunEngineInterrupted):
        run_engine(bpp.stage_wrapper(plan(), [detector]))
    source.start()
    with pytest.raises(RunEngineInterrupted):
        run_engine.resume()
    run_engine.resume()
    column = catalog.client[documents.of("start")[0]["uid"]]["primary"].base
    numbers = column[f"{KEY}_batch"].read().reshape(4, num_frames)
    np.testing.assert_array_equal(
        column[KEY].read().reshape(4, num_frames, *SHAPE), images(numbers)
    )
    assert numbers[:2].tolist() == np.arange(2 * num_frames).reshape(2, -1).tolist()
    assert (np.diff(numbers, axis=1) == 1).all()
    assert (numbers[2:] >= 3 * num_frames - 1).all()  # nothing of what was interrupted
    assert numbers[3, 0] > numbers[2, -1] + num_frames - 1  # the first attempt is left out


def test_an_aborted_reading_leaves_whole_rows_and_an_idle_engine(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
) -> None:
    detector.num_frames.put(2)
    files = []

    def plan() -> Any:
        yield from bps.open_run()
        yield from bps.trigger(detector, group="reading")
        source.send(2)
        yield from bps.wait("reading")
        yield from bps.create()
        yield from bps.read(detector)
        yield from bps.save()
        files.extend(detector.files)
        yield from bps.trigger(detector)
        source.send(1)
        yield from until(lambda: detector.progress.frames == 3)
        yield from bps.pause()

    with pytest.raises(RunEngineInterrupted):
        run_engine(bpp.stage_wrapper(plan(), [detector]))
    run_engine.abort()
    assert documents.of("stop")[0]["exit_status"] == "abort"
    assert batches(files) == [[0, 1]]
    column = catalog.client[documents.of("start")[0]["uid"]]["primary"].base[KEY]
    assert column.read().shape == (1, 2, *SHAPE)
    assert detector.progress is None
    assert daq.rx_queue("port0", "q").counters().held == 0
    with daq.port("port0").reorder["images"].frames(timeout=5.0) as frames:
        source.send(1)
        assert next(frames).batch == 3


@pytest.mark.parametrize(
    ("policy", "window"), [("fail", 2), ("flag", 2), ("ignore", 2), ("fail", 8), ("flag", 8)]
)
def test_lost_frames_fail_flag_or_are_ignored(
    run_engine: RunEngine,
    documents: Documents,
    make: Callable[..., Daq],
    policy: str,
    window: int,
) -> None:
    # In a window of eight frames, the lost one is open when the reading is complete.
    daq = make(window=window).open()
    detector, source = daq.port0.frames.images, Source(daq)
    engine_plan = daq.port("port0").reorder["images"]
    detector.on_drop.put(policy)
    detector.num_frames.put(2)
    # All buffers.
    with engine_plan.frames(timeout=20.0) as frames:
        source.send(64)
        held = [next(frames) for _ in range(64)]

    def plan() -> Any:
        yield from bps.open_run()
        yield from bps.trigger(detector, group="reading")
        source.send(1)
        yield from until(lambda: engine_plan.counters().no_buffer == PACKETS)
        held.clear()
        source.send(2)
        yield from bps.wait("reading")
        yield from bps.create()
        yield from bps.read(detector)
        yield from bps.save()
        yield from bps.close_run()

    if policy == "fail":
        with pytest.raises(FailedStatus, match="1 frames were lost") as failed:
            run_engine(bpp.stage_wrapper(plan(), [detector]))
        assert isinstance(failed.value.__cause__, PacketLossError)
        return
    run_engine(bpp.stage_wrapper(plan(), [detector]))
    flag = {f"{KEY}_lossy": True} if policy == "flag" else {}
    counters = {f"{KEY}_frames": 2, f"{KEY}_dropped": 1, f"{KEY}_missing_packets": PACKETS}
    counters[f"{KEY}_lost_before_engine"] = 0
    assert documents.rows() == [counters | flag]


@pytest.mark.parametrize("policy", ["fail", "flag", "ignore"])
def test_lost_frames_of_a_fly_scan_fail_flag_or_are_ignored(
    run_engine: RunEngine,
    documents: Documents,
    make: Callable[..., Daq],
    catalog: Catalog,
    policy: str,
) -> None:
    daq = make().open()
    detector, source = daq.port0.frames.images, Source(daq)
    engine_plan = daq.port("port0").reorder["images"]
    detector.on_drop.put(policy)
    # All buffers, and a frame that is lost before the scan.
    with engine_plan.frames(timeout=20.0) as frames:
        source.send(64)
        held = [next(frames) for _ in range(64)]
    source.send(1)
    # The first loss that is detected is a failure.
    losses = 1 if policy == "fail" else 2

    def plan() -> Any:
        yield from until(lambda: engine_plan.counters().no_buffer == PACKETS)
        yield from bps.prepare(detector, 3 + losses, wait=True)
        yield from bps.open_run()
        yield from bps.declare_stream(detector, name="primary", collect=True)
        yield from bps.kickoff(detector, wait=True)
        source.send(losses)
        yield from until(lambda: engine_plan.counters().no_buffer == (1 + losses) * PACKETS)
        for count in range(1, 4):
            held.pop()
            source.send(1)
            if policy != "fail":
                yield from until(lambda n=count: detector.get_index() == losses + n)
        yield from bps.collect_while_completing(
            [detector], [detector], flush_period=0.05, stream_name="primary"
        )
        yield from bps.close_run()

    if policy == "fail":
        with pytest.raises(FailedStatus, match=": 1 frames were lost"):
            run_engine(bpp.stage_wrapper(plan(), [detector]))
        return
    run_engine(bpp.stage_wrapper(plan(), [detector]))
    assert detector.dropped.get() == 2
    run = catalog.client[documents.of("start")[0]["uid"]]
    columns = run["primary"].base
    assert columns[f"{KEY}_batch"].read().tolist() == [65, 66, 67, 68, 69]
    assert columns[f"{KEY}_missing"].read().tolist() == [PACKETS, PACKETS, 0, 0, 0]
    assert (f"{KEY}_lossy" in columns) == (policy == "flag")
    if policy == "flag":
        lossy = columns[f"{KEY}_lossy"].read()
        # Those that were lost, and the one after them.
        assert lossy.dtype == bool and lossy.tolist() == [True, True, True, False, False]
    assert run.validate(raise_on_error=True) is True


def test_incomplete_frames_are_told_or_refused(
    run_engine: RunEngine, documents: Documents, make: Callable[..., Daq]
) -> None:
    daq = make(timeout_us=50_000).open()
    detector, source = daq.port0.frames.images, Source(daq)

    def plan() -> Any:
        yield from bps.open_run()
        yield from bps.trigger(detector, group="reading")
        source.send(1, without=(2, 5))
        yield from bps.wait("reading")
        yield from bps.create()
        yield from bps.read(detector)
        yield from bps.save()
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [detector]))
    assert documents.rows()[0][f"{KEY}_missing_packets"] == 2
    detector.require_complete.put(True)
    with pytest.raises(FailedStatus, match="2 packets are missing in frames"):
        run_engine(bpp.stage_wrapper(plan(), [detector]))


def test_a_reading_ends_when_the_engine_is_closed(
    run_engine: RunEngine, detector: FrameDetector, source: Source, daq: Daq
) -> None:
    def plan() -> Any:
        yield from bps.trigger(detector, group="reading")
        daq.close()
        yield from bps.wait("reading")

    with pytest.raises(FailedStatus, match="stopped before its frames came"):
        run_engine(bpp.stage_wrapper(plan(), [detector]))


def test_what_cannot_be_done_is_said(
    run_engine: RunEngine, detector: FrameDetector, make: Callable[..., Daq]
) -> None:
    with pytest.raises(CaptureError, match="is not staged, so its files would belong to no run"):
        detector.trigger()
    detector.stage()
    with pytest.raises(CaptureError, match="num_frames cannot be changed while"):
        detector.num_frames.put(2)
    with pytest.raises(CaptureError, match="no fly scan to complete; kick it off first"):
        detector.complete()
    with pytest.raises(TypeError, match="accepted are a number of frames, and a TriggerInfo"):
        detector.prepare("many")
    detector.unstage()
    detector.num_frames.put(0)
    detector.stage()
    with pytest.raises(CaptureError, match="a reading needs frames. Set num_frames to 1 or more"):
        detector.trigger()
    detector.unstage()
    shapeless = make(frame=None).port0.frames.images
    with pytest.raises(CaptureError, match="has no key frame"):
        shapeless.describe()


def test_a_fly_scan_lasts_as_long_as_a_plan(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
) -> None:
    detector.num_frames.put(0)

    @bpp.stage_decorator([detector])
    @bpp.run_decorator()
    def plan() -> Any:
        def during() -> Any:
            for n in range(1, 6):
                source.send(3)
                yield from recorded(detector, 3 * n)

        yield from capture_during(detector, during(), flush_period=0.05)

    run_engine(plan())
    columns = catalog.client[documents.of("start")[0]["uid"]]["primary"].base
    assert columns[f"{KEY}_batch"].read().tolist() == list(range(15))
    np.testing.assert_array_equal(columns[KEY].read(), images(range(15)))


def test_the_last_frame_is_a_signal(daq: Daq, source: Source) -> None:
    signal = daq.port0.reorder.images.last_frame
    key = signal.describe()[signal.name]
    assert (key["shape"], key["dtype_numpy"], key["dtype"]) == ([*SHAPE], "<u2", "array")
    assert not signal.get().any()
    seen: list[Any] = []
    signal.subscribe(lambda *, value, **_: seen.append(value), run=False)
    source.start(0.02)
    end = until(lambda: len(seen) >= 3)
    for _ in end:
        pass
    source.stop()
    for value in seen:
        assert any((value == image(batch)).all() for batch in range(source.next))
    plan = daq.port0.reorder.images
    counted = lambda: plan.read()["daq_port0_reorder_images_packets"]["value"]  # noqa: E731
    for _ in until(lambda: counted() == source.next * PACKETS):
        pass


@pytest.mark.parametrize("again", [False, True])
def test_frames_that_could_not_be_taken_back_are_cut_off(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
) -> None:
    """Either when the device is unstaged, or before the next reading, which uses another file."""
    detector.num_frames.put(2)

    def refuse(_recorder: Recorder, _frames: int) -> None:
        raise GenericFailureError("the disk is slow")

    def reading() -> Any:
        yield from bps.trigger(detector, group="reading")
        source.send(2)
        yield from bps.wait("reading")
        yield from bps.create()
        yield from bps.read(detector)
        yield from bps.save()

    def plan() -> Any:
        yield from bps.open_run()
        yield from reading()
        yield from bps.trigger(detector)
        source.send(1)
        yield from until(lambda: detector.progress.flushed == 3)
        with monkeypatch.context() as patch:
            patch.setattr(Recorder, "rewind", refuse)
            with pytest.raises(CaptureError, match="has frames of a reading that is in no docum"):
                detector.trigger()
        if again:
            yield from reading()
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [detector]))
    uris = dict.fromkeys(doc["uri"] for doc in documents.of("stream_resource"))
    files = [Path(uri.removeprefix("file://localhost")) for uri in uris]
    assert batches(files) == ([[0, 1], [3, 4]] if again else [[0, 1]])
    first = files[0]
    told = json.loads(sidecar_path(first).read_bytes())
    assert (told["frames"], told["left_out_by_reason"]["rewound"]) == (2, 1)
    (line,) = first.with_name(f"{first.name}.repair.jsonl").read_text().splitlines()
    assert json.loads(line)["frames_cut"] == 1


def test_a_fly_scan_fails_also_if_its_status_takes_a_while_to_call_back(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its status is done before the RunEngine learns that it failed."""

    def take_a_while(status: EngineStatus) -> None:
        time.sleep(0.5)

    monkeypatch.setattr(EngineStatus, "_handle_failure", take_a_while)
    detector.num_frames.put(10)
    detector.timeout.put(0.2)

    with pytest.raises(FailedStatus, match=r"no progress for 0\.2 s"):
        run_engine(bpp.stage_wrapper(fly(detector), [detector]))
    assert documents.stop["exit_status"] == "fail"
