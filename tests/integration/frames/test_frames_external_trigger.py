"""Fly scans whose detector is triggered from outside, as plans with a PandA trigger it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, RunEngineInterrupted
from run_documents import Documents, until

from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.devices import CaptureError, Daq, FrameDetector
from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import PcapFile

from .conftest import PACKETS, Source, images, take_reading

ophyd_async = pytest.importorskip("ophyd_async.core", reason="needs ophyd-async")
EDGE = ophyd_async.DetectorTrigger.EXTERNAL_EDGE
LEVEL = ophyd_async.DetectorTrigger.EXTERNAL_LEVEL
KEY = "daq_port0_frames_images"


@dataclass
class Pulses(ophyd_async.FlyableLogic[int, int]):
    """Sends trigger pulses, as a PandA does; at each, the detector sends an image."""

    source: Source

    async def on_prepare(self, value: int) -> int:
        return value

    async def on_kickoff(self, ctx: int) -> int:
        # All of them: the receivers are kicked off later.
        await asyncio.to_thread(self.source.send, ctx)
        return ctx

    async def on_complete(self, ctx: int) -> None:
        pass


def fly_and_collect(flyer: Any, detectors: list[Any]) -> Iterator[Any]:
    """A fly scan as beamlines with a PandA write it: the pulses may be over before the kickoff."""
    yield from bps.declare_stream(*detectors, name="main", collect=True)
    yield from bps.kickoff(flyer, wait=True)
    yield from bps.kickoff_all(*detectors, wait=True)
    yield from bps.collect_while_completing(
        [flyer, *detectors], detectors, flush_period=0.05, stream_name="main"
    )


@pytest.fixture
def panda(source: Source) -> Any:
    return Pulses(source).with_device(name="panda")


@pytest.mark.parametrize("trigger", [EDGE, LEVEL], ids=["edge", "level"])
@pytest.mark.parametrize("order", ["run first", "prepare first"])
def test_images_that_come_before_the_kickoff_are_rows(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
    panda: Any,
    trigger: Any,
    order: str,
) -> None:
    capture = daq.port0.rx.q.capture
    capture.roll_packets.put(PACKETS)
    detectors = [detector, capture]
    given = ophyd_async.TriggerInfo(
        number_of_events=5, trigger=trigger, livetime=0.004, deadtime=0.001
    )

    def plan() -> Iterator[Any]:
        if order == "run first":
            yield from bps.open_run()
        yield from bps.prepare(panda, 5, wait=True)
        for device in detectors:
            yield from bps.prepare(device, given, wait=True)
        if order == "prepare first":
            yield from bps.open_run()
        yield from fly_and_collect(panda, detectors)
        yield from bps.close_run()

    (uid,) = run_engine(bpp.stage_wrapper(plan(), [*detectors, panda]))
    assert documents.stop["num_events"] == {"main": 5}
    run = catalog.client[uid]
    np.testing.assert_array_equal(run["main"].base[KEY].read(), images(range(5)))
    paths = capture_files(run, key=f"{capture.name}_files")
    for number, path in enumerate(paths):
        with PcapFile(path) as file:
            pixels = np.concatenate([packet[46:] for packet in file[:]]).view(np.uint16)
        np.testing.assert_array_equal(pixels.reshape(images(0).shape), images(number))
    with h5py.File(detector.files[0]) as file:
        assert file["entry/entry_identifier"].asstr()[()] == uid
    assert not capture.prepared and capture.deadtime.get() == 0


def info(**values: Any) -> Any:
    return ophyd_async.TriggerInfo(trigger=EDGE, **values)


def flight(panda: Any, detectors: list[Any], given: Any, pulses: int) -> Iterator[Any]:
    """A run with one flight."""
    for device in detectors:
        yield from bps.prepare(device, given, wait=True)
    yield from bps.prepare(panda, pulses, wait=True)
    yield from bpp.run_wrapper(fly_and_collect(panda, detectors))


def test_each_flight_is_prepared_and_rows_go_on(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    catalog: Catalog,
    panda: Any,
) -> None:
    def plan() -> Iterator[Any]:
        yield from bps.open_run()
        for count in (2, 3):
            yield from bps.prepare(detector, info(number_of_events=count), wait=True)
            yield from bps.prepare(panda, count, wait=True)
            yield from fly_and_collect(panda, [detector])
        yield from bps.close_run()

    (uid,) = run_engine(bpp.stage_wrapper(plan(), [detector, panda]))
    assert documents.stop["num_events"] == {"main": 5}
    columns = catalog.client[uid]["main"].base
    np.testing.assert_array_equal(columns[KEY].read(), images(range(5)))


def test_frames_without_a_number_last_until_complete(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, panda: Any
) -> None:
    detector.linger.put(0.0)
    run_engine(
        bpp.stage_wrapper(flight(panda, [detector], info(number_of_events=0), 4), [detector, panda])
    )
    assert documents.stop["num_events"] == {"main": 4}


def test_missing_triggers_fail_with_their_number(
    run_engine: RunEngine, detector: FrameDetector, panda: Any
) -> None:
    given = info(number_of_events=5, exposure_timeout=0.5)
    with pytest.raises(FailedStatus, match="no progress for 0.5 s: 3 of 5 frames"):
        run_engine(bpp.stage_wrapper(flight(panda, [detector], given, 3), [detector, panda]))


def test_an_exposure_may_be_longer_than_the_timeout(detector: FrameDetector, daq: Daq) -> None:
    detector.timeout.put(0.25)
    capture = daq.port0.capture
    capture.timeout.put(0.25)
    capture.roll_packets.put(PACKETS)
    for device in (detector, capture):
        device.stage()
        device.prepare(info(livetime=60.0, deadtime=0.5)).wait(60)
        device.kickoff().wait(60)
        status = device.complete()
        assert status.timeout == 60.75
        device.stop()
        device.unstage()


@pytest.mark.files_in_no_document("frames of a preparation that was never kicked off")
def test_a_preparation_that_is_not_kicked_off_is_no_flight(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
    caplog: pytest.LogCaptureFixture,
) -> None:
    capture = daq.port0.rx.q.capture
    capture.roll_packets.put(PACKETS)
    devices = [detector, capture]

    def frames(count: int) -> Iterator[Any]:
        source.send(count)
        yield from until(lambda: detector.get_index() == capture.get_index() == count)

    def plan() -> Iterator[Any]:
        yield from bps.open_run()
        for device in devices:
            yield from bps.prepare(device, info(number_of_events=4), wait=True)
            with pytest.raises(CaptureError, match="no fly scan to complete; kick it off first"):
                device.complete()
        yield from frames(2)
        for device in devices:
            yield from bps.prepare(device, info(number_of_events=3), wait=True)
        assert "there was no kickoff" in caplog.text
        yield from bps.declare_stream(*devices, name="main", collect=True)
        yield from bps.kickoff_all(*devices, wait=True)
        source.send(3)
        yield from bps.collect_while_completing(devices, devices, 0.05, stream_name="main")
        for device in devices:
            yield from bps.prepare(device, info(number_of_events=1), wait=True)
        yield from bps.close_run()

    (uid,) = run_engine(bpp.stage_wrapper(plan(), devices))
    assert documents.stop["num_events"] == {"main": 3}
    columns = catalog.client[uid]["main"].base
    np.testing.assert_array_equal(columns[KEY].read(), images(range(2, 5)))


@pytest.mark.files_in_no_document("the empty file of a preparation that was never kicked off")
def test_readings_after_a_preparation(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    def plan() -> Iterator[Any]:
        yield from bps.prepare(detector, info(number_of_events=4), wait=True)
        yield from bps.open_run()
        yield from take_reading(detector, source)
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [detector]))
    assert documents.stop["num_events"] == {"primary": 1}


@pytest.mark.files_in_no_document("those of the preparation before the pause")
@pytest.mark.parametrize("again", [False, True], ids=["goes on", "is prepared again"])
def test_a_pause_before_the_kickoff(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    daq: Daq,
    again: bool,
) -> None:
    capture = daq.port0.rx.q.capture
    capture.roll_packets.put(PACKETS)
    devices = [detector, capture]
    paused = []

    def plan() -> Iterator[Any]:
        yield from bps.open_run()
        yield from bps.checkpoint()
        for device in devices:
            yield from bps.prepare(device, info(number_of_events=2), wait=True)
        if not again:
            yield from bps.checkpoint()
        if not paused:
            paused.append(True)
            yield from bps.pause()
        source.send(2)
        yield from bps.declare_stream(*devices, name="main", collect=True)
        yield from bps.kickoff_all(*devices, wait=True)
        yield from bps.collect_while_completing(devices, devices, 0.05, stream_name="main")
        yield from bps.close_run()

    with pytest.raises(RunEngineInterrupted):
        run_engine(bpp.stage_wrapper(plan(), devices))
    source.send()  # while paused
    run_engine.resume()
    assert documents.stop["exit_status"] == "success"
    assert documents.stop["num_events"] == {"main": 2}
    assert detector.progress is None


def test_losses_before_the_kickoff_fail_it(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    def plan() -> Iterator[Any]:
        yield from bps.open_run()
        yield from bps.prepare(detector, info(number_of_events=4), wait=True)
        source.send()
        source.next += 1  # one does not come
        source.send(2)
        yield from until(lambda: detector.failed)
        yield from bps.kickoff(detector, wait=True)

    with pytest.raises(CaptureError, match="images failed: 1 frames were lost"):
        run_engine(bpp.stage_wrapper(plan(), [detector]))


def test_the_time_of_a_flight_begins_at_its_kickoff(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, panda: Any, source: Source
) -> None:
    detector.acquire_time.put(0.2)

    def plan() -> Iterator[Any]:
        yield from bps.prepare(detector, info(number_of_events=0), wait=True)
        yield from bps.sleep(0.3)  # longer than the flight
        yield from bps.prepare(panda, 3, wait=True)
        yield from bpp.run_wrapper(fly_and_collect(panda, [detector]))

    run_engine(bpp.stage_wrapper(plan(), [detector, panda]))
    assert documents.stop["num_events"] == {"main": 3}


def test_files_that_were_complete_before_the_run_tell_it(
    run_engine: RunEngine, detector: FrameDetector, panda: Any, source: Source
) -> None:
    detector.roll_frames.put(2)

    def plan() -> Iterator[Any]:
        yield from bps.prepare(detector, info(number_of_events=5), wait=True)
        for _ in range(5):
            source.send()
        recorder = detector._rows.recorder
        yield from until(lambda: len(recorder.files()) == 2 and recorder.snapshot().acquired == 5)
        yield from bps.open_run(md={"energy": 12.4})
        yield from bps.declare_stream(detector, name="main", collect=True)
        yield from bps.kickoff(detector, wait=True)
        yield from bps.collect_while_completing([detector], [detector], 0.05, stream_name="main")
        yield from bps.close_run()

    (uid,) = run_engine(bpp.stage_wrapper(plan(), [detector]))
    files, (master,) = detector.files, detector.masters
    assert len(files) == 3
    assert {read_sidecar(path).run["uid"] for path in [*files, master]} == {uid}
    with h5py.File(master) as file:
        assert file["entry/entry_identifier"].asstr()[()] == uid
        assert file["entry/run/energy"][()] == 12.4


def test_a_path_that_is_named_after_a_run_needs_one(
    run_engine: RunEngine, detector: FrameDetector, panda: Any
) -> None:
    detector.path.put("{scan_id}")
    plan = flight(panda, [detector], info(number_of_events=1), 1)
    with pytest.raises(CaptureError, match="named after a run: prepare it after open_run"):
        run_engine(bpp.stage_wrapper(plan, [detector, panda]))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"livetime": 0.1}, "livetime is 0.1 and trigger is INTERNAL.*Set that at the detector"),
        ({"deadtime": 0.1}, "deadtime is 0.1 and trigger is INTERNAL.*set at the detector"),
        ({"collections_per_event": 3}, "collections_per_event is 3; accepted is 1: a row has one"),
        ({"exposures_per_collection": 2}, "exposures_per_collection is 2; accepted is 1"),
    ],
)
def test_what_a_detector_cannot_do_is_refused_by_name(
    detector: FrameDetector, values: dict[str, Any], message: str
) -> None:
    detector.stage()
    with pytest.raises(CaptureError, match=message):
        detector.prepare(ophyd_async.TriggerInfo(**values))
    assert detector.prepared is None
    detector.unstage()
