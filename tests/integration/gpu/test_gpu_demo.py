"""The demonstration with a GPU's driver that runs on any host."""

import json
from pathlib import Path

import h5py
import pytest

from .conftest import Run

DEMO = """
import subprocess, sys
command = [sys.executable, "-m", "daqiri_ophyd.cli", "demo", "--profile", "gpu", "--json"]
done = subprocess.run([*command, "--output", FOLDER], capture_output=True, text=True)
print(done.stdout or done.stderr)
"""


@pytest.mark.usefixtures("jungfrau_port", "made_catalog")
def test_demo_of_a_gpu_scans_stores_and_compares_images(with_driver: Run, tmp_path: Path) -> None:
    said, asked = with_driver(DEMO.replace("FOLDER", repr(f"{tmp_path / 'daqiri-demo'}")), GUARD=1)
    result = json.loads(said)
    assert result["frames"] == 80
    assert 0 < result["complete"] < 80
    plan = result["plan"]
    assert plan["packets"] == sum(plan[name] for name in plan if name != "packets")
    # What CUDA's file library does where there is none.
    assert result["writer"] in ("direct", "buffered")
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    (file,) = result["files"]
    with h5py.File(file) as opened:
        assert opened["entry/data/data"].shape == (80, 512, 1024)
    assert asked.count("allocate") == asked.count("free") == 1


@pytest.mark.usefixtures("jungfrau_port", "made_catalog")
def test_demo_of_a_gpu_without_one_says_why(with_driver: Run, tmp_path: Path) -> None:
    said, _ = with_driver(DEMO.replace("FOLDER", repr(f"{tmp_path / 'daqiri-demo'}")), GPUS=0)
    assert "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)" in said
    assert "Traceback" not in said
