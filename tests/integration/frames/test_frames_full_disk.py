"""Scans of frames on a disk that fills up: every frame is in a file or reported as lost."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from run_documents import Documents, until

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.cli import _frame_file
from daqiri_ophyd.devices import FrameDetector
from daqiri_ophyd.devices.recording._recording import Recording
from daqiri_ophyd.documents import is_master

from .conftest import PACKETS, Source, fly, images

KEY = "daq_port0_frames_images"
pytestmark = pytest.mark.root


@pytest.fixture
def captures(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB in memory, as the directory of captures."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], check=True, capture_output=True
    )
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def batches(paths: list[Path]) -> list[int]:
    """Return the numbers of the images in files, which are equal to those sent."""
    found: list[int] = []
    for path in paths:
        assert _frame_file.examine(path).problems == []
        with h5py.File(path) as file:
            numbers = file["entry/data/batch"][:]
            expected = images(numbers).reshape(-1, 8, 32)
            expected[file["entry/data/packets"][:] == 0] = 0  # not written, and of fill value
            np.testing.assert_array_equal(file["entry/data/data"][:], expected)
            found += numbers.tolist()
    return found


def until_lost(detector: FrameDetector, source: Source) -> Any:
    """Send until frames cannot be written."""
    while detector.progress is not None and not detector.progress.failing:
        assert source.next < 5000
        source.send(50)
        yield from bps.sleep(0.01)


def test_a_fly_scan_fails_with_what_was_written(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    captures: Path,
) -> None:
    detector.num_frames.put(5000)
    detector.on_drop.put("ignore")
    plan = fly(detector, until_lost(detector, source))
    with pytest.raises(FailedStatus, match="No space left on device"):
        run_engine(bpp.stage_wrapper(plan, [detector]))
    (path,) = captures.rglob("*.h5")
    written = batches([path])
    assert written == list(range(len(written))) and len(written) > 100
    metadata = json.loads(path.with_name(path.name + ".json").read_text())
    assert metadata["frames"] == len(written)
    assert metadata["dropped"] > 0
    stop = documents.of("stop")[0]
    assert stop["exit_status"] == "fail" and "No space left" in stop["reason"]


def fill(disk: Path) -> None:
    """Fill a disk completely."""
    with (disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.parametrize("on_error", ["stop", "resume"])
def test_a_disk_that_is_full_before_the_first_frame_fails_a_fly_scan(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    captures: Path,
    on_error: str,
) -> None:
    """Written frames are in rows (possibly all), and the error reports why others are not."""
    detector.on_error.put(on_error)
    detector.timeout.put(0.5)
    detector.num_frames.put(50)
    detector.on_drop.put("ignore")

    def motion() -> Any:
        fill(captures)
        source.send(50)
        yield from until(lambda: detector.progress is None or detector.progress.failing)

    plan = fly(detector, motion())
    with pytest.raises(FailedStatus, match=f"{captures}.*No space left on device"):
        run_engine(bpp.stage_wrapper(plan, [detector]))
    stop = documents.stop
    assert stop["exit_status"] == "fail" and "No space left" in stop["reason"]
    (path,) = captures.rglob("*.h5")
    metadata = json.loads(path.with_name(path.name + ".json").read_text())
    written = batches([path])
    assert written == list(range(len(written))) and len(written) < 50
    assert metadata["frames"] == len(written)
    assert 0 < metadata["dropped"] == detector.dropped.get() <= 50 - len(written)
    if on_error == "resume":  # otherwise the recording ends with the first that is not written
        assert metadata["dropped"] == 50 - len(written)
    ends = [doc["indices"]["stop"] for doc in documents.of("stream_datum")]
    assert max(ends, default=0) == len(written)


@pytest.mark.parametrize("policy", ["flag", "ignore"])
def test_a_fly_scan_goes_on_when_there_is_room_again(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    captures: Path,
    policy: str,
) -> None:
    detector.num_frames.put(0)
    detector.on_drop.put(policy)
    detector.on_error.put("resume")

    def motion() -> Any:
        yield from until_lost(detector, source)
        subprocess.run(["mount", "-o", "remount,size=64m", captures], check=True)
        yield from until(lambda: not detector.progress.failing)
        source.send(20)
        # Rows of images that were lost are of fill value: row i is image i.
        yield from until(lambda: detector.progress.frames == source.next)

    run_engine(bpp.stage_wrapper(fly(detector, motion()), [detector]))
    files = sorted(path for path in captures.rglob("*.h5") if not is_master(path))
    assert detector.files == files and len(files) == 2
    written = batches(files)
    assert written == list(range(source.next))
    rows = catalog.client[documents.of("start")[0]["uid"]]["primary"].base
    assert rows[f"{KEY}_batch"].read().tolist() == written
    absent = rows[f"{KEY}_missing"].read() == PACKETS
    dropped = np.flatnonzero(absent)
    assert 0 < len(dropped) == detector.dropped.get()
    assert (np.diff(dropped) == 1).all() and dropped[-1] < source.next - 20
    if policy == "flag":
        lossy = absent.copy()
        lossy[dropped[-1] + 1] = True  # the first one after them
        np.testing.assert_array_equal(rows[f"{KEY}_lossy"].read(), lossy)


@pytest.mark.parametrize("seen_first", ["end", "lost frames"])
def test_readings_before_the_disk_was_full_are_kept(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    captures: Path,
    seen_first: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detector.num_frames.put(100)
    if seen_first == "lost frames":  # by the ticker, before the event that the recorder has ended

        def see_end(recording: Recording) -> None:
            if threading.current_thread().name != "daqiri-events":
                on_event(recording)

        on_event = Recording._on_event
        monkeypatch.setattr(Recording, "_on_event", see_end)

    def plan() -> Any:
        yield from bps.open_run()
        for _ in range(50):
            yield from bps.trigger(detector, group="reading")
            source.send(100)
            yield from bps.wait("reading")
            yield from bps.create()
            yield from bps.read(detector)
            yield from bps.save()
        yield from bps.close_run()

    with pytest.raises(FailedStatus, match="No space left on device"):
        run_engine(bpp.stage_wrapper(plan(), [detector]))
    stop = documents.of("stop")[0]
    readings = stop["num_events"]["primary"]
    assert readings > 1
    rows = catalog.client[stop["run_start"]]["primary"].base
    expected = np.arange(readings * 100).reshape(readings, 100)
    np.testing.assert_array_equal(rows[f"{KEY}_batch"].read(), expected)
    np.testing.assert_array_equal(rows[KEY].read(), images(expected))
    (path,) = captures.rglob("*.h5")
    # The data of the failed reading is cut off.
    assert batches([path]) == list(range(readings * 100))
