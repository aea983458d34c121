"""The C++ interface in a user's program: installed, found by CMake and pkg-config, run."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from free_ports import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "cpp_api"

FRAMES = 1000
BATCH = 50
PAYLOAD = 200

LOOPBACK = """
daqiri:
  cfg:
    version: 1
    master_core: 0
    stream_type: raw
    loopback: sw
    memory_regions:
    - {name: rx, kind: host, num_bufs: 1024, buf_size: 2048}
    - {name: tx, kind: host, num_bufs: 1024, buf_size: 2048}
    interfaces:
    - name: camera
      address: loopback
      rx:
        queues:
        - name: rx
          id: 0
          cpu_core: any
          batch_size: 50
          timeout_us: 1000
          memory_regions: [rx]
        flows:
        - {name: frames, id: 7, match: {udp_dst: 5000}, action: {type: queue, id: 0}}
      tx:
        queues:
        - {name: tx, id: 0, cpu_core: any, batch_size: 50, memory_regions: [tx]}
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def built_by_cmake(prefix: Path, folder: Path) -> Path:
    return built(f"-DCMAKE_PREFIX_PATH={prefix}", folder)


def built_with_the_python_package(prefix: Path, folder: Path) -> Path:
    package = run(Path(sys.executable).with_name("daqiri-ophyd"), "cmake-dir", cwd=folder).strip()
    assert not Path(package).is_relative_to(prefix)
    return built(f"-Ddaqiri_DIR={package}", folder)


def built(package: str, folder: Path) -> Path:
    flags = ["-G", "Ninja", package, "-DCMAKE_BUILD_TYPE=Debug"]
    warnings = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"
    run("cmake", "-S", PROGRAM, "-B", folder, *flags, warnings, cwd=folder)
    run("cmake", "--build", folder, cwd=folder)
    return folder / "cpp_api"


def built_by_pkg_config(prefix: Path, folder: Path) -> Path:
    (pc,) = prefix.rglob("daqiri.pc")
    search = {"PKG_CONFIG_PATH": str(pc.parent)}
    flags = run("pkg-config", "--cflags", "--libs", "daqiri", cwd=folder, **search).split()
    rpath = f"-Wl,-rpath,{pc.parents[1]}"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    run("g++", *warnings, PROGRAM / "main.cpp", "-o", "cpp_api", *flags, rpath, cwd=folder)
    return folder / "cpp_api"


@pytest.fixture(
    scope="module", params=[built_by_cmake, built_by_pkg_config, built_with_the_python_package]
)
def program(
    request: pytest.FixtureRequest, prefix: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return request.param(prefix, tmp_path_factory.mktemp("program"))


@pytest.fixture
def loopback(tmp_path: Path) -> Path:
    path = tmp_path / "loopback.yaml"
    path.write_text(LOOPBACK)
    return path


def tcpdump(file: Path, *options: str) -> str:
    # -Z: not dropping privileges, which would lose access to the test's own folder.
    return run("tcpdump", "-nn", *options, "-r", file, *as_root(), cwd=file.parent)


def as_root() -> list[str]:
    return ["-Z", "root"] if os.geteuid() == 0 else []


def test_frames_are_sent_received_and_recorded(
    program: Path, loopback: Path, tmp_path: Path
) -> None:
    printed = run(program, "frames", loopback, tmp_path, cwd=tmp_path)
    assert "frames: done" in printed
    # The table of print_stats: received by one queue, submitted and sent by the other. The last
    # burst may have arrived a moment before it counts as sent.
    assert re.search(rf"^camera/rx +{FRAMES} ", printed, re.MULTILINE)
    row = re.search(rf"^camera/tx +{FRAMES} +(\d+) +\d+ +(\d+) ", printed, re.MULTILINE)
    assert row is not None, printed
    sent, held = map(int, row.groups())
    assert sent + held == FRAMES

    shown = tcpdump(tmp_path / "frames.pcap", "-vv", "-e")
    assert shown.count("10.0.0.1.4000 > 10.0.0.2.5000") == FRAMES
    assert shown.count("[udp sum ok]") == FRAMES
    assert "bad cksum" not in shown
    assert shown.count("02:00:00:00:00:00 > 02:00:00:00:00:99") == FRAMES
    assert shown.count("ttl 64") == FRAMES
    assert shown.count("flags [DF]") == FRAMES

    data = (tmp_path / "frames.pcap").read_bytes()
    record = 16 + 42 + PAYLOAD
    assert len(data) == 24 + FRAMES * record
    numbers = [struct.unpack_from("=i", data, 24 + i * record + 16 + 42)[0] for i in range(FRAMES)]
    assert numbers == list(range(FRAMES))
    for i in range(BATCH):
        assert (tmp_path / f"payload_{i}").read_bytes() == struct.pack("=i", i) + bytes(PAYLOAD - 4)


def test_datagrams_are_asked_and_answered(program: Path, tmp_path: Path) -> None:
    port = free_port("udp")
    assert "datagrams: done" in run(program, "datagrams", str(port), tmp_path, cwd=tmp_path)
    shown = tcpdump(tmp_path / "datagrams.pcap", "-A")
    assert len(re.findall(rf"IP 127\.0\.0\.1\.\d+ > 127\.0\.0\.1\.{port}: UDP", shown)) == 100
    for i in range(100):
        assert f"question {i}" in shown


def test_a_program_may_end_with_the_engine_running(
    program: Path, loopback: Path, tmp_path: Path
) -> None:
    assert "leave: done" in run(program, "leave", loopback, cwd=tmp_path)


def test_a_mistake_is_told_in_words(program: Path, tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text(LOOPBACK.replace("batch_size: 50, memory", "batch_sise: 50, memory"))
    done = subprocess.run(
        [program, "leave", config], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"{config}:" in done.stderr
    assert "batch_sise" in done.stderr
    assert "batch_size" in done.stderr
