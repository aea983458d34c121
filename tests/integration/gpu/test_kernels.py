"""Every kernel that a plan can ask for is compiled by NVIDIA's compiler, which needs no GPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import pytest

from ..engine.test_reorder_properties import CONVERSIONS
from .conftest import Config, Run
from .test_gpu_reorder import SLOTS, with_plan

T = TypeVar("T")
CAPABILITIES = [8, 9, 10, 12]
OPEN_EACH = """
from daqiri_ophyd.engine import Engine
config = {config!r}
(plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
for types in {types!r}:
    plan.pop("data_types", None)
    if types:
        plan["data_types"] = types
    Engine.open(config).close()
"""

# Offsets and sizes make every alignment of input and output; the first packet of a frame is lost.
MAKE_EACH = """
import itertools
import numpy as np
from daqiri_ophyd.engine import Engine, ethernet
rng = np.random.default_rng(1)
def made(config, packets):
    with Engine.open(config) as engine:
        port = engine.port("port")
        plan = port.reorder["images"]
        with plan.frames(timeout=20) as taken:
            for each in packets:
                assert port.tx[0].send(each, timeout=20) == len(each)
            engine.close()
            return {{frame.batch: frame.data.tobytes() for frame in taken}}
config = {config!r}
(plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
for types, offset in itertools.product({types!r}, {offsets!r}):
    plan.pop("data_types", None)
    if types:
        plan["data_types"] = types
    plan["payload_byte_offset"] = 8 + offset
    packets = []
    for batch in range({batches}):
        element = {{"6": 2, "2": 4}}.get(types.get("input_type", "same")[-1], 1)
        size = element * int(rng.integers(1, 1361 // element))
        data = rng.integers(0, 256, ({slots}, 8 + offset + size), np.uint8)
        if batch % 2:
            data[:] = rng.choice(np.array([0x00, 0x7F, 0x80, 0xFF], np.uint8), data.shape)
        for at in range(8):
            data[:, at] = (batch if at < 4 else np.arange({slots})) >> 8 * (3 - at % 4)
        packets.append(
            ethernet.udp_frames(
                data[1:], src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
                src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
            )
        )
    wanted = made(config, packets)
    plan["reorder_type"] = "gpu"
    got = made(config, packets)
    plan["reorder_type"] = "cpu"
    assert len(wanted) == {batches}
    if got != wanted:
        print(types, offset)
"""


def compilers_folder() -> Path:
    """Return where the package has it, or else CUDA's toolkit."""
    try:
        package = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        package = None
    for folder in (package and package.submodule_search_locations) or ():
        if (Path(folder) / "lib" / "libnvrtc.so.13").exists():
            return Path(folder) / "lib"
    return Path("/usr/local/cuda/lib64")


def data_types() -> list[Config]:
    """Return the types of all plans; empty if payloads are not converted."""
    pairs = [{"input_type": a, "output_type": b} for a, b in CONVERSIONS]
    swapped = [
        {**each, "endianness": "network"} for each in pairs if each["input_type"][-1] in "62"
    ]
    return [{}, *pairs, *swapped]


def of_capability(capability: int, kernels: list[T]) -> list[T]:
    """Return those that are compiled for it: all for the oldest, a third for each other."""
    number = CAPABILITIES.index(capability)
    return kernels[number - 1 :: len(CAPABILITIES) - 1] if number else kernels


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_kernel_compiles(capability: int, with_driver: Run) -> None:
    types = of_capability(capability, data_types())
    config = with_plan()
    config["memory_regions"][-1]["buf_size"] *= 16  # int4 to fp64
    program = OPEN_EACH.format(config=config, types=types)
    said, asked = with_driver(program, compilers_folder(), CAPABILITY=capability, ELF=1)
    assert said == ""
    assert asked.count("load") == asked.count("unload") == len(types)
    assert "wrong" not in asked


def compared(types: list[Config], offsets: list[int]) -> str:
    """Return a program that prints where frames of kernels are not those of the CPU."""
    config = with_plan()
    config["memory_regions"][-1] |= {"num_bufs": 16, "buf_size": SLOTS * 2048 * 16}
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan |= {"reorder_type": "cpu", "fill": 3}
    return MAKE_EACH.format(config=config, types=types, offsets=offsets, slots=SLOTS, batches=6)


@pytest.mark.parametrize("part", range(4))
def test_kernels_make_the_bits_of_the_cpu(part: int, with_driver: Run) -> None:
    said, _ = with_driver(compared(data_types()[part::4], list(range(16))), ON_HOST=1)
    assert said == ""


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(4))
def test_a_real_gpu_makes_the_bits_of_the_cpu(part: int) -> None:
    program = compared(data_types()[part::4], [0, 5, 10, 15])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
