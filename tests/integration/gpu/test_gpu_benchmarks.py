"""The benchmarks of a GPU, with a driver that runs on any host: their checks, not their speed."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run

ROOT = Path(__file__).parents[3]
BENCHMARK = """
import os, subprocess, sys
os.environ |= {{"DAQIRI_BENCHMARK_RESULTS": {folder!r}, "DAQIRI_BENCHMARK_PROGRAMS": {folder!r}}}
os.environ.pop("PYTHONSAFEPATH", None)
os.environ["PYTHONPATH"] = os.pathsep.join([{folder!r}, os.environ.get("PYTHONPATH", "")])
command = [sys.executable, {path!r}, "--rounds", "2", *{arguments!r}]
done = subprocess.run(command, capture_output=True, text=True)
print(done.stdout + done.stderr)
sys.exit(done.returncode)
"""


def cases(run: Run, folder: Path, topic: str, *arguments: str, **answers: int) -> dict[str, Any]:
    """Run a benchmark without cupy, which needs a real GPU; return its cases by name."""
    (folder / "cupy.py").write_text("raise ImportError\n")
    path = f"{ROOT / 'benchmarks' / f'{topic}.py'}"
    run(BENCHMARK.format(folder=f"{folder}", path=path, arguments=arguments), **answers)
    document = json.loads((folder / f"{topic}.json").read_text())
    return {case["name"]: case for case in document["cases"]}


def test_files_are_written(with_driver: Run, tmp_path: Path) -> None:
    disk = ROOT / "build"  # of O_DIRECT, which that of the temporary folder may not support
    found = cases(
        with_driver, tmp_path, "gpu_files", "--bytes", "1e7", "--disk", f"{disk}", CUFILE_MAJOR=0
    )
    (case,) = found.values()
    for name in ("ours, cufile", "ours, copied, direct", "count"):
        assert len(case["contenders"][name]) == 2
    assert case["missing"] == {"limit: copy, then write": "cupy is not installed"}
    modes = {each["notes"]["mode"] for each in case["contenders"]["ours, cufile"]}
    assert modes == {"compatibility mode"}


@pytest.mark.parametrize("payload", [8192, 1024])
def test_packets_of_udp_become_frames(with_driver: Run, tmp_path: Path, payload: int) -> None:
    sources = ROOT / "benchmarks" / "peers" / "udp_send.cpp"
    includes = [f"-I{ROOT / 'benchmarks'}", f"-I{ROOT / 'native' / 'bench'}"]
    program = tmp_path / "peers_udp_send"
    command = ["g++", "-std=c++20", "-O1", *includes, f"{sources}", "-o", f"{program}", "-pthread"]
    subprocess.run(command, check=True)
    found = cases(with_driver, tmp_path, "gpu_udp", "--payloads", f"{payload}", "--seconds", "0.05")
    (case,) = found.values()
    for name in ("ours, gpu", "ours, cpu"):
        assert len(case["contenders"][name]) == 2
    (ratios,) = (want["ratios"] for want in case["wants"] if want["text"].endswith("/ ours, cpu"))
    # On a busy machine, no rate may be without loss: there is no ratio to 0.
    assert len(ratios) == sum(each["value"] > 0 for each in case["contenders"]["ours, cpu"])
