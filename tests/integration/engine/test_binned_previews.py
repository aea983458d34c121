"""Previews of frames that are binned by the CPU."""

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
        # The other binning was not requested.
        assert plan.preview() is None
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


def test_a_closed_engine_has_the_copies_that_were_made() -> None:
    with Engine.open(with_frames_of("uint16", on_the_cpu())) as engine:
        plan = engine.port("port").reorder["images"]
        plan.preview(binning=4)
        with plan.frames(timeout=20) as taken:
            send(engine, 1)
            next(taken)
    preview = plan.preview(binning=4)
    assert preview is not None
    assert preview.data.shape == (2, 10, columns_of("uint16") // 4)
    assert plan.preview(binning=5) is None
