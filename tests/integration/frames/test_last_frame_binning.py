"""The live frame of a plan, binned for displays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from numpy.typing import NDArray
from run_documents import new_run_engine, until

from daqiri_ophyd.devices import CaptureError, Daq, FrameDetector

from ..binned_previews import means
from .conftest import SHAPE, Source, image

PLAN = "daq_port0_reorder_images"
NAME = f"{PLAN}_last_frame_binning"


def waited(condition: Callable[[], object]) -> None:
    for _ in until(condition):
        pass


def is_one_of(value: NDArray[Any], binning: int, source: Source) -> bool:
    made = [image(batch) for batch in range(source.next)]
    return any(np.array_equal(value, means(each, binning)) for each in made)


def test_the_last_frame_has_means(daq: Daq, source: Source) -> None:
    plan = daq.port0.reorder.images
    signal = plan.last_frame
    assert plan.last_frame_binning.get() == 1
    plan.last_frame_binning.set(4).wait(1)
    key = signal.describe()[signal.name]
    assert (key["shape"], key["dtype_numpy"], key["dtype"]) == ([2, 8], "<f4", "array")
    assert (signal.get().shape, signal.get().dtype) == ((2, 8), np.float32)
    seen: list[Any] = []
    signal.subscribe(lambda *, value, **_: seen.append(value), run=False)
    source.start(0.02)
    waited(lambda: len(seen) >= 3)
    # While it is watched, new frames have the new binning.
    plan.last_frame_binning.put(3)
    assert signal.describe()[signal.name]["shape"] == [2, 10]
    assert signal.get().shape == (2, 10)
    waited(lambda: seen[-1].shape == (2, 10) and signal.get().any())
    plan.last_frame_binning.put(1)
    assert (signal.get().shape, signal.get().dtype) == (SHAPE, np.uint16)
    waited(lambda: seen[-1].shape == SHAPE and signal.get().any())
    source.stop()
    for binning, shape in ((4, (2, 8)), (3, (2, 10))):
        of_shape = [value for value in seen if value.shape == shape]
        assert of_shape
        assert all(is_one_of(value, binning, source) for value in of_shape)


@pytest.mark.parametrize(
    ("value", "error", "why"),
    [
        (0, ValueError, ": reorder plan 'images': binning is 0; accepted is 1 to 8, the shorter "),
        (9, ValueError, ": reorder plan 'images': binning is 9; accepted is 1 to 8, the shorter "),
        (2.5, TypeError, " is 2.5; accepted is an integer."),
        ("2", TypeError, " is '2'; accepted is an integer."),
    ],
)
def test_values_that_are_not_accepted(
    daq: Daq, value: Any, error: type[Exception], why: str
) -> None:
    plan = daq.port0.reorder.images
    plan.last_frame_binning.put(2)
    with pytest.raises(error) as raised:
        plan.last_frame_binning.set(value)
    assert str(raised.value).startswith(f"{NAME}{why}")
    assert plan.last_frame_binning.get() == 2


def test_frames_of_one_axis_have_no_means(make: Callable[..., Daq]) -> None:
    plan = make(frame={"shape": [256], "dtype": "uint16"}).port0.reorder.images
    with pytest.raises(
        ValueError, match=f"{NAME}: reorder .* its frames do not have two axes; give"
    ):
        plan.last_frame_binning.put(2)
    plan.last_frame_binning.put(1)
    assert plan.last_frame.describe()[plan.last_frame.name]["shape"] == [256]


def test_descriptors_tell_what_events_have(daq: Daq, source: Source) -> None:
    documents: list[Any] = []
    plan = daq.port0.reorder.images
    signal = plan.last_frame

    @bpp.run_decorator()
    def watch() -> Any:
        yield from bps.monitor(signal, name="live")
        before = len(documents)
        yield from until(lambda: len(documents) >= before + 3)
        yield from bps.unmonitor(signal)

    def runs() -> Any:
        yield from bps.mv(plan.last_frame_binning, 4)
        yield from watch()
        yield from bps.mv(plan.last_frame_binning, 2)
        yield from watch()
        yield from bp.count([signal])
        yield from bp.count([plan])

    source.start(0.02)
    with new_run_engine() as run_engine:
        run_engine.subscribe(lambda name, doc: documents.append((name, doc)))
        run_engine(runs())
    source.stop()
    *described, counted = (doc for name, doc in documents if name == "descriptor")
    descriptors = {doc["uid"]: doc for doc in described}
    shapes = [doc["data_keys"][signal.name]["shape"] for doc in described]
    assert shapes == [[2, 8], [4, 16], [4, 16]]
    for name, doc in documents:
        if name == "event" and doc["descriptor"] in descriptors:
            key = descriptors[doc["descriptor"]]["data_keys"][signal.name]
            value = doc["data"][signal.name]
            assert (list(value.shape), value.dtype.str) == (key["shape"], key["dtype_numpy"])
    assert counted["configuration"][PLAN]["data"][NAME] == 2


def test_it_stays_while_a_run_has_its_devices(
    daq: Daq, run_engine: RunEngine, detector: FrameDetector
) -> None:
    plan = daq.port0.reorder.images

    def refused(device: Any) -> Any:
        yield from bps.stage(device, wait=True)
        with pytest.raises(CaptureError) as raised:
            plan.last_frame_binning.put(2)
        assert str(raised.value) == f"{NAME} cannot be changed while {device.name} is staged."
        yield from bps.unstage(device, wait=True)

    run_engine(refused(plan))
    run_engine(refused(detector))
    assert plan.last_frame_binning.get() == 1
    plan.last_frame_binning.put(2)
