"""Kernels for frames that are rejected by a compiler or the engine, or without a GPU."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine, NotSupportedError

from .conftest import Run
from .test_frame_kernels import ADD, filled
from .test_gpu_reorder import with_plan
from .test_kernels import compilers_folder

REFUSE = """
from pathlib import Path
import numpy as np
from daqiri_ophyd.engine import DaqiriError, Engine

class RawKernel:
    __module__ = "cupy._core.raw"
    def __init__(self, code, options=(), **more):
        self.code, self.name, self.options = code, "add", options
        self.__dict__ |= more

class ElementwiseKernel:
    __module__ = "cupy._core._kernel"

class OnTheGpu:
    __cuda_array_interface__ = {}
    def get(self):
        return np.zeros(7, np.uint8)

with Engine.open(CONFIG) as engine:
    plan = engine.port("port").reorder["images"]
    for number, (source, arrays, options) in enumerate(CASES):
        try:
            plan.set_kernel(source, arrays, **options)
            print(f"({number}) taken")
        except DaqiriError as error:
            print(f"({number}) {type(error).__name__}: {error}")
"""

CASES = """[
    (ADD, [np.zeros(7, np.uint8)], {}),
    ("extern nonsense", [], {}),
    (ADD.replace('extern "C"', ""), [np.zeros(7, np.uint8)], {}),
    (ADD.replace(" frame(", " other("), [np.zeros(7, np.uint8)], {"name": "other"}),
    (ADD, [np.zeros(7, np.uint8)], {"name": "a frame"}),
    (ADD, [], {}),
    (ADD, [np.zeros(7, np.int8)], {}),
    (ADD, [np.zeros(7, np.float32)], {}),
    (ADD.replace("char* data", "short* data"), [np.zeros(7, np.uint8)], {}),
    (ADD.replace("unsigned long long elements", "int elements"), [np.zeros(7, np.uint8)], {}),
    (ADD, [np.zeros(7, ">u2")], {}),
    (ADD, [[None]], {}),
    (ADD, [np.zeros((0, 7), np.uint8)], {}),
    (Path(FILE), [np.zeros(7, np.uint8)], {}),
    (Path(BINARY), [np.zeros(7, np.uint8)], {}),
    (ADD.replace("unsigned long long elements", "double elements"), [np.zeros(7, np.uint8)], {}),
    (ADD, [np.ma.masked_array(np.zeros(7, np.uint8), mask=[1] + 6 * [0])], {}),
    (RawKernel(ADD.replace(" frame(", " add(")), [OnTheGpu()], {}),
    (RawKernel(None), [], {}),
    (RawKernel(ADD, ("-DX",)), [np.zeros(7, np.uint8)], {}),
    (ElementwiseKernel(), [], {}),
    (len, [], {}),
    (RawKernel(ADD, enable_cooperative_groups=True), [np.zeros(7, np.uint8)], {}),
    (RawKernel(ADD, backend="nvcc"), [np.zeros(7, np.uint8)], {}),
]"""


def refusals(run: Run, tmp_path: Path, *where: Any, **answers: int) -> list[str]:
    """Return the messages of each case."""
    (tmp_path / "add.cu").write_text(ADD)
    (tmp_path / "add.bin").write_bytes(b"\xff\x00")
    program = REFUSE.replace("CASES", CASES)
    program = filled(
        program,
        CONFIG=with_plan(),
        ADD=ADD,
        FILE=f"{tmp_path / 'add.cu'}",
        BINARY=f"{tmp_path / 'add.bin'}",
    )
    said, asked = run(program, *where, **answers)
    assert answers.get("ALLOCATE") or asked.count("allocate") == asked.count("free")
    assert asked.count("load") == asked.count("unload")
    return re.split(r"^\(\d+\) ", said, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("compiler", ["of this host", "of NVIDIA"])
def test_what_is_not_accepted_is_told(with_driver: Run, tmp_path: Path, compiler: str) -> None:
    if compiler == "of NVIDIA":
        said = refusals(with_driver, tmp_path, compilers_folder(), ELF=1)
    else:
        said = refusals(with_driver, tmp_path, ON_HOST=1)
    for taken in (0, 3, 13, 17):
        assert said[taken].strip() == "taken"
    begin = "InvalidParameterError: reorder config 'images': kernel 'frame': NVRTC 13."
    for number, text in {
        1: "error",
        5: "kernel 'frame': it gets 0 arrays, but its parameters are for another number",
        6: "kernel 'frame': array 0 is int8, but the parameter has another type",
        7: "kernel 'frame': array 0 is float32, but the parameter has another type",
        8: "kernel 'frame': elements of frames are uint8, but the parameter has another type",
        9: "kernel 'frame': parameters are (T* data, unsigned long long elements, a pointer for",
        15: "kernel 'frame': parameters are (T* data, unsigned long long elements, a pointer for",
    }.items():
        assert said[number].startswith(begin)
        assert text in said[number]
    if compiler == "of this host":  # a driver's functions have names
        assert said[2].startswith(
            "InvalidParameterError: reorder config 'images': the source has no kernel 'frame' "
            '(CUDA_ERROR_NAME: what went wrong); define it as extern "C" __global__ void frame('
        )
    assert "the name of the kernel is 'a frame'; accepted is an identifier of C++" in said[4]
    array = "reorder plan 'images': array 0 of the kernel has type "
    assert f"{array}>u2 and shape (7,); accepted are integers, floats" in said[10]
    assert f"{array}object and shape (1,)" in said[11]
    assert f"{array}uint8 and shape (0, 7)" in said[12]
    assert "the source of the kernel is not text (" in said[14]
    assert "array 0 of the kernel is a masked array, and kernels have no masks; give" in said[16]
    kernel = "InvalidParameterError: reorder plan 'images': the kernel "
    only = "; accepted is a cupy.RawKernel of CUDA C++: others have no source until they are called"
    assert said[18].strip() == f"{kernel}is cupy's RawKernel of a compiled file{only}"
    assert said[19].startswith(f"{kernel}has the options ('-DX',); accepted is one without")
    assert said[20].strip() == f"{kernel}is cupy's ElementwiseKernel{only}"
    assert said[21].startswith(f"{kernel}is builtin_function_or_method; accepted is CUDA C++ (str)")
    assert said[22].startswith(f"{kernel}has enable_cooperative_groups=True; accepted is False")
    assert said[23].startswith(f"{kernel}has backend='nvcc'; accepted is 'nvrtc'")


def test_arrays_that_have_no_room_are_told(with_driver: Run, tmp_path: Path) -> None:
    said = refusals(with_driver, tmp_path, ON_HOST=1, ALLOCATE=2)
    assert said[0].startswith(
        "GenericFailureError: reorder config 'images': kernel 'frame': array 0 of 7 bytes does "
        "not fit on GPU 0 (CUDA_ERROR_NAME: what went wrong); lower num_bufs of regions there"
    )


def test_a_plan_of_the_cpu_refuses_kernels() -> None:
    config = with_plan("host", "host")
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["reorder_type"] = "cpu"
    with Engine.open(config) as engine:
        images = engine.port("port").reorder["images"]
        images.remove_kernel()
        with pytest.raises(NotSupportedError) as refused:
            images.set_kernel(ADD, [np.zeros(7, np.uint8)])
    assert str(refused.value) == (
        "reorder plan 'images': kernel 'frame' runs on a GPU, and reorder_type is 'cpu'; set "
        "reorder_type: gpu, or process the frames in the application"
    )


def test_a_kernel_for_smaller_blocks_is_refused(with_driver: Run, tmp_path: Path) -> None:
    said = refusals(with_driver, tmp_path, ON_HOST=1, THREADS=128)
    assert said[0].strip() == (
        "InvalidParameterError: reorder config 'images': kernel 'frame' runs with up to 128 "
        "threads per block, but is launched with 256; raise its __launch_bounds__, or let it use "
        "fewer registers"
    )
