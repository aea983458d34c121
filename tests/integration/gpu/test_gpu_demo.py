"""The demonstration with a GPU driver that runs on any host."""

import json
from pathlib import Path

import h5py
import pytest

from .conftest import Run

DEMO = """
import contextlib, io, runpy, sys
sys.argv = ["daqiri-ophyd", "demo", "--profile", "gpu", "--json"]
sys.argv += ["--writer", WRITER, "--output", FOLDER]
with contextlib.redirect_stderr(io.StringIO()) as messages:
    try:
        runpy.run_module("daqiri_ophyd", run_name="__main__")
    except SystemExit as end:
        if end.code:
            print(messages.getvalue())
"""


def demo(folder: Path, writer: str) -> str:
    """Return a program that runs it."""
    return DEMO.replace("FOLDER", repr(f"{folder}")).replace("WRITER", repr(writer))


@pytest.mark.usefixtures("jungfrau_port", "made_catalog")
@pytest.mark.parametrize("writer", ["auto", "cufile"])
def test_demo_of_a_gpu_scans_stores_and_compares_images(
    with_driver: Run, tmp_path: Path, writer: str
) -> None:
    cufile = {"CUFILE_MAJOR": 0} if writer == "cufile" else {}
    program = demo(tmp_path / "daqiri-demo", writer)
    said, asked = with_driver(program, GUARD=1, **cufile)
    result = json.loads(said)
    assert result["frames"] == 80
    assert 0 < result["complete"] < 80
    plan = result["plan"]
    assert plan["packets"] == sum(plan[name] for name in plan if name != "packets")
    if writer == "cufile":
        assert (result["writer"], result["cufile"]) == ("cufile", "compatibility mode")
    else:
        # The behaviour of CUDA's file library if it is missing.
        assert result["writer"] in ("direct", "buffered")
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    (file,) = result["files"]
    with h5py.File(file) as opened:
        assert opened["entry/data/data"].shape == (80, 512, 1024)
    # Tried before a catalog is created.
    assert asked.count("allocate") == asked.count("free") == 2


@pytest.mark.usefixtures("jungfrau_port")
@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"GPUS": 0}, "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)"),
        (
            {"CUFILE_OPEN": 5001},
            "cuFile's driver does not open: CU_FILE_DRIVER_NOT_INITIALIZED (cuFile error 5001)",
        ),
    ],
    ids=["gpu", "cufile"],
)
def test_demo_of_a_gpu_says_what_it_lacks_before_it_makes_a_catalog(
    with_driver: Run, tmp_path: Path, answers: dict[str, int], reason: str
) -> None:
    folder = tmp_path / "daqiri-demo"
    said, _ = with_driver(demo(folder, "cufile"), **answers)
    assert reason in said
    assert "Traceback" not in said
    assert not (folder / "catalog").exists()
