"""What a scan makes of the numbers of images: skipped ones, and those that begin anew."""

from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from run_documents import Documents, until

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq, FrameDetector

from .conftest import Source, fly

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
    assert columns[f"{KEY}_batch"].read().tolist() == [0, 1, 3, 4]
    assert columns[f"{KEY}_lossy"].read().tolist() == [False, False, True, False]
    assert detector.dropped.get() == 1


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
