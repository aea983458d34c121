"""Frames of a reorder plan with flows of several ports: devices, documents, catalog, replay."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from run_documents import Documents, until
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog, frames_dataset
from daqiri_ophyd.devices import CaptureError, Daq, FrameDetector, typed_tree
from daqiri_ophyd.engine import load_config
from daqiri_ophyd.replay import ReplayError
from daqiri_ophyd.replay._frame_format import FrameFormat

from .conftest import PACKETS, SHAPE, Source, configuration, fly, images

KEY = "daq_frames_images"


@pytest.fixture
def build() -> Callable[..., dict[str, Any]]:
    """The plan takes flows of port0, as that of other tests, and one of port1."""

    def build(**plan: Any) -> dict[str, Any]:
        config = configuration(**plan)
        (port,) = config["interfaces"]
        joint = port["rx"].pop("reorder_configs")[0]
        del joint["flow_ids"]
        other = deepcopy(port)
        other["name"] = "port1"
        other["rx"]["flows"] = [other["rx"]["flows"][1] | {"id": 8}]
        config["interfaces"].append(other)
        flows = ["port0/begin", "port0/data", "port1/data"]
        return config | {"reorder_configs": [joint | {"flows": flows}]}

    return build


@pytest.fixture
def detector(daq: Daq) -> FrameDetector:
    return daq.frames.images


def both_ports(source: Source, other: Source, count: int) -> Any:
    """Images, one from each port in turn."""
    for _ in range(count // 2):
        source.send(1)
        other.next = source.next
        other.send(1)
        source.next = other.next
    yield from until(lambda: True)


def test_a_fly_scan_has_the_images_of_both_ports(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    daq: Daq,
    source: Source,
    catalog: Catalog,
) -> None:
    flight = fly(detector, both_ports(source, Source(daq, "port1"), 6), prepared=6)
    (uid,) = run_engine(bpp.stage_wrapper(flight, [detector]))
    run = catalog.client[uid]
    np.testing.assert_array_equal(run["primary"][KEY].read().reshape(6, *SHAPE), images(range(6)))
    frames = frames_dataset(run)["frames"].values
    np.testing.assert_array_equal(frames.reshape(6, *SHAPE), images(range(6)))
    keys = documents.descriptor()["data_keys"]
    assert keys[KEY]["source"] == "daqiri://reorder/images"
    assert daq.reorder.images.read()["daq_reorder_images_complete_frames"]["value"] == 6
    settings = daq.reorder.images.read_configuration()
    assert settings["daq_reorder_images_flow_ids"]["value"] == [6, 7, 8]


def test_an_acquisition_begins_with_a_flow_of_any_port(
    run_engine: RunEngine, detector: FrameDetector, daq: Daq, source: Source, catalog: Catalog
) -> None:
    detector.start_flow.put("data")
    with pytest.raises(
        CaptureError, match=r"no flow 'data'; there are 'port0/begin', 'port0/data'"
    ):
        detector.start_flow_id()
    detector.start_flow.put("port1/data")
    other = Source(daq, "port1")

    def motion() -> Any:
        source.send(2)
        plan = daq.engine.reorder["images"]
        yield from until(lambda: plan.counters().complete == 2)
        yield from both_ports(other, source, 4)

    other.next = 2
    flight = fly(detector, motion(), prepared=4)
    (uid,) = run_engine(bpp.stage_wrapper(flight, [detector]))
    recorded = catalog.client[uid]["primary"][KEY].read()
    np.testing.assert_array_equal(recorded.reshape(4, *SHAPE), images(range(2, 6)))


def test_frames_are_sent_again(
    run_engine: RunEngine, detector: FrameDetector, daq: Daq, source: Source, catalog: Catalog
) -> None:
    @bpp.stage_decorator([detector])
    @bpp.run_decorator()
    def record() -> Any:
        yield from plans.capture_during(detector, motion())

    def motion() -> Any:
        source.send(3, without=(2,))
        yield from until(lambda: plan.counters().placed == 3 * (PACKETS - 1))

    detector.num_frames.put(0)
    detector.require_complete.put(False)
    plan = daq.engine.reorder["images"]
    run_engine(plans.engine_metadata_wrapper(record()))
    before = plan.counters().placed
    run_engine(plans.replay(daq.port0.tx.out, -1, catalog, max_gap=0.01))
    wait_for(lambda: plan.counters().placed - before == 3 * (PACKETS - 1))


def test_flows_that_packets_cannot_tell_apart_are_not_sent(build: Any) -> None:
    config = build(flow_stride=PACKETS // 2)
    config["reorder_configs"][0]["flows"] = ["port0/data", "port1/data"]
    with pytest.raises(
        ReplayError, match="flows 'data' and 'data' of several ports, whose packets"
    ):
        FrameFormat(load_config(config), "images", 1)


def test_the_detector_follows_the_settings_of_its_plan(
    run_engine: RunEngine, detector: FrameDetector, daq: Daq, source: Source
) -> None:
    plan = daq.reorder.images
    plan.last_frame_binning.put(2)
    seen: list[Any] = []
    plan.last_frame.subscribe(lambda value, **_: seen.append(value), run=False)
    detector.stage()
    try:
        with pytest.raises(CaptureError, match="cannot be changed while daq_frames_images is"):
            plan.last_frame_binning.put(1)
        source.start()
        wait_for(lambda: seen)
        assert seen[0].shape == (SHAPE[0] // 2, SHAPE[1] // 2)
    finally:
        source.stop()
        detector.unstage()


def test_editors_know_the_devices(daq: Daq) -> None:
    assert "class FramesImages" not in typed_tree(daq)
    assert "    reorder: Reorder\n    frames: Frames\n" in typed_tree(daq)


def test_scans_with_a_detector_in_steps(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    source.start()
    run_engine(bp.count([detector], 2))
    source.stop()
    assert [row[f"{KEY}_frames"] for row in documents.rows("primary")] == [1, 1]
