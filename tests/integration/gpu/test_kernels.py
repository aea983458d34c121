"""Every kernel that a plan can ask for is compiled by NVIDIA's compiler, which needs no GPU."""

import importlib.util
from pathlib import Path

import pytest

from ..engine.test_reorder_properties import CONVERSIONS
from .conftest import Config, Run
from .test_gpu_reorder import with_plan

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


def data_types() -> list[Config]:
    """Return the types of all plans; empty: payloads stay as they are."""
    pairs = [{"input_type": a, "output_type": b} for a, b in CONVERSIONS]
    return [{}, *({**pair, "endianness": e} for pair in pairs for e in ("host", "network"))]


@pytest.mark.parametrize("capability", [8, 9, 10, 12])
def test_every_kernel_compiles(capability: int, with_driver: Run) -> None:
    package = importlib.util.find_spec("nvidia.cu13")
    assert package is not None and package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0]) / "lib"
    types = data_types()
    config = with_plan()
    config["memory_regions"][-1]["buf_size"] *= 16  # int4 to fp64
    program = OPEN_EACH.format(config=config, types=types)
    said, asked = with_driver(program, folder, CAPABILITY=capability, ELF=1)
    assert said == ""
    assert asked.count("load") == asked.count("unload") == len(types)
    assert "wrong" not in asked
