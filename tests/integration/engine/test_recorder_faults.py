"""Disturbed recordings: the process killed, disks full, directories removed."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import wait_for

from daqiri_ophyd.cli import _main
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.engine import Engine, PcapFile

# Space that a file system may use for a file in addition to its data.
ROUNDED_UP = 1 << 17
SCRIPT = Path(__file__).with_name("recording_process.py")


def start(directory: Path, roll_bytes: int, **options: object) -> subprocess.Popen[str]:
    """Start a process that records as fast as possible; return when it is recording."""
    words = [f"{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(directory), str(roll_bytes), *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "recording\n"
    return process


def numbers_of(file: Path) -> Iterator[int]:
    """Numbers of the frames in a file, all of whose bytes are checked."""
    with PcapFile(file) as pcap:
        if not len(pcap):
            return
        frames = pcap.gather()
    assert frames.shape[1] == 8000
    numbers = np.ascontiguousarray(frames[:, 42:46]).view("<u4").ravel()
    expected = np.repeat((numbers & 0xFF).astype(np.uint8)[:, None], 8000, axis=1)
    expected[:, 42:46] = frames[:, 42:46]
    assert np.array_equal(frames, expected)
    yield from numbers.tolist()


def require_prefix(directory: Path) -> int:
    """The complete records of all files are, in order, the first of the sent packets."""
    seen = 0
    for file in sorted(directory.glob("*.pcap")):
        numbers = list(numbers_of(file))
        assert numbers == list(range(seen, seen + len(numbers)))
        seen += len(numbers)
    return seen


def require_readable(directory: Path) -> int:
    """As before, and tshark reads the files without warnings."""
    for file in directory.glob("*.pcap"):
        shown = subprocess.run(
            ["tshark", "-n", "-r", str(file), "-T", "fields", "-e", "frame.len"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.split() == ["8000"] * len(list(numbers_of(file)))
    return require_prefix(directory)


def pcap_command(name: str, *files: Path) -> int:
    return _main._run(["pcap", name, *map(str, files)])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_a_kill_leaves_a_prefix_that_can_be_repaired(kills: int, tmp_path: Path) -> None:
    chance = random.Random(kills)
    recorded = 0
    for kill in range(kills):
        directory = tmp_path / str(kill)
        directory.mkdir()
        writer = ("buffered", "direct")[kill % 2]
        process = start(directory, (0, 20_000_000)[kill // 2 % 2], writer=writer)
        time.sleep(chance.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        files = sorted(directory.glob("*.pcap"))
        left = require_prefix(directory)
        # Only the last file was being written.
        assert all(sidecar_path(file).exists() for file in files[:-1])
        if not sidecar_path(files[-1]).exists():
            assert pcap_command("check", files[-1]) == 1
        assert pcap_command("repair", *files) == 0
        assert pcap_command("check", *files) == 0
        assert require_readable(directory) == left
        # Of the file after it, which had no name yet, there may be one.
        assert not [part for part in directory.glob(".*") if f".{files[-1].name}" in part.name]
        for file in files:
            # Nothing remains that was allocated behind the end.
            assert file.stat().st_blocks * 512 <= file.stat().st_size + ROUNDED_UP
        recorded += left
        for path in directory.iterdir():
            path.unlink()
    assert recorded > 100 * kills


def test_a_kill_between_two_files_leaves_no_empty_one(tmp_path: Path) -> None:
    for kill in range(6):
        directory = tmp_path / str(kill)
        directory.mkdir()
        process = start(directory, 20_000, writer="buffered")
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        numbers = [n for file in sorted(directory.glob("*.pcap")) for n in numbers_of(file)]
        assert numbers == list(range(len(numbers)))


def test_the_next_recorder_tidies_up_after_a_kill(
    tmp_path: Path, loopback: Callable[..., dict[str, Any]]
) -> None:
    process = start(tmp_path, 0, writer="direct")
    wait_for(lambda: any(file.stat().st_size > 1 << 20 for file in tmp_path.glob("*.pcap")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (file,) = tmp_path.glob("*.pcap")
    content = file.read_bytes()
    assert [part.name for part in tmp_path.glob(".*.part")] == [f".{file.name}.json.part"]
    with Engine.open(loopback()) as engine:
        engine.ports[0].rx[0].record(tmp_path, "later").stop()
    assert not list(tmp_path.glob(".*"))
    assert file.read_bytes() == content
    assert file.stat().st_blocks * 512 <= file.stat().st_size + ROUNDED_UP


@pytest.mark.parametrize("writer", ["buffered", "direct"])
def test_ctrl_c_leaves_complete_files(writer: str, tmp_path: Path) -> None:
    process = start(tmp_path, 5_000_000, writer=writer)
    for _ in range(20_000):
        if len(list(tmp_path.glob("*.json"))) >= 2:
            break
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT, errors
    assert require_readable(tmp_path) > 1000
    files = sorted(tmp_path.glob("*.pcap"))
    assert [f"{file.name}.json" for file in files] == sorted(
        file.name for file in tmp_path.glob("*.json")
    )
    assert not list(tmp_path.glob(".*"))
