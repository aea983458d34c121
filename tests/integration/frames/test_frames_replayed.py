"""Frames of a stored run, sent again by a plan."""

from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from run_documents import Documents, until
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq, FrameDetector
from daqiri_ophyd.replay import ReplayError

from .conftest import PACKETS, Source, image

KEY = "daq_port0_frames_images"


def record(run_engine: RunEngine, detector: FrameDetector, source: Source) -> None:
    """Record four images, one of them with missing packets."""
    detector.num_frames.put(0)
    detector.require_complete.put(False)

    @bpp.stage_decorator([detector])
    @bpp.run_decorator()
    def plan() -> Any:
        yield from plans.capture_during(detector, motion())

    def motion() -> Any:
        source.send(2)
        source.send(1, without=(0, 3))
        source.send(1)
        counters = detector.daq.port("port0").reorder["images"].counters
        yield from until(lambda: counters().placed == 4 * PACKETS - 2)

    run_engine(plans.engine_metadata_wrapper(plan()))


def test_frames_of_a_run_are_sent_again(
    run_engine: RunEngine, detector: FrameDetector, daq: Daq, source: Source, catalog: Catalog
) -> None:
    record(run_engine, detector, source)
    plan = daq.port("port0").reorder["images"]
    before = plan.counters()
    run_engine(plans.replay(daq.port0.tx.out, -1, catalog, max_gap=0.01))
    start = catalog.client[-1].metadata["start"]
    assert start["replay"]["packets"] == 4 * PACKETS - 2
    placed = lambda: plan.counters().placed - before.placed  # noqa: E731
    wait_for(lambda: placed() == 4 * PACKETS - 2)
    with plan.frames(timeout=5.0) as frames:
        made = [next(frames) for _ in range(2)]
    assert [frame.batch for frame in made] == [0, 1]
    for frame in made:
        np.testing.assert_array_equal(frame.data, image(frame.batch))


def test_captured_frames_are_verified(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    daq: Daq,
    source: Source,
    catalog: Catalog,
) -> None:
    record(run_engine, detector, source)
    run_engine(
        plans.verify_replay(daq.port0.tx.out, -1, daq.port0.capture, catalog, key=KEY, max_gap=0.01)
    )
    (row,) = documents.rows("verification")
    assert row["verification_identical"] == 4 * PACKETS - 2
    assert row["verification_passed"]


def test_what_frames_lack_is_named(
    run_engine: RunEngine, detector: FrameDetector, daq: Daq, source: Source, catalog: Catalog
) -> None:
    source.start()
    run_engine(bp.count([detector], 2))
    source.stop()
    with pytest.raises(ReplayError, match="no configuration with reorder plan 'port0/images'"):
        run_engine(plans.replay(daq.port0.tx.out, -1, catalog))
    with pytest.raises(ReplayError, match=r"select, rewrite is for captured packets"):
        run_engine(
            plans.replay(daq.port0.tx.out, -1, catalog, select={"udp_dst": 1}, rewrite={"a": 1})
        )
