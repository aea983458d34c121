"""Previews of frames, with and without a binning."""

from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine, InvalidParameterError

from ..binned_previews import TYPES, columns_of, means, send, with_frames_of, wrong_previews
from ..gpu.test_gpu_reorder import with_plan

Config = dict[str, Any]


def on_the_cpu() -> Config:
    """Return a loopback port with a plan on the CPU."""
    config = with_plan("host", "host")
    config["interfaces"][0]["rx"]["reorder_configs"][0]["reorder_type"] = "cpu"
    return config


@pytest.mark.parametrize("kind", TYPES)
def test_means_are_those_of_numpy(kind: str) -> None:
    assert wrong_previews(kind, on_the_cpu()) == []


def test_a_preview_with_a_binning_is_described() -> None:
    with Engine.open(with_frames_of("uint16", on_the_cpu())) as engine:
        plan = engine.port("port").reorder["images"]
        assert plan.preview(binning=np.int64(3)) is None
        with plan.frames(timeout=20) as taken:
            send(engine, 5)
            frame = next(taken)
        preview = plan.preview(binning=3)
        assert preview is not None
        assert (preview.number, preview.batch, preview.packets, preview.missing) == (1, 5, 16, 0)
        assert preview.timestamp == frame.timestamp
        assert not preview.data.flags.writeable
        np.testing.assert_array_equal(preview.data, means(frame.data, 3))
        whole = plan.preview()
        assert whole is not None
        assert (whole.number, whole.batch) == (1, 5)
        np.testing.assert_array_equal(whole.data, frame.data)
        assert plan.preview(1, binning=3) is None


@pytest.mark.parametrize(
    ("frame", "binning", "why"),
    [
        ({"shape": [2, 40, 100], "dtype": "uint16"}, 41, "1 to 40, the shorter of the last"),
        ({"shape": [2, 40, 100], "dtype": "uint16"}, 0, "1 to 40, the shorter of the last"),
        ({"shape": [2, 40, 100], "dtype": "uint16"}, -(2**63), "1 to 40, the shorter of th"),
        ({"shape": [16000]}, 2, "1: its frames do not have two axes; give it a frame whose shape"),
        (None, 2, "1: its frames do not have two axes; give it a frame whose shape"),
    ],
)
def test_binnings_that_frames_do_not_have_are_refused(
    frame: Config | None, binning: int, why: str
) -> None:
    config = on_the_cpu()
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan |= {"frame": frame} if frame else {}
    with Engine.open(config) as engine:
        plan = engine.port("port").reorder["images"]
        assert plan.preview() is None
        with pytest.raises(InvalidParameterError) as raised:
            plan.preview(binning=binning)
        with pytest.raises(TypeError):
            plan.preview(binning=2.5)  # pyright: ignore[reportArgumentType]
    assert str(raised.value).startswith(
        f"reorder plan 'images': binning is {binning}; accepted is {why}"
    )


def test_a_closed_engine_has_the_frame_that_was_requested() -> None:
    with Engine.open(with_frames_of("uint16", on_the_cpu())) as engine:
        plan = engine.port("port").reorder["images"]
        plan.preview(binning=4)
        with plan.frames(timeout=20) as taken:
            send(engine, 1)
            next(taken)
    for binning in (4, 5):
        preview = plan.preview(binning=binning)
        assert preview is not None
        assert preview.data.shape == (2, 40 // binning, columns_of("uint16") // binning)
    assert plan.preview(1) is None


def free_frames(engine: Engine) -> int:
    (region,) = (each for each in engine.snapshot().regions if each.name == "frames")
    return region.free


def test_a_preview_is_held_until_it_is_copied() -> None:
    with Engine.open(with_frames_of("uint16", on_the_cpu())) as engine:
        plan = engine.port("port").reorder["images"]
        buffers = free_frames(engine)
        with plan.frames(timeout=20) as taken:
            send(engine, 1)
            next(taken)
            assert plan.preview() is None
            assert free_frames(engine) == buffers
            for number in (2, 3):
                send(engine, number)
                next(taken)
            assert free_frames(engine) == buffers - 1
            preview = plan.preview()
            assert preview is not None
            assert preview.batch == 2
            assert free_frames(engine) == buffers


def test_no_frame_is_lost_for_a_preview() -> None:
    config = with_frames_of("uint16", on_the_cpu())
    with Engine.open(config) as engine:
        plan = engine.port("port").reorder["images"]
        buffers = free_frames(engine)
        plan.preview()
        with plan.frames(timeout=20) as taken:
            frames = []
            for number in range(buffers):
                send(engine, number)
                frames.append(next(taken))
                plan.preview()
            assert plan.counters().lost == 0
            # The last two left too few buffers.
            preview = plan.preview()
            assert preview is not None
            assert preview.batch == buffers - 3
            del frames
