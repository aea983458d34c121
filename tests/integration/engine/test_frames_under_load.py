"""Rows, counters and pixels of a camera that loses packets, recorded by a process that stalls."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_for

from daqiri_ophyd.engine import Port

from .numbered_camera import camera, numbered_packets, together

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


# Minutes of frames take as long to be looked at.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("packets", [1, 8, 128])
def test_row_i_is_image_i_whatever_is_lost(
    tmp_path: Path, request: pytest.FixtureRequest, packets: int
) -> None:
    until = time.monotonic() + (200 if request.config.getoption("--slow") else 1)
    with camera(packets, 64, window=4, fill=255) as source:
        plan, port = source.plan, source.engine.ports[0]
        lossy = LossyCamera(port, packets, 64, seed=packets)
        acquired = 0
        with lossy.sending(), plan.record(tmp_path, held=True, roll_frames=5 * IMAGES) as recorder:
            while acquired < 3 or time.monotonic() < until:
                recorder.acquire(IMAGES)
                wait_for(lambda: recorder.snapshot().acquired == IMAGES)
                acquired += 1
                # Frames come in all the same, so that buffers run out.
                time.sleep(0.02 if acquired % 4 == 0 else 0)
        assert port.tx[0].wait_sent(60.0)
        wait_for(
            lambda: plan.counters().packets + port.rx[0].counters().dropped_total == lossy.sent
        )
        snapshot, counters, queue = recorder.snapshot(), plan.counters(), port.rx[0].counters()
    ends = ("placed", "duplicate", "late", "early", "malformed", "no_buffer")
    assert counters.packets == sum(getattr(counters, name) for name in ends)
    assert counters.malformed == 0

    files = recorder.files()
    row = {name: together(files, name) for name in ("batch", "packets", "missing", "data")}
    assert len(row["batch"]) == snapshot.frames == acquired * IMAGES
    assert snapshot.packets == row["packets"].sum()
    assert (row["packets"] + row["missing"] == packets).all()
    batches = row["batch"].reshape(acquired, IMAGES)
    assert (np.diff(batches, axis=1) == 1).all()
    assert (np.diff(row["batch"]) > 0).all()
    # Nothing that was not sent, and nothing that is of another image.
    most = np.array([lossy.whole.get(number, 0) for number in row["batch"].tolist()])
    assert (row["packets"] <= most).all()
    if not (counters.lost or queue.dropped_total or counters.late or counters.early):
        assert (row["packets"] == most).all()
    there = row["data"] != 255
    assert (there.sum(axis=(1, 2)) == row["packets"] * 64).all()
    value = (row["batch"] % 251).astype(np.uint8)[:, np.newaxis, np.newaxis]
    assert (there <= (row["data"] == value)).all()
    absent = int((row["packets"] == 0).sum())
    assert absent <= counters.skipped + counters.lost
    assert sum(file.frames for file in files) == snapshot.frames
