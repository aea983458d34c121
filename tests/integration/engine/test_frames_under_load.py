"""Rows, counters and pixels of a camera that loses packets, recorded by a process that stalls."""

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_camera import camera, numbered_packets, together
from waiting import wait_for

from daqiri_ophyd.engine import Port, Recorder

# Images of an acquisition.
IMAGES = 200


class LossyCamera:
    """Sends images of consecutive numbers: some are left out, and packets are lost or sent twice.

    Pixels of an image are its number modulo 251.
    """

    def __init__(self, port: Port, packets: int, size: int, seed: int) -> None:
        self.sent = 0
        self.whole: dict[int, int] = {}
        """Packets that were sent of each image, without duplicates."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(port, packets, size, seed))

    @contextmanager
    def sending(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join()

    def _run(self, port: Port, packets: int, size: int, seed: int) -> None:
        chance = random.Random(seed)
        number = 0
        while not self._end.is_set():
            images: list[int] = []
            slots: list[int] = []
            for _ in range(max(64 // packets, 1)):
                number += 1
                # Six images at once of each 5,000.
                if chance.random() < 0.01 or number % 5_000 < 6:
                    continue
                kept = [slot for slot in range(packets) if chance.random() > 0.02 / packets]
                self.whole[number] = len(kept)
                twice = [slot for slot in kept if chance.random() < 0.02 / packets]
                slots += kept + twice
                images += [number] * len(kept + twice)
            if not images:
                continue
            values = (np.array(images) % 251).astype(np.uint8)
            udp = numbered_packets(images, slots, values, size)
            self.sent += port.tx[0].send(udp, timeout=60.0)


Trouble = Callable[[Recorder, int], AbstractContextManager[None]]


def record_and_look(
    folder: Path, packets: int, seconds: float, trouble: Trouble, on_error: Any = "stop"
) -> int:
    """Record acquisitions, each begun within `trouble`; return the frames that were not written."""
    until = time.monotonic() + seconds
    with camera(packets, 64, window=4, fill=255) as source:
        plan, port = source.plan, source.engine.ports[0]
        lossy = LossyCamera(port, packets, 64, seed=packets)
        acquired = 0
        options = {"held": True, "roll_frames": 5 * IMAGES, "on_error": on_error}
        with lossy.sending(), plan.record(folder, **options) as recorder:
            while acquired < 3 or time.monotonic() < until:
                with trouble(recorder, acquired):
                    recorder.acquire(IMAGES)
                wait_for(lambda: recorder.snapshot().acquired == IMAGES)
                acquired += 1
        assert port.tx[0].wait_sent(60.0)
        wait_for(
            lambda: plan.counters().packets + port.rx[0].counters().dropped_total == lossy.sent
        )
        snapshot, counters, queue = recorder.snapshot(), plan.counters(), port.rx[0].counters()
    ends = ("placed", "duplicate", "late", "early", "malformed", "left_out", "no_buffer")
    assert counters.packets == sum(getattr(counters, name) for name in ends)
    assert counters.malformed == 0

    files = recorder.files()
    row = {name: together(files, name) for name in ("batch", "packets", "missing")}
    assert len(row["batch"]) == snapshot.frames == acquired * IMAGES
    assert snapshot.packets == row["packets"].sum()
    assert (row["packets"] + row["missing"] == packets).all()
    batches = row["batch"].reshape(acquired, IMAGES)
    assert (np.diff(batches, axis=1) == 1).all()
    assert (np.diff(row["batch"]) > 0).all()
    # Nothing that was not sent, and nothing that is of another image.
    most = np.array([lossy.whole.get(number, 0) for number in row["batch"].tolist()])
    assert (row["packets"] <= most).all()
    lost = counters.lost or queue.dropped_total or counters.late or counters.early
    if not (lost or snapshot.dropped):
        assert (row["packets"] == most).all()
    for file in files:
        one = {name: together([file], name) for name in ("batch", "packets", "data")}
        there = one["data"] != 255
        assert (there.sum(axis=(1, 2)) == one["packets"] * 64).all()
        value = (one["batch"] % 251).astype(np.uint8)[:, np.newaxis, np.newaxis]
        assert (there <= (one["data"] == value)).all()
    absent = int((row["packets"] == 0).sum())
    assert absent <= counters.skipped + counters.lost + snapshot.dropped
    assert sum(file.frames for file in files) == snapshot.frames
    told = [json.loads(Path(f"{file.path}.json").read_text()) for file in files]
    assert sum(each["frames"] for each in told) == snapshot.frames
    assert sum(each["dropped_by_reason"].get("write_error", 0) for each in told) == snapshot.dropped
    return snapshot.dropped


def seconds(request: pytest.FixtureRequest) -> float:
    return 200 if request.config.getoption("--slow") else 1


# Minutes of frames take as long to be looked at.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("packets", [1, 8, 128])
def test_row_i_is_image_i_whatever_is_lost(
    tmp_path: Path, request: pytest.FixtureRequest, packets: int
) -> None:
    @contextmanager
    def stall(_: Recorder, acquired: int) -> Iterator[None]:
        # Frames come in all the same, so that buffers run out.
        long = acquired % 1000 == 999
        time.sleep(20 if long else 0.02 if acquired % 4 == 1 else 0)
        yield

    assert record_and_look(tmp_path, packets, seconds(request), stall) == 0


@pytest.mark.root
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "packets",
    [pytest.param(1, marks=pytest.mark.slow), 8, pytest.param(128, marks=pytest.mark.slow)],
)
def test_row_i_is_image_i_on_a_disk_that_is_full_now_and_then(
    tmp_path: Path, request: pytest.FixtureRequest, packets: int
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(*options: str) -> None:
        subprocess.run(["mount", *options, disk], check=True, capture_output=True)

    @contextmanager
    def full(recorder: Recorder, acquired: int) -> Iterator[None]:
        if acquired % 5 != 1:
            yield
            return
        dropped, now = recorder.snapshot().dropped, os.statvfs(disk)
        # What it has.
        mount("-o", f"remount,size={(now.f_blocks - now.f_bfree) * now.f_frsize}")
        yield
        # Small images may all fit in the blocks that the file has.
        wait_for(lambda: (now := recorder.snapshot()).dropped > dropped or now.acquired == IMAGES)
        mount("-o", "remount,size=8g")

    mount("-t", "tmpfs", "-o", "size=8g", "tmpfs")
    try:
        assert record_and_look(disk, packets, seconds(request), full, "resume") > 0
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
