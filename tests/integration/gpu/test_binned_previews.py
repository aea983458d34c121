"""Previews of frames in GPU memory, which are binned on the GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..binned_previews import TYPES, with_frames_of
from .conftest import Config, Run
from .test_frame_kernels import filled
from .test_gpu_reorder import with_plan
from .test_kernels import CAPABILITIES, compilers_folder, of_capability
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


@pytest.mark.parametrize("part", range(4))
def test_kernels_make_the_means_of_numpy(part: int, with_driver: Run) -> None:
    program = filled(COMPARE, TYPES=TYPES[part::4], CONFIG=on_the_gpu())
    said, asked = with_driver(program, ON_HOST=1, GUARD=1)
    assert json.loads(said) == []
    # Of each type, that of the plan, and that of all its binnings.
    assert asked.count("load") == asked.count("unload") == 2 * len(TYPES[part::4])
    assert "wrong" not in asked


@pytest.mark.gpu
def test_a_real_gpu_makes_the_means_of_numpy() -> None:
    program = filled(COMPARE, TYPES=TYPES, CONFIG=on_the_gpu())
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_kernel_compiles(capability: int, with_driver: Run) -> None:
    program = """
for kind in TYPES:
    with Engine.open(with_frames_of(kind, CONFIG)) as engine:
        plan = engine.port("port").reorder["images"]
        for binning in (1, 2, 3):
            assert plan.preview(binning=binning) is None
"""
    types = of_capability(capability, TYPES)
    program = filled(PRELUDE + program, TYPES=types, CONFIG=on_the_gpu())
    said, asked = with_driver(program, compilers_folder(), CAPABILITY=capability, ELF=1)
    assert said == ""
    assert asked.count("load") == asked.count("unload") == 2 * len(types)
    assert "wrong" not in asked


def test_means_hold_no_memory_of_a_closed_engine(with_driver: Run) -> None:
    program = """
engine = Engine.open(CONFIG)
plan = engine.port("port").reorder["images"]
with plan.frames(timeout=20) as taken:
    for binning in (8, 2, 4):
        plan.preview(binning=binning)
    send(engine, 0)
    next(taken)
    opened = held()
    engine.close()
    closed = held()
print(json.dumps([opened[0] > 0, opened[1] > 0, closed,
                  [plan.preview(binning=b).data.shape for b in (8, 2, 4)],
                  plan.preview(binning=5)]))
"""
    config = with_frames_of("uint16", on_the_gpu())
    said, asked = with_driver(filled(PRELUDE + HELD + program, CONFIG=config), ON_HOST=1)
    shapes = [[2, 5, 12], [2, 20, 50], [2, 10, 25]]
    assert json.loads(said) == [True, True, [0, 0], shapes, None]
    assert asked.count("load") == asked.count("unload") == 2


def test_a_kernel_that_does_not_compile_is_told(with_driver: Run) -> None:
    """Frames without a binned preview are made as before."""
    program = """
with Engine.open(CONFIG) as engine:
    plan = engine.port("port").reorder["images"]
    try:
        plan.preview(binning=2)
    except DaqiriError as error:
        print(error)
    plan.preview()
    with plan.frames(timeout=20) as taken:
        send(engine, 0)
        next(taken)
    print(plan.preview().batch)
"""
    config = with_frames_of("uint16", on_the_gpu())
    # This driver has only the kernel of plans.
    said, _ = with_driver(filled(PRELUDE + program, CONFIG=config))
    told, batch = said.splitlines()
    assert told.startswith("memory region 'frames': the source has no kernel 'means' (CUDA_ERROR")
    assert batch == "0"


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
    said, _ = with_driver(filled(PRELUDE + program, CONFIG=config), ON_HOST=1, FRAME=719)
    assert said == "None 1"
