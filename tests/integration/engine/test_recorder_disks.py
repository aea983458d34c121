"""Recording to disks that are full, read-only, broken or removed, and recovery from that."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from waiting import wait_for

from daqiri_ophyd.engine import (
    DaqiriError,
    Engine,
    GenericFailureError,
    PcapFile,
    Recorder,
    RxQueue,
    TxQueue,
)

Build = Callable[..., dict[str, Any]]
Frames = Callable[..., NDArray[np.uint8]]

SMALL = 1 << 20


def command(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command("mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", disk)
    yield disk
    command("umount", "-l", disk)


class Traffic:
    """Sends numbered frames and counts them."""

    def __init__(self, tx: TxQueue, rx: RxQueue, frames: NDArray[np.uint8]) -> None:
        self.tx, self.rx, self.frames, self.sent = tx, rx, frames, 0

    def send(self, recorder: Recorder, count: int = 1000) -> None:
        """Send and wait until the recorder has all of them, written or not."""
        self.sent += self.tx.send(self.frames[:count])
        wait_for(lambda: self.accounted(recorder))

    def accounted(self, recorder: Recorder) -> bool:
        state = recorder.snapshot()
        return state.packets + state.dropped == self.sent


@pytest.fixture
def traffic(loopback: Build, made_frames: Frames) -> Iterator[Traffic]:
    with Engine.open(loopback(log_level="off")) as engine:
        port = engine.ports[0]
        yield Traffic(port.tx[0], port.rx[0], made_frames(1000, 1000))


def require_account(recorder: Recorder, sent: int) -> None:
    """All packets are in complete files or counted as lost, also in the metadata of the files."""
    state = recorder.snapshot()
    assert state.packets + state.dropped == sent
    files = recorder.files()
    told = [json.loads(Path(f"{file.path}.json").read_text()) for file in files]
    for file, metadata in zip(files, told, strict=True):
        with PcapFile(file.path) as pcap:
            assert (len(pcap), pcap.torn_bytes) == (file.packets, 0)
        assert metadata["packets"] == file.packets
        assert metadata["dropped"] == file.dropped
        shown = subprocess.run(["tshark", "-n", "-r", file.path], capture_output=True, check=False)
        assert shown.returncode == 0
        assert len(shown.stdout.splitlines()) == file.packets
    assert sum(file.packets for file in files) == state.packets
    assert sum(metadata["dropped_by_reason"].get("write_error", 0) for metadata in told) == (
        state.dropped
    )


def fill(disk: Path) -> Path:
    """Fill a disk completely."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


@pytest.mark.root
def test_a_full_disk_ends_a_recording(tmpfs: Path, traffic: Traffic) -> None:
    with traffic.rx.record(tmpfs) as recorder:
        for _ in range(3):
            traffic.send(recorder)
        state = recorder.snapshot()
        assert state.failing
        assert state.running
        assert "capture_000000.pcap: No space left on device" in state.error
        for file in tmpfs.glob("filler*"):
            file.unlink()
        traffic.send(recorder)
        with pytest.raises(GenericFailureError, match="No space left"):
            recorder.roll()
    assert len(recorder.files()) == 1
    assert traffic.rx.counters().dropped_total == 0
    require_account(recorder, traffic.sent)


@pytest.mark.root
@pytest.mark.parametrize("writer", ["buffered", "direct"])
def test_recording_resumes_when_there_is_room_again(
    writer: Any, ext4: Path, traffic: Traffic
) -> None:
    with traffic.rx.record(ext4, writer=writer, on_error="resume") as recorder:
        assert recorder.writer == writer
        traffic.send(recorder)
        recorder.roll()
        filler = fill(ext4)
        while not recorder.snapshot().failing:
            traffic.send(recorder)
        traffic.send(recorder)
        state = recorder.snapshot()
        assert "No space left on device" in state.error
        assert str(ext4 / "capture_") in state.error
        assert state.dropped > 0
        filler.unlink()
        wait_for(lambda: not recorder.snapshot().failing)
        before = recorder.snapshot()
        traffic.send(recorder)
        recorder.roll()
        after = recorder.snapshot()
        assert after.packets == before.packets + 1000
        assert (after.dropped, after.error) == (before.dropped, state.error)
    assert traffic.rx.counters().dropped_total == 0
    require_account(recorder, traffic.sent)


@pytest.mark.root
@pytest.mark.parametrize("writer", ["buffered", "direct"])
def test_a_view_of_the_file_that_fills_the_disk_harms_nothing(
    writer: Any, ext4: Path, traffic: Traffic
) -> None:
    """The file is cut to complete records while it is read."""
    ended = threading.Event()
    views = 0

    def view() -> None:
        nonlocal views
        while not ended.is_set():
            for file in ext4.glob("*.pcap"):
                try:
                    with PcapFile(file, allow_damage=True) as pcap:
                        pcap[-3000:].gather()
                        views += 1
                except DaqiriError as error:
                    assert str(file) in str(error)

    viewer = threading.Thread(target=view)
    viewer.start()
    try:
        with traffic.rx.record(ext4, writer=writer, on_error="resume") as recorder:
            for _ in range(3):
                while not recorder.snapshot().failing:
                    traffic.send(recorder)
                for file in ext4.glob("*.pcap"):
                    file.unlink()
                wait_for(lambda: not recorder.snapshot().failing)
        wait_for(lambda: views > 0)
    finally:
        ended.set()
        viewer.join()


