"""Frames made in a stream of the application."""

import json
from pathlib import Path

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine

from .conftest import Run
from .sent_frames import send
from .test_gpu_reorder import with_plan

FOLDER = f"{Path(__file__).parent}"

PRELUDE = f"""
import ctypes
import gc
import json
import sys
import weakref
import numpy as np
from daqiri_ophyd import compat
from daqiri_ophyd.engine import DaqiriError, Engine
sys.path.insert(0, {FOLDER!r})
from sent_frames import send
CONFIG = {with_plan()!r}
CPU = {with_plan("host", "host")!r}
CPU["interfaces"][0]["rx"]["reorder_configs"][0]["reorder_type"] = "cpu"
driver = ctypes.CDLL("libcuda.so.1")
driver.driver_stream.restype = ctypes.c_void_p
stream = [driver.driver_stream(number) for number in range(4)]
def refused(call, *arguments):
    try:
        call(*arguments)
    except DaqiriError as error:
        return f"{{type(error).__name__}}: {{error}}"
"""

STREAMS = """
class Cupy:
    ptr = stream[1]
class Torch:
    cuda_stream = stream[2]
class Standard:
    def __cuda_stream__(self):
        return 0, stream[1]
same = []
with Engine.open(CONFIG) as engine:
    plan = engine.port("port").reorder["images"]
    with plan.frames(timeout=20) as made:
        for number, each in enumerate([None, Cupy(), Torch(), Standard(), stream[2], None]):
            plan.set_stream(each)
            wanted = send(engine, number)
            frame = next(made)
            same.append(np.array_equal(frame.data.ravel(), wanted.view(np.uint8).ravel()))
            del frame
    mine = Cupy()
    kept = weakref.ref(mine)
    plan.set_stream(mine)
    del mine
    gc.collect()
    held = kept() is not None
    plan.set_stream()
    gc.collect()
print(json.dumps([same, held, kept() is None]))
"""


def test_kernels_are_launched_in_the_stream_that_is_set(with_driver: Run) -> None:
    said, asked = with_driver(PRELUDE + STREAMS)
    assert json.loads(said) == [[True] * 6, True, True]
    order = [line for line in asked if line.startswith(("launch-", "wait-"))]
    # Each waits for the previous one; a frame is one launch or more.
    once = [line for at, line in enumerate(order) if at == 0 or order[at - 1] != line]
    wanted = [f"{what}-{number}" for number in (1, 2, 1, 2) for what in ("wait", "launch")]
    assert once == [*wanted, "wait-1"]


def test_what_is_no_stream_of_the_gpu_is_refused(with_driver: Run) -> None:
    said, _ = with_driver(
        PRELUDE
        + """
with Engine.open(CONFIG) as engine:
    plan = engine.port("port").reorder["images"]
    for wrong in (stream[3], stream[0], 2, "stream", True, -1):
        print(refused(plan.set_stream, wrong))
print(refused(plan.set_stream, stream[1]))
with Engine.open(CPU) as engine:
    print(refused(engine.port("port").reorder["images"].set_stream, stream[1]))
"""
    )
    no_stream = (
        "InvalidParameterError: reorder plan 'images': the stream is {}; accepted is a CUDA stream "
        "of cupy, torch or others with __cuda_stream__, its address, or None"
    )
    assert said.splitlines() == [
        "InvalidParameterError: reorder config 'images': the stream is not of GPU 0's primary "
        "context, where the plan's frames are; make it there (cudaSetDevice)",
        "InvalidParameterError: reorder config 'images': the stream cannot be used "
        "(CUDA_ERROR_NAME: what went wrong); accepted is a stream of GPU 0, or null",
        "InvalidParameterError: reorder config 'images': the stream is the per-thread default "
        "stream (2), and several threads launch; create a stream, or use that of the "
        "plan (null)",
        no_stream.format("'stream'"),
        no_stream.format("True"),
        no_stream.format("-1"),
        "NotReadyError: reorder plan 'images': its CUDA stream cannot be set: the engine is "
        "closed; open it again",
        "NotSupportedError: reorder plan 'images': a CUDA stream is for plans on a GPU, and "
        "reorder_type is 'cpu'; set reorder_type: gpu",
    ]


def test_the_documented_call_sets_it(with_driver: Run) -> None:
    program = """
import yaml
assert compat.daqiri_init(yaml.safe_dump(CONFIG)) == compat.Status.SUCCESS, compat.last_error()
for names in (("port", "images"), ("port", "other"), ("other", "images")):
    status = compat.set_reorder_cuda_stream(*names, stream[1])
    print(status.name, "" if status == compat.Status.SUCCESS else compat.last_error())
compat.shutdown()
"""
    said, _ = with_driver(PRELUDE + program)
    assert said.splitlines() == [
        "SUCCESS ",
        "INVALID_PARAMETER set_reorder_cuda_stream: interface 'port' has no reorder config "
        "'other'; it has images",
        "INVALID_PARAMETER set_reorder_cuda_stream: no interface is named 'other'; there are port",
    ]


FORK = """
import os
with Engine.open(CONFIG):
    if os.fork() == 0:
        text = refused(Engine.open, CONFIG)
        print(text, flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_forked_child_is_told_that_cuda_does_not_work_there(with_driver: Run) -> None:
    said, _ = with_driver(PRELUDE + FORK)
    assert said.splitlines() == [
        "NotSupportedError: interface 'port': reorder config 'images' on a GPU needs CUDA, and it "
        "does not work in a child made by fork of a process that has used it (multiprocessing: "
        "start method 'spawn'); set reorder_type: cpu",
        "memory regions 'rx', 'tx', 'frames': kind 'host_pinned' needs CUDA, "
        "and it does not work in a child made by fork of a process that has used it "
        "(multiprocessing: start method 'spawn'); use kind 'host' or 'huge'",
    ]


@pytest.mark.gpu
def test_streams_of_libraries_make_the_frames() -> None:
    import cupy
    import torch

    with Engine.open(with_plan(frames="device")) as engine:
        plan = engine.port("port").reorder["images"]
        streams = (cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream(), None, 1)
        with plan.frames(timeout=20) as taken:
            for turn, stream in enumerate(streams):
                plan.set_stream(stream)
                for number in range(20 * turn, 20 * turn + 20):
                    sent = send(engine, number).view(np.uint8).ravel()
                    np.testing.assert_array_equal(next(taken).data.get().ravel(), sent)
