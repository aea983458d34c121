"""The live view of frames, with no recorder: the first thing at a beamline."""

from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from run_documents import new_run_engine, until
from waiting import wait_for

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq, FrameDetector

from .conftest import SHAPE, Source, fly, image, images

BUFFERS = 64
KEY = "daq_port0_frames_images"


def counters(daq: Daq) -> Any:
    return daq.port("port0").reorder["images"].counters()


def sent(daq: Daq, source: Source, count: int) -> None:
    """Send frames and wait until they are made."""
    source.send(count)
    wait_for(lambda: counters(daq).complete == source.next)


def test_the_live_view_continues_when_all_buffers_are_in_use(daq: Daq, source: Source) -> None:
    plan = daq.port0.reorder.images
    assert not plan.last_frame.get().any()
    for number in range(3 * BUFFERS):
        sent(daq, source, 1)
        np.testing.assert_array_equal(plan.last_frame.get(), image(number))
    reading = plan.read()
    counted = {"complete": 3 * BUFFERS, "untaken": 2 * BUFFERS, "lost": 0}
    for name, count in counted.items():
        assert reading[f"{plan.name}_{name}_frames"]["value"] == count
    assert reading[f"{plan.name}_no_buffer"]["value"] == 0
    with daq.port("port0").reorder["images"].frames() as waiting:
        numbers = [next(waiting).batch for _ in range(BUFFERS)]
    assert numbers == list(range(2 * BUFFERS, 3 * BUFFERS))


def test_a_monitored_live_view_has_events_without_a_recorder(daq: Daq, source: Source) -> None:
    signal = daq.port0.reorder.images.last_frame
    sent(daq, source, 2 * BUFFERS)
    documents: list[Any] = []
    events = lambda: [doc for name, doc in documents if name == "event"]  # noqa: E731

    @bpp.run_decorator()
    def plan() -> Any:
        yield from bps.monitor(signal, name="live")
        source.start()
        yield from until(lambda: len(events()) >= 4)
        yield from bps.unmonitor(signal)

    with new_run_engine() as run_engine:
        run_engine.subscribe(lambda name, doc: documents.append((name, doc)))
        run_engine(plan())
    source.stop()
    later = images(range(2 * BUFFERS, source.next))
    for event in events()[1:]:  # the first one is of the subscription
        assert (later == event["data"][signal.name]).all(axis=(1, 2)).any()
    assert counters(daq).lost == 0


@pytest.mark.parametrize("flown", [False, True])
def test_frames_from_before_an_acquisition_are_in_no_row(
    run_engine: RunEngine,
    detector: FrameDetector,
    daq: Daq,
    source: Source,
    catalog: Catalog,
    flown: bool,
) -> None:
    sent(daq, source, 2 * BUFFERS)
    source.start()
    if flown:
        (uid,) = run_engine(bpp.stage_wrapper(fly(detector, prepared=3), [detector]))
    else:
        (uid,) = run_engine(bp.count([detector], 3))
    source.stop()
    columns = catalog.client[uid]["primary"].base
    batches = columns[f"{KEY}_batch"].read().ravel()
    assert batches.min() >= 2 * BUFFERS
    pixels = columns[KEY].read().reshape(-1, *SHAPE)
    np.testing.assert_array_equal(pixels, images(batches))
    # At least those that waited.
    assert counters(daq).untaken >= 2 * BUFFERS
    assert counters(daq).lost == 0
