"""Frames of a stored run with the positions of motors at their times."""

import time
from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from ophyd import Signal
from ophyd.sim import SynAxis

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog, FramesNotFoundError, frames_dataset
from daqiri_ophyd.devices import FrameDetector

from .conftest import SHAPE, Source, images, recorded


class Encoder(Signal):
    """A signal whose clock is ahead."""

    def __init__(self, name: str, ahead: float = 0.0) -> None:
        super().__init__(name=name, value=0.0)
        self.ahead = ahead

    def describe(self) -> Any:
        return {self.name: {**super().describe()[self.name], "units": "mm"}}

    def move(self, position: float) -> float:
        """Report a position; return its time, on the right clock."""
        now = time.time()
        self.put(position, timestamp=now + self.ahead)
        return now


def fly(
    run_engine: RunEngine, detector: FrameDetector, source: Source, encoder: Encoder
) -> tuple[str, list[tuple[float, float]]]:
    """Record frames while an encoder moves; return the run, and the positions with their times."""
    moves: list[tuple[float, float]] = []

    def motion() -> Any:
        for position in range(8):
            source.send()
            moves.append((encoder.move(float(position)), float(position)))
            source.send()
            yield from recorded(detector, 2 * (position + 1))

    detector.num_frames.set(0).wait()
    plan = bpp.run_wrapper(plans.capture_during(detector, motion()))
    plan = bpp.monitor_during_wrapper(plan, [encoder])
    (uid,) = run_engine(bpp.stage_wrapper(plan, [detector]))
    return uid, moves


def test_frames_have_the_position_of_a_monitored_motor(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    encoder = Encoder("encoder")
    uid, moves = fly(run_engine, detector, source, encoder)
    run = catalog.client[uid]
    data = frames_dataset(run)
    assert data["frames"].shape == (16, *SHAPE)
    assert data["frames"].dims == ("frame", "y", "x")
    assert data["frames"].chunks is not None  # not read yet
    np.testing.assert_array_equal(data["frames"].to_numpy(), images(data["batch"].to_numpy()))
    assert data["row"].to_numpy().tolist() == list(range(16))
    assert data["timestamp"].dtype == "datetime64[ns]" and set(data.coords) == {
        "frame",
        "timestamp",
    }
    assert data.indexes["frame"].tolist() == list(range(16))
    assert data["missing"].attrs == {"units": "packets"}
    seconds = data["timestamp"].to_numpy().astype(np.int64) / 1e9
    times, positions = np.array(moves).T
    np.testing.assert_allclose(data["encoder"], np.interp(seconds, times, positions), atol=1e-3)
    before = frames_dataset(run, method="previous")["encoder"].to_numpy()
    assert before[0] == 0 and before.tolist() == sorted(before)
    assert set(before) == set(range(8))
    assert data["encoder"].attrs["units"] == "mm"
    low, high = data["encoder"].attrs["clock_difference_s"]
    assert low <= 0 <= high
    assert 0 < data["encoder"].attrs["gap_s"] < 60


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_clocks_that_differ_are_told(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    ahead: float,
) -> None:
    uid, _ = fly(run_engine, detector, source, Encoder("encoder", ahead))
    low, high = frames_dataset(catalog.client[uid])["encoder"].attrs["clock_difference_s"]
    assert low <= -ahead <= high
    assert high - low < 600


def test_frames_of_a_step_scan_have_the_position_of_their_row(
    run_engine: RunEngine, detector: FrameDetector, source: Source, catalog: Catalog
) -> None:
    detector.num_frames.set(3).wait()
    motor = SynAxis(name="motor")
    source.start()
    (uid,) = run_engine(bp.scan([detector], motor, -1, 1, 3))
    source.stop()
    data = frames_dataset(catalog.databroker().v2[uid])
    assert data["motor"].to_numpy().tolist() == [-1] * 3 + [0] * 3 + [1] * 3
    assert data["row"].to_numpy().tolist() == [0] * 3 + [1] * 3 + [2] * 3
    np.testing.assert_array_equal(data["frames"].to_numpy(), images(data["batch"].to_numpy()))
    assert set(frames_dataset(catalog.client[uid], signals=["motor"]).data_vars) == {
        "frames",
        "batch",
        "missing",
        "row",
        "motor",
    }
    with pytest.raises(FramesNotFoundError, match="no readings of 'mono'. Found: motor"):
        frames_dataset(catalog.client[uid], signals=["mono"])
    with pytest.raises(FramesNotFoundError, match="no such frames. Found: .* in stream 'primary'"):
        frames_dataset(catalog.client[uid], stream="dark")
    with pytest.raises(ValueError, match="method is 'cubic'; accepted are 'linear' and 'previous'"):
        frames_dataset(catalog.client[uid], method="cubic")  # pyright: ignore[reportArgumentType]
