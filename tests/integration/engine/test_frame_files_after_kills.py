"""Files of frames whose recorder was killed: h5py reads them, also before they are repaired."""

import json
import random
import signal
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401 - has h5py read compressed frames
import numpy as np
import pytest

from daqiri_ophyd.cli import _main
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.engine import Engine, examine_frames

PROCESS = Path(__file__).with_name("frame_recording_process.py")
spec = spec_from_file_location(PROCESS.stem, PROCESS)
assert spec is not None and spec.loader is not None
made = module_from_spec(spec)
spec.loader.exec_module(made)

# Space that a file system may use for a file in addition to its data.
ROUNDED_UP = 1 << 17
KINDS: tuple[dict[str, object], ...] = (
    {},
    {"roll_frames": 1500},
    {"compression": "bitshuffle-lz4", "compression_threads": 2},
    # Frames of whole pages are not copied.
    {"writer": "auto", "words": 1024},
    {"writer": "auto", "roll_frames": 1500},
    {"writer": "auto", "compression": "bitshuffle-lz4"},
)


def start(directory: Path, **options: object) -> subprocess.Popen[str]:
    """Start a process that records as fast as possible; return when it is recording."""
    words = [f"{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, str(PROCESS), str(directory), *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "recording\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def frames_of(path: Path, *, swmr: bool) -> int:
    """Count the whole frames of a file, all of whose values are checked."""
    with h5py.File(path, swmr=swmr) as file:
        data = file["entry/data"]
        count = min(len(dataset) for dataset in data.values())
        batches = data["batch"][:count]
        first = int(batches[0]) if count else 0
        assert np.array_equal(batches, np.arange(first, first + count))
        assert (data["packets"][:count] == made.PACKETS).all()
        assert not data["missing"][:count].any()
        assert (data["valid"][:count] == 255).all()
        assert (data["timestamp"][:count] > 10**18).all()
        for begin in range(0, count, 500):
            end = min(begin + 500, count)
            found = data["data"][begin:end]
            wanted = made.pixels(first + begin, end - begin, found.shape[-1])
            assert np.array_equal(found, wanted)
        if not swmr:
            assert {len(dataset) for dataset in data.values()} == {count}
    return count


def require_prefix(files: list[Path]) -> int:
    """The files contain, in order, the first of the sent frames, and open with defaults."""
    seen = 0
    for path in files:
        with h5py.File(path) as file:
            batches = file["entry/data/batch"][()]
        assert np.array_equal(batches, np.arange(seen, seen + len(batches)))
        seen += frames_of(path, swmr=False)
    return seen


def frames_command(name: str, *files: Path) -> int:
    return _main._run(["frames", name, *map(str, files)])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_a_kill_leaves_a_prefix_that_h5py_reads(kills: int, tmp_path: Path) -> None:
    chance = random.Random(kills)
    recorded = 0
    for number in range(kills):
        directory = tmp_path / str(number)
        directory.mkdir()
        process = start(directory, **KINDS[number % len(KINDS)])
        time.sleep(chance.uniform(0.0, 1.6))
        kill(process)
        files = sorted(directory.glob("*.h5"))
        # Only the last file was being written.
        assert all(sidecar_path(file).exists() for file in files[:-1])
        marked = examine_frames(files[-1]).marked
        left = frames_of(files[-1], swmr=marked)
        if not sidecar_path(files[-1]).exists():
            assert frames_command("check", files[-1]) == 1
        assert frames_command("repair", *files[-2:]) == 0
        assert frames_command("check", *files[-2:]) == 0
        assert frames_of(files[-1], swmr=False) >= left
        recorded += require_prefix(files)
        # Of the file after it, which had no name yet, there may be one.
        assert not [part for part in directory.glob(".*") if f".{files[-1].name}" in part.name]
        for path in directory.iterdir():
            path.unlink()
    assert recorded > 20 * kills


def test_the_next_recorder_tidies_up_after_a_kill(tmp_path: Path) -> None:
    process = start(tmp_path, compression="bitshuffle-lz4")
    (file,) = tmp_path.glob("*.h5")
    for _ in range(100):
        if examine_frames(file, live=True).frames > 0:
            break
        time.sleep(0.1)
    kill(process)
    content = file.read_bytes()
    assert [part.name for part in tmp_path.glob(".*.part")] == [f".{file.name}.json.part"]
    with Engine.open(made.config()) as engine:
        engine.ports[0].reorder["camera"].record(tmp_path, "later").stop()
    assert not list(tmp_path.glob(".*"))
    assert file.read_bytes() == content
    assert file.stat().st_blocks * 512 <= file.stat().st_size + ROUNDED_UP
    assert frames_command("repair", file) == 0
    assert require_prefix([file]) > 0


def test_a_file_is_not_repaired_while_it_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start(tmp_path)
    (file,) = tmp_path.glob("*.h5")
    try:
        assert frames_command("check", file) == 0
        assert "a recorder is writing it" in capsys.readouterr().out
        assert frames_command("info", "--json", file) == 0  # type: ignore[arg-type]
        told = json.loads(capsys.readouterr().out)[str(file)]
        assert told["being_written"]
        assert frames_command("repair", file) == 1
        assert "is being written by a recorder" in capsys.readouterr().err
    finally:
        kill(process)
    assert frames_command("repair", file) == 0
