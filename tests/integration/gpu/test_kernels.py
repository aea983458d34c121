"""Every kernel that a plan can ask for is compiled by NVIDIA's compiler, which needs no GPU."""

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from ..engine.reorder_reference import bits_of, group_of, orders
from ..engine.test_reorder_properties import CONVERSIONS
from .conftest import Config, Run
from .test_gpu_reorder import SLOTS, with_plan

OLDEST, NEWER = 8, (9, 10, 12)
# Of all types, so that a test takes less than a minute.
PARTS = 16
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
import numpy as np
from daqiri_ophyd.engine import Engine, ethernet
{group_of}
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
for types, offset in {pairs!r}:
    plan.pop("data_types", None)
    if types:
        plan["data_types"] = types
    plan["payload_byte_offset"] = 8 + offset
    packets = []
    for batch in range({batches}):
        group = group_of(types.get("input_type", "same"))
        size = group * int(rng.integers(1, 1361 // group))
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


# Of an image, 3 packets are missing; packets end within rows of tiles.
MAKE_IMAGES = """
import numpy as np
from daqiri_ophyd.engine import Engine, ethernet
rng = np.random.default_rng(1)
config = {config!r}
(plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
def images(packets):
    with Engine.open(config) as engine:
        port = engine.port("port")
        with port.reorder["images"].frames(timeout=20) as taken:
            assert port.tx[0].send(packets, timeout=20) == len(packets)
            engine.close()
            return [frame.data.tobytes() for frame in taken]
for types, modules, shape, size in {plans!r}:
    plan.pop("data_types", None)
    if types:
        plan["data_types"] = types
    plan["frame"] = {{"shape": shape, "modules": modules}}
    if not types:
        plan["frame"]["dtype"] = "uint32"
    data = rng.integers(0, 256, (4, {slots}, 8 + size), np.uint8)
    data[..., :8] = 0
    data[..., 3] = np.arange(4)[:, None]
    data[..., 7] = np.arange({slots})
    packets = ethernet.udp_frames(
        data.reshape(-1, 8 + size)[3:],
        src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1", dst_ip="192.0.2.2", src_port=4000, dst_port=5000,
    )
    plan["reorder_type"] = "cpu"
    wanted = images(packets)
    assert len(wanted) == 4
    plan["reorder_type"] = "gpu"
    if images(packets) != wanted:
        print(types, modules)
"""
MODULES = [
    {"shape": [16, 32], "positions": [{"origin": [0, 0]}, {"origin": [16, 0]}]},
    {
        "shape": [16, 32],
        "positions": [{"origin": [1, 2], "flip": "rows"}, {"origin": [20, 0], "rotate": 180}],
    },
    {
        "shape": [16, 32],
        "tile": [4, 8],
        "chip": [8, 16],
        "chip_gap": [2, 3],
        "positions": [{"origin": [0, 40], "flip": "columns", "rotate": 90}, {"origin": [0, 0]}],
    },
]
IMAGE_TYPES = [
    {},
    {"input_type": "uint8", "output_type": "uint8"},
    {"input_type": "uint16", "output_type": "uint16", "endianness": "network"},
    {"input_type": "uint12", "output_type": "uint16", "packing": "lsb"},
    {"input_type": "uint4", "output_type": "uint8"},
    {"input_type": "int4", "output_type": "fp64"},
    {"input_type": "int16", "output_type": "fp32"},
    {"input_type": "uint32", "output_type": "fp64"},
]


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
    pairs = [
        {"input_type": a, "output_type": b, **order} for a, b in CONVERSIONS for order in orders(a)
    ]
    return [{}, *pairs]


# All for the oldest, a part for each other.
COMPILED = [(OLDEST, part) for part in range(PARTS)]
COMPILED += [(capability, part) for part, capability in enumerate(NEWER)]


@pytest.mark.parametrize(("capability", "part"), COMPILED)
def test_every_kernel_compiles(capability: int, part: int, with_driver: Run) -> None:
    types = data_types()[part::PARTS]
    config = with_plan()
    config["memory_regions"][-1]["buf_size"] *= 16  # int4 to fp64
    program = OPEN_EACH.format(config=config, types=types)
    said, asked = with_driver(program, compilers_folder(), CAPABILITY=capability, ELF=1)
    assert said == ""
    assert asked.count("load") == asked.count("unload") == len(types)
    assert "wrong" not in asked


def compared(pairs: list[tuple[Config, int]]) -> str:
    """Return a program that prints where frames of kernels are not those of the CPU.

    Of each pair of types and of bytes before the payload.
    """
    config = with_plan()
    config["memory_regions"][-1] |= {"num_bufs": 16, "buf_size": SLOTS * 2048 * 16}
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan |= {"reorder_type": "cpu", "fill": 3}
    return MAKE_EACH.format(
        **{"config": config, "pairs": pairs, "slots": SLOTS, "batches": 6},
        group_of="import math\n" + "".join(map(inspect.getsource, (bits_of, group_of))),
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_make_the_bits_of_the_cpu(part: int, with_driver: Run) -> None:
    # Types that differ in their signs and orders only have the other offsets.
    types = enumerate(data_types()[part::PARTS])
    pairs = [(each, offset) for number, each in types for offset in range(number % 4, 16, 4)]
    said, _ = with_driver(compared(pairs), ON_HOST=1)
    assert said == ""


def images_compared() -> str:
    """Return a program that prints where images of modules are not those of the CPU."""
    config = with_plan()
    config["memory_regions"][-1] |= {"num_bufs": 16, "buf_size": 64 * 80 * 8}
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan |= {"fill": 3}
    pixels = 2 * 16 * 32 // SLOTS
    plans = [
        (types, modules, [40, 80], pixels * bits_of(types.get("input_type", "uint32")) // 8)
        for types in IMAGE_TYPES
        for modules in MODULES
    ]
    return MAKE_IMAGES.format(config=config, plans=plans, slots=SLOTS)


def test_kernels_place_modules_as_the_cpu(with_driver: Run) -> None:
    said, _ = with_driver(images_compared(), ON_HOST=1)
    assert said == ""


@pytest.mark.gpu
def test_a_real_gpu_places_modules_as_the_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-c", images_compared()], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(PARTS))
def test_a_real_gpu_makes_the_bits_of_the_cpu(part: int) -> None:
    program = compared([(each, at) for each in data_types()[part::PARTS] for at in (0, 5, 10, 15)])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
