"""What a scan makes of the numbers of images: skipped ones, and those that begin anew."""

from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from run_documents import Documents, until

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import CaptureError, Daq, FrameDetector
from daqiri_ophyd.engine import ethernet

from .conftest import PACKETS, Source, fly, image

KEY = "daq_port0_frames_images"


@pytest.mark.parametrize("policy", ["fail", "flag"])
def test_a_skipped_image_of_a_fly_scan_is_a_loss(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
    policy: str,
) -> None:
    detector.on_drop.put(policy)
    counters = daq.port("port0").reorder["images"].counters

    def motion() -> Any:
        source.send(2)
        source.next += 1
        # The second one after the gap shows that the image in it does not come.
        source.send(2)
        yield from until(lambda: counters().skipped == 1)

    plan = bpp.stage_wrapper(fly(detector, motion(), prepared=4), [detector])
    if policy == "fail":
        with pytest.raises(FailedStatus, match="1 frames were lost: no packet of them came"):
            run_engine(plan)
        assert documents.stop["exit_status"] == "fail"
        return
    (uid,) = run_engine(plan)
    columns = catalog.client[uid]["primary"].base
    assert columns[f"{KEY}_batch"].read().tolist() == [0, 1, 2, 3]
    assert columns[f"{KEY}_missing"].read().tolist() == [0, 0, PACKETS, 0]
    assert columns[f"{KEY}_lossy"].read().tolist() == [False, False, True, True]
    assert detector.dropped.get() == 1


def test_row_i_of_a_fly_scan_is_trigger_i(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    daq: Daq,
) -> None:
    """Images are lost at the start and in the middle, with packets of others."""
    counters = daq.port("port0").reorder["images"].counters
    detector.on_drop.put("flag")
    detector.first_number.put(0)

    def motion() -> Any:
        for number in (2, 3, 6, 7, 8, 9):
            source.next = number
            source.send(1, without=(4,) if number == 6 else ())
        yield from until(lambda: counters().skipped == 4)

    (uid,) = run_engine(bpp.stage_wrapper(fly(detector, motion(), prepared=8), [detector]))
    columns = catalog.client[uid]["primary"].base
    lost = np.array([1, 1, 0, 0, 1, 1, 0, 0], bool)
    assert columns[f"{KEY}_batch"].read().tolist() == list(range(8))
    assert columns[f"{KEY}_missing"].read().tolist() == [*(PACKETS * lost[:6]).tolist(), 1, 0]
    lossy = lost | np.insert(lost[:-1], 0, False)
    assert columns[f"{KEY}_lossy"].read().tolist() == lossy.tolist()
    pixels = columns[KEY].read()
    assert pixels[lost].max() == 0
    assert all((pixels[row] == image(row)).all() for row in (2, 3, 7))
    assert detector.dropped.get() == 4
    assert documents.stop["exit_status"] == "success"
    (descriptor,) = documents.of("descriptor")
    settings = descriptor["configuration"]["daq_port0_frames_images"]["data"]
    assert settings[f"{KEY}_first_number"] == 0


def test_a_first_number_beyond_the_counter_is_refused_by_name(
    detector: FrameDetector, source: Source
) -> None:
    detector.stage()
    try:
        detector.first_number.put(2**32 - 1)
        with pytest.raises(CaptureError, match="images_first_number: the number of the first"):
            detector.trigger()
        detector.first_number.put(-1)
        status = detector.trigger()
        source.send(1)
        status.wait(60)
    finally:
        detector.unstage()


@pytest.mark.parametrize("images", [1, 3])
def test_readings_of_a_camera_that_counts_from_zero(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    images: int,
) -> None:
    detector.num_frames.put(images)

    def plan() -> Any:
        yield from bps.open_run()
        for _ in range(4):
            yield from bps.trigger(detector, group="reading")
            source.next = 0
            source.send(images)
            yield from bps.wait("reading")
            yield from bps.create()
            yield from bps.read(detector)
            yield from bps.save()
        yield from bps.close_run()

    (uid,) = run_engine(bpp.stage_wrapper(plan(), [detector]))
    batches = catalog.client[uid]["primary"].base[f"{KEY}_batch"].read()
    assert batches.reshape(4, images).tolist() == [list(range(images))] * 4
    dropped = [row[f"{KEY}_dropped"] for row in documents.rows()]
    assert dropped == [0] * 4


def send_short_packets(daq: Daq, count: int) -> None:
    """Send packets that have no number."""
    packets = ethernet.udp_frames(
        np.zeros((count, 2), np.uint8),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )
    queue = daq.tx_queue("port0", "out")
    assert queue.send(packets) == count
    assert queue.wait_sent(5.0)


def test_what_is_open_when_a_fly_scan_ends_is_recorded(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog, daq: Daq
) -> None:
    detector.num_frames.put(0)
    counters = daq.port("port0").reorder["images"].counters

    def motion() -> Any:
        source.send(3)
        source.send(1, without=(2,))
        source.send(3)
        source.send(1, without=(0, 5))
        yield from until(lambda: counters().placed == 8 * PACKETS - 3)

    (uid,) = run_engine(bpp.stage_wrapper(fly(detector, motion()), [detector]))
    columns = catalog.client[uid]["primary"].base
    assert columns[f"{KEY}_batch"].read().tolist() == list(range(8))
    assert columns[f"{KEY}_missing"].read().tolist() == [0, 0, 0, 1, 0, 0, 0, 2]


@pytest.mark.parametrize("policy", ["fail", "flag"])
def test_packets_that_belong_to_no_frame_are_a_loss_of_their_reading(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    daq: Daq,
    policy: str,
) -> None:
    detector.on_drop.put(policy)
    counters = daq.port("port0").reorder["images"].counters

    def plan() -> Any:
        yield from bps.open_run()
        for short in (0, 3, 0):
            yield from bps.trigger(detector, group="reading")
            send_short_packets(daq, short)
            yield from until(lambda short=short: counters().malformed >= short)
            source.send(1)
            yield from bps.wait("reading")
            yield from bps.create()
            yield from bps.read(detector)
            yield from bps.save()
        yield from bps.close_run()

    plan = bpp.stage_wrapper(plan(), [detector])
    if policy == "fail":
        with pytest.raises(FailedStatus, match="3 packets of .* belong to no frame"):
            run_engine(plan)
        assert len(documents.rows()) == 1
        return
    run_engine(plan)
    assert [row[f"{KEY}_lossy"] for row in documents.rows()] == [False, True, False]


@pytest.mark.usefixtures("source")
def test_a_fly_scan_whose_packets_belong_to_no_frame_fails(
    run_engine: RunEngine, detector: FrameDetector, daq: Daq
) -> None:
    detector.num_frames.put(0)
    detector.on_drop.put("ignore")
    counters = daq.port("port0").reorder["images"].counters

    def motion() -> Any:
        send_short_packets(daq, 5)
        yield from until(lambda: counters().malformed == 5)

    with pytest.raises(FailedStatus, match=r"has no frames: .*\(5 malformed\)"):
        run_engine(bpp.stage_wrapper(fly(detector, motion()), [detector]))
