"""Previews of frames in GPU memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..binned_previews import TYPES, with_frames_of
from .conftest import Config, Run
from .test_frame_kernels import filled
from .test_gpu_reorder import with_plan
from .test_memory_after_close import HELD

PRELUDE = f"""
import json
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from binned_previews import send, with_frames_of, wrong_previews
from daqiri_ophyd.engine import DaqiriError, Engine
"""

COMPARE = (
    PRELUDE
    + """
print(json.dumps([wrong for kind in TYPES for wrong in wrong_previews(kind, CONFIG)]))
"""
)


def on_the_gpu() -> Config:
    """Return a loopback port whose frames are in a GPU's memory."""
    return with_plan(frames="device")


def test_frames_of_a_gpu_have_the_means_of_numpy(with_driver: Run) -> None:
    kinds = ["uint16", "int64", "float32", "bf16"]
    program = filled(COMPARE, TYPES=kinds, CONFIG=on_the_gpu())
    said, asked = with_driver(program, ON_HOST=1, GUARD=1)
    assert json.loads(said) == []
    assert "wrong" not in asked


@pytest.mark.gpu
def test_frames_of_a_real_gpu_have_the_means_of_numpy() -> None:
    program = filled(COMPARE, TYPES=TYPES, CONFIG=on_the_gpu())
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_previews_hold_no_memory_of_a_closed_engine(with_driver: Run) -> None:
    program = """
engine = Engine.open(CONFIG)
plan = engine.port("port").reorder["images"]
with plan.frames(timeout=20) as taken:
    plan.preview()
    send(engine, 0)
    next(taken)
    opened = held()
    engine.close()
    closed = held()
print(json.dumps([opened[0] > 0, opened[1] > 0, closed,
                  [plan.preview(binning=b).data.shape for b in (1, 8, 2)]]))
"""
    config = with_frames_of("uint16", on_the_gpu())
    said, _ = with_driver(filled(PRELUDE + HELD + program, CONFIG=config))
    shapes = [[2, 40, 100], [2, 5, 12], [2, 20, 50]]
    assert json.loads(said) == [True, True, [0, 0], shapes]


def test_a_gpu_that_fails_makes_no_copies(with_driver: Run) -> None:
    program = """
with Engine.open(CONFIG) as engine:
    plan = engine.port("port").reorder["images"]
    plan.preview(binning=2)
    with plan.frames(timeout=20) as taken:
        send(engine, 0)
        next(taken)
    print(plan.preview(binning=2), plan.counters().complete)
"""
    config = with_frames_of("uint16", on_the_gpu())
    said, _ = with_driver(filled(PRELUDE + program, CONFIG=config), COPIES=0)
    assert said == "None 1"
