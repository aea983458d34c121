"""Disturbed recordings of frames: process killed, disk full, directory removed."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from waiting import wait_for

from daqiri_ophyd.engine import Engine, GenericFailureError, Recorder, ReorderPlan, TxQueue

Build = Callable[..., dict[str, Any]]
Frames = Callable[..., NDArray[np.uint8]]

PACKETS, FRAMES = 8, 200
COLUMNS = ["data", "batch", "timestamp", "last_timestamp", "packets", "missing", "valid"]
WRITERS = ["buffered", "direct"]


@pytest.fixture
def packets(made_frames: Frames) -> NDArray[np.uint8]:
    return made_frames(FRAMES * PACKETS, 68)


@pytest.fixture
def config(loopback: Build, with_frames: Build) -> dict[str, Any]:
    return with_frames(loopback(log_level="off"))


@pytest.fixture
def engine(config: dict[str, Any]) -> Iterator[tuple[ReorderPlan, TxQueue]]:
    with Engine.open(config) as engine:
        yield engine.ports[0].reorder["images"], engine.ports[0].tx[0]


def require_prefix(path: Path, packets: NDArray[np.uint8], least: int, **options: bool) -> int:
    """A file has at least so many of the first frames, with their properties; return how many."""
    with h5py.File(path, **options) as file:
        found = file["entry/data"]
        n = len(found["data"])
        assert n >= least
        assert all(len(found[name]) >= n for name in COLUMNS)
        np.testing.assert_array_equal(found["batch"][:n], np.arange(n))
        np.testing.assert_array_equal(found["packets"][:n], PACKETS)
        wanted = np.ascontiguousarray(packets[: n * PACKETS, 46:]).view(np.uint16)
        np.testing.assert_array_equal(found["data"][...], wanted.reshape(n, PACKETS, 32))
    return n


WRITER = """
    import json, sys, time
    import numpy as np
    from daqiri_ophyd.engine import Engine

    config, writer = json.loads(sys.argv[1]), sys.argv[2]
    packets = np.load(sys.argv[3])
    with Engine.open(config) as engine:
        plan = engine.ports[0].reorder["images"]
        with plan.record(sys.argv[4], writer=writer) as recorder:
            for first in range(0, len(packets), 80):
                engine.ports[0].tx[0].send(packets[first : first + 80])
                while recorder.snapshot().frames * 8 < first + 80:
                    time.sleep(0.001)
                time.sleep(0.15)
                print(recorder.snapshot().flushed, flush=True)
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_a_killed_process_leaves_the_frames_that_were_flushed(
    config: dict[str, Any], packets: NDArray[np.uint8], writer: Any, disk: Path
) -> None:
    np.save(disk / "packets.npy", packets)
    words = [json.dumps(config), writer, disk / "packets.npy", disk]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(WRITER), *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    flushed = next(n for n in map(int, process.stdout) if n >= 60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    path = disk / "frames_000000.h5"
    # Other readers are rejected because the file is marked as being written.
    require_prefix(path, packets, flushed, swmr=True)


@pytest.fixture
def small_files(writer: str) -> Iterator[None]:
    """Files of this process cannot grow beyond 448 KiB, or 1 MiB where frames have whole pages."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = (1024 if writer == "direct" else 448) << 10
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 448 KiB in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=448k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def record_too_much(
    engine: tuple[ReorderPlan, TxQueue], packets: NDArray[np.uint8], recorder: Recorder
) -> None:
    for turn in range(1, 9):
        engine[1].send(packets)
        wait_for(
            lambda turn=turn: (
                recorder.snapshot().frames + recorder.snapshot().dropped == turn * FRAMES
            )
        )
        # Repeated batch numbers are late; the number of the turn distinguishes them.
        packets = packets.copy()
        numbers = packets[:, 42:46].copy().view(">u4") + len(packets)
        packets[:, 42:46] = numbers.astype(">u4").view(np.uint8)


def require_whole(recorder: Recorder, packets: NDArray[np.uint8], reason: str) -> None:
    state = recorder.snapshot()
    assert reason in state.error and "frames_000000.h5" in state.error
    assert state.dropped > 0
    [file] = recorder.files()
    told = json.loads(Path(f"{file.path}.json").read_text())
    assert told["frames"] == file.frames == state.frames > 0
    assert told["dropped_by_reason"] == {"write_error": state.dropped}
    with h5py.File(file.path) as found:
        data = found["entry/data"]
        assert {len(data[name]) for name in COLUMNS} == {file.frames}
        np.testing.assert_array_equal(data["batch"], np.arange(file.frames))
        n = min(file.frames, FRAMES)
        wanted = np.ascontiguousarray(packets[: n * PACKETS, 46:]).view(np.uint16)
        np.testing.assert_array_equal(data["data"][:n], wanted.reshape(n, PACKETS, 32))


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_that_cannot_grow_has_whole_frames(
    engine: tuple[ReorderPlan, TxQueue],
    packets: NDArray[np.uint8],
    writer: Any,
    disk: Path,
) -> None:
    with engine[0].record(disk, writer=writer) as recorder:
        record_too_much(engine, packets, recorder)
    require_whole(recorder, packets, "File too large")


@pytest.mark.root
def test_a_full_disk_has_whole_frames(
    engine: tuple[ReorderPlan, TxQueue], packets: NDArray[np.uint8], tmpfs: Path
) -> None:
    with engine[0].record(tmpfs) as recorder:
        record_too_much(engine, packets, recorder)
    require_whole(recorder, packets, "No space left on device")


@pytest.mark.root
def test_a_full_disk_that_is_written_directly_has_whole_frames(
    engine: tuple[ReorderPlan, TxQueue], packets: NDArray[np.uint8], ext4: Path
) -> None:
    # As in memory, little space is free.
    free = os.statvfs(ext4)
    with (ext4 / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize - (1 << 20))
    with engine[0].record(ext4, writer="direct") as recorder:
        assert recorder.writer == "direct"
        record_too_much(engine, packets, recorder)
    require_whole(recorder, packets, "No space left on device")


@pytest.mark.root
@pytest.mark.parametrize("writer", WRITERS)
def test_a_disk_that_breaks_ends_a_recording_of_frames(
    engine: tuple[ReorderPlan, TxQueue],
    packets: NDArray[np.uint8],
    writer: Any,
    ext4: Path,
    break_disk: Callable[[Path], None],
) -> None:
    with engine[0].record(ext4, writer=writer) as recorder:
        engine[1].send(packets[: 10 * PACKETS])
        wait_for(lambda: recorder.snapshot().flushed == 10)
        break_disk(ext4)
        engine[1].send(packets[10 * PACKETS :])
        wait_for(lambda: recorder.snapshot().failing)
        assert "frames_000000.h5: Input/output error" in recorder.snapshot().error

        def accounted() -> bool:
            state = recorder.snapshot()
            return state.frames >= 10 and state.frames + state.dropped == FRAMES

        wait_for(accounted)


@pytest.mark.parametrize("writer", WRITERS)
def test_frames_go_to_another_file_when_the_directory_was_gone(
    engine: tuple[ReorderPlan, TxQueue],
    packets: NDArray[np.uint8],
    writer: Any,
    disk: Path,
) -> None:
    folder = disk / "folder"
    folder.mkdir()
    plan, tx = engine
    with plan.record(folder, on_error="resume", writer=writer) as recorder:
        tx.send(packets[: 10 * PACKETS])
        wait_for(lambda: recorder.snapshot().frames == 10)
        shutil.rmtree(folder)
        wait_for(lambda: recorder.snapshot().failing)
        assert "frames_000000.h5 was removed" in recorder.snapshot().error
        assert recorder.snapshot().dropped == 10
        folder.mkdir()
        wait_for(lambda: not recorder.snapshot().failing)
        tx.send(packets[10 * PACKETS : 20 * PACKETS])
        wait_for(lambda: recorder.snapshot().frames == 10)
    [file] = recorder.files()
    assert (file.frames, file.dropped) == (10, 10)
    with h5py.File(file.path) as found:
        np.testing.assert_array_equal(found["entry/data/batch"], np.arange(10, 20))


def test_a_split_that_is_refused_leaves_the_file_as_it_is(
    engine: tuple[ReorderPlan, TxQueue], packets: NDArray[np.uint8], tmp_path: Path
) -> None:
    plan, tx = engine
    with plan.record(tmp_path, held=True) as recorder:
        recorder.acquire(5)
        tx.send(packets[: 5 * PACKETS])
        wait_for(lambda: recorder.snapshot().acquired == 5)
        free = os.dup(0)
        os.close(free)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            with pytest.raises(GenericFailureError, match="Too many open files"):
                recorder.split(3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        state = recorder.snapshot()
        assert (state.frames, state.dropped, state.failing) == (5, 0, False)
        recorder.split(3)
    assert [file.frames for file in recorder.files()] == [3, 2]
    batches = []
    for file in recorder.files():
        with h5py.File(file.path) as found:
            batches += found["entry/data/batch"][...].tolist()
    assert batches == list(range(5))


@pytest.mark.parametrize("writer", WRITERS)
def test_an_empty_file_is_made_again_until_a_frame_fits(
    engine: tuple[ReorderPlan, TxQueue],
    packets: NDArray[np.uint8],
    writer: Any,
    disk: Path,
) -> None:
    plan, tx = engine
    folder = disk / "folder"
    folder.mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The smallest file that can be created: a frame does not fit.
    refused, least = 0, 1 << 20
    try:
        while refused + 1 < least:
            limit = (refused + least) // 2
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            try:
                plan.record(disk, str(limit), writer=writer).stop()
                least = limit
            except GenericFailureError:
                refused = limit
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, before[1]))
        with plan.record(folder, on_error="resume", writer=writer) as recorder:
            for turn in range(3):
                wait_for(lambda: not recorder.snapshot().failing)
                tx.send(packets[turn * PACKETS : (turn + 1) * PACKETS])
                wait_for(lambda: recorder.snapshot().failing)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            wait_for(lambda: not recorder.snapshot().failing)
            tx.send(packets[3 * PACKETS : 5 * PACKETS])
            wait_for(lambda: recorder.snapshot().frames == 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    [file] = recorder.files()
    assert (file.path.name, file.frames, file.dropped) == ("frames_000000.h5", 2, 3)
    assert sorted(path.name for path in folder.iterdir()) == [
        "frames_000000.h5",
        "frames_000000.h5.json",
    ]