def test_recording_resumes_when_the_directory_is_back(tmp_path: Path, traffic: Traffic) -> None:
    directory = tmp_path / "captures"
    directory.mkdir()
    with traffic.rx.record(directory, on_error="resume") as recorder:
        traffic.send(recorder)
        for file in (*directory.iterdir(), directory):
            file.rmdir() if file.is_dir() else file.unlink()
        wait_for(lambda: recorder.snapshot().failing)
        traffic.send(recorder)
        state = recorder.snapshot()
        assert (state.packets, state.dropped) == (0, 2000)
        assert "capture_000000.pcap was removed" in state.error
        directory.mkdir()
        wait_for(lambda: not recorder.snapshot().failing)
        traffic.send(recorder)
    assert [file.path.name for file in recorder.files()] == ["capture_000001.pcap"]
    require_account(recorder, traffic.sent)


@pytest.mark.root
def test_recording_resumes_when_files_can_be_made_again(tmpfs: Path, traffic: Traffic) -> None:
    with traffic.rx.record(tmpfs, on_error="resume", roll_packets=100) as recorder:
        # The file, its metadata and the directory are there; the next file cannot be.
        command("mount", "-o", "remount,nr_inodes=4", tmpfs)
        traffic.send(recorder, 150)
        traffic.send(recorder, 50)
        state = recorder.snapshot()
        assert "No space left on device" in state.error
        assert (state.packets, state.dropped, state.failing) == (100, 100, True)
        # The full file remains the one that reports the losses.
        assert recorder.files() == []
        command("mount", "-o", "remount,nr_inodes=1000", tmpfs)
        wait_for(lambda: not recorder.snapshot().failing)
        assert [file.dropped for file in recorder.files()] == [100]
        traffic.send(recorder, 100)
    require_account(recorder, traffic.sent)


@pytest.mark.root
@pytest.mark.parametrize("on_error", ["stop", "resume"])
def test_a_disk_that_stays_full_costs_nothing_in_silence(
    on_error: Any, tmpfs: Path, traffic: Traffic
) -> None:
    with traffic.rx.record(tmpfs, on_error=on_error, roll_packets=300) as recorder:
        for attempt in range(8):
            traffic.send(recorder)
            if attempt % 3 == 2:
                time.sleep(0.6)  # a recorder that resumes tries again twice a second
    state = recorder.snapshot()
    assert state.dropped > 5000
    assert sum(file.dropped for file in recorder.files()) == state.dropped
    require_account(recorder, traffic.sent)


@pytest.mark.root
@pytest.mark.parametrize("writer", ["buffered", "direct"])
def test_a_disk_that_breaks_ends_a_recording(
    writer: Any, ext4: Path, traffic: Traffic, break_disk: Callable[[Path], None]
) -> None:
    with traffic.rx.record(ext4, writer=writer) as recorder:
        traffic.send(recorder)
        break_disk(ext4)
        while not recorder.snapshot().failing:
            traffic.send(recorder)
        traffic.send(recorder)
        state = recorder.snapshot()
        assert "capture_000000.pcap: Input/output error" in state.error
        assert state.running
    assert recorder.snapshot().dropped >= 1000
    assert traffic.rx.counters().dropped_total == 0


def test_starting_and_stopping_under_traffic_leaks_nothing(
    tmp_path: Path, loopback: Build, made_frames: Frames
) -> None:
    def usage() -> tuple[int, int, list[str]]:
        threads = len(list(Path("/proc/self/task").iterdir()))
        children = [file.read_text() for file in Path("/proc/self/task").glob("*/children")]
        return threads, len(os.listdir("/proc/self/fd")), children

    frames = made_frames(1000, 1000)
    with Engine.open(loopback(log_level="off", loopback_drops=True)) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        running = threading.Event()

        def send() -> None:
            while not running.is_set():
                tx.send(frames[:64])

        recorded = 0
        sender = threading.Thread(target=send)
        sender.start()
        try:
            before: tuple[int, int, list[str]] | None = None
            for cycle in range(100):
                writer: Any = ("buffered", "direct")[cycle % 2]
                with rx.record(tmp_path, first_number=cycle, writer=writer) as recorder:
                    wait_for(lambda recorder=recorder: recorder.snapshot().packets >= 64)
                file = recorder.files()[-1]
                with PcapFile(file.path) as pcap:
                    assert len(pcap) == file.packets > 0
                recorded += file.packets
                file.path.unlink()
                del recorder, pcap
                before = before or usage()
                assert usage() == before
        finally:
            running.set()
            sender.join()
        assert tx.wait_sent(10.0)
        rx.flush()
        counters = rx.counters()
        assert counters.delivered == recorded
        assert counters.received == counters.delivered + counters.held + counters.dropped_total
        # All buffers have been returned: they hold all packets.
        lost = counters.dropped_total
        for first in range(0, 4000, 1000):
            assert tx.send(frames[first % 1000 :]) == 1000
        assert tx.wait_sent(10.0)
        wait_for(lambda: rx.counters().held == 4000)
        assert rx.counters().dropped_total == lost
