"""The benchmark of engine dpdk: that its programs work together, not their speed."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAMS = {"peers_dpdk_loop": "peers/dpdk_loop.cpp", "ours_dpdk": "ours/dpdk.cpp"}


def libdpdk(*options: str) -> list[str]:
    """Return what pkg-config says."""
    done = subprocess.run(
        ["pkg-config", *options, "libdpdk >= 22.11"], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip("needs libdpdk-dev")
    return shlex.split(done.stdout)


@pytest.fixture
def programs(prefix: Path, tmp_path: Path) -> Path:
    """Return a folder with the programs."""
    flags, libraries = libdpdk("--cflags"), libdpdk("--libs")
    if not list(prefix.rglob("daqiri_engine_dpdk.so")):
        pytest.skip("needs engine dpdk: a build with its module")
    (library,) = prefix.rglob("libdaqiri.so")
    includes = [f"-I{BENCHMARKS}", f"-I{BENCHMARKS.parent / 'native' / 'bench'}"]
    of = {
        "peers_dpdk_loop": (flags, libraries),
        "ours_dpdk": (
            [f"-I{prefix}/include"],
            [f"-L{library.parent}", "-ldaqiri", f"-Wl,-rpath,{library.parent}"],
        ),
    }
    for name, (its_flags, its_libraries) in of.items():
        compile = ["g++", "-std=c++20", "-O1", "-pthread", *includes, *its_flags]
        source = BENCHMARKS / PROGRAMS[name]
        subprocess.run([*compile, source, "-o", tmp_path / name, *its_libraries], check=True)
    return tmp_path


def test_packets_pass_through_ours_and_bare_loops(programs: Path) -> None:
    where = {"DAQIRI_BENCHMARK_RESULTS": f"{programs}", "DAQIRI_BENCHMARK_PROGRAMS": f"{programs}"}
    options = ["--rounds", "1", "--seconds", "0.1", "--sizes", "1500"]
    subprocess.run(
        [sys.executable, BENCHMARKS / "dpdk.py", *options, "--parts", "null", "memif", "ring"],
        env={**os.environ, **where},
        check=True,
        timeout=100,
    )
    cases = json.loads((programs / "dpdk.json").read_text())["cases"]
    assert [case["name"] for case in cases] == [
        f"{device}, 1500 B" for device in ("net_null", "net_memif", "net_ring")
    ]
    for case in cases:
        assert not case["missing"]
        assert {"ours", "bare loops"} < case["contenders"].keys()
