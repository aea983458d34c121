"""Recordings that are disturbed: the process killed, disks full, directories gone."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from daqiri_ophyd.engine import PcapFile

# What a file system may take for a file besides its data.
ROUNDED_UP = 1 << 17
SCRIPT = Path(__file__).with_name("recording_process.py")


def start(directory: Path, roll_bytes: int, **options: object) -> subprocess.Popen[str]:
    """Start a process that records as fast as it can; returns when it does."""
    words = [f"{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(directory), str(roll_bytes), *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "recording\n"
    return process


def descendants(pid: int) -> list[int]:
    """What runs beside a process on its behalf."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for file in children for word in file.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pids: list[int]) -> None:
    for _ in range(20_000):
        if not any(map(is_running, pids)):
            return
        time.sleep(0.001)
    raise AssertionError(f"{pids} still run")


def numbers_of(file: Path) -> Iterator[int]:
    """Numbers of the frames in a file, all of whose bytes are checked."""
    with PcapFile(file) as pcap:
        assert pcap.torn_bytes == 0
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
    """All files open in tshark and hold, one after the other, the first of what was sent."""
    seen = 0
    for file in sorted(directory.glob("*.pcap")):
        shown = subprocess.run(
            ["tshark", "-n", "-r", str(file), "-T", "fields", "-e", "frame.len"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        numbers = list(numbers_of(file))
        assert shown.stdout.split() == ["8000"] * len(numbers)
        assert numbers == list(range(seen, seen + len(numbers)))
        seen += len(numbers)
    return seen


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_a_kill_leaves_whole_records(kills: int, tmp_path: Path) -> None:
    chance = random.Random(kills)
    recorded = 0
    for kill in range(kills):
        directory = tmp_path / str(kill)
        directory.mkdir()
        writer = chance.choice(("buffered", "direct"))
        process = start(directory, chance.choice((0, 20_000_000)), writer=writer)
        time.sleep(chance.uniform(0.0, 0.3))
        guards = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        wait_until_gone(guards)
        recorded += require_prefix(directory)
        for file in directory.glob("*.pcap"):
            # No room is left that was taken behind the end.
            assert file.stat().st_blocks * 512 <= file.stat().st_size + ROUNDED_UP
        for file in directory.iterdir():
            file.unlink()
    assert recorded > 100 * kills


def test_a_kill_between_two_files_leaves_no_empty_one(tmp_path: Path) -> None:
    for kill in range(6):
        directory = tmp_path / str(kill)
        directory.mkdir()
        process = start(directory, 20_000, writer="buffered")
        time.sleep(0.05)
        guards = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        wait_until_gone(guards)
        numbers = [n for file in sorted(directory.glob("*.pcap")) for n in numbers_of(file)]
        assert numbers == list(range(len(numbers)))


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
    assert require_prefix(tmp_path) > 1000
    files = sorted(tmp_path.glob("*.pcap"))
    assert [f"{file.name}.json" for file in files] == sorted(
        file.name for file in tmp_path.glob("*.json")
    )
    assert not list(tmp_path.glob(".*"))
