"""Files of frames that are removed, that already exist, or that have a limited size."""

from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from run_documents import Documents, until

from daqiri_ophyd.devices import CaptureError, FrameDetector
from daqiri_ophyd.documents import is_master

from .conftest import Source, fly, images, take_reading


def documented(documents: Documents, key: str) -> dict[Path, int]:
    """Return the files in documents, and how many rows of each."""
    rows: dict[Path, int] = {}
    paths = {
        doc["uid"]: Path(urlparse(doc["uri"]).path)
        for doc in documents.of("stream_resource")
        if doc["data_key"] == key
    }
    for doc in documents.of("stream_datum"):
        if doc["stream_resource"] in paths:
            path = paths[doc["stream_resource"]]
            rows[path] = max(rows.get(path, 0), doc["indices"]["stop"])
    return rows


def send(source: Source, count: int) -> Any:
    source.send(count)
    yield from bps.null()


def test_a_prepared_fly_scan_fills_one_file(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    plan = fly(detector, send(source, 12), prepared=10)
    run_engine(bpp.stage_wrapper(plan, [detector]))
    (path,) = detector.files
    assert documented(documents, detector.name) == {path: 10}
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["entry/data/data"][:], images(range(10)))


def test_a_layout_is_not_set_any_more(run_engine: RunEngine, detector: FrameDetector) -> None:
    chunked = "files of frames are always chunked, one chunk per frame: leave layout out."
    attribute = attrgetter("layout")
    with pytest.raises(AttributeError) as missing:
        attribute(detector)
    assert str(missing.value) == f"{detector.name} has no setting layout; {chunked}"
    assert not hasattr(detector, "layout")
    with pytest.raises(ValueError, match="layout of") as refused:
        run_engine(bps.configure(detector, {"layout": "contiguous", "roll_frames": 5}))
    assert str(refused.value) == f"layout of {detector.name} is 'contiguous'; {chunked}"
    assert detector.roll_frames.get() == 0
    run_engine(bps.configure(detector, {"roll_frames": 5}))
    assert detector.roll_frames.get() == 5
    with pytest.raises(AttributeError, match="other"):
        attrgetter("other")(detector)


def test_a_prepared_fly_scan_that_gets_fewer_frames_fails(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    detector.acquire_time.put(0.3)
    plan = fly(detector, send(source, 4), prepared=100)
    with pytest.raises(FailedStatus, match="4 of 100 frames, and is prepared for all of them"):
        run_engine(bpp.stage_wrapper(plan, [detector]))
    assert list(documented(documents, detector.name).values()) in ([], [4])


def test_documents_name_the_files_that_are_there(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    detector.num_frames.put(0)
    detector.roll_frames.put(5)
    detector.on_error.put("resume")
    detector.on_drop.put("ignore")

    def motion() -> Any:
        source.send(3)
        yield from until(lambda: detector.progress and detector.progress.frames == 3)
        first = detector.progress.path
        assert first is not None and first.name == "images_000000.h5"
        first.unlink()
        yield from until(lambda: detector.progress.failing)
        for _ in range(30):
            source.send(1)
            yield from bps.sleep(0.05)

    run_engine(bpp.stage_wrapper(fly(detector, motion()), [detector]))
    found = documented(documents, detector.name)
    present = {path: rows for path, rows in found.items() if path.exists()}
    assert present and set(found) - set(present) <= {next(iter(found))}  # what was removed
    files = next(iter(present)).parent.glob("*.h5")
    assert sorted(present) == sorted(path for path in files if not is_master(path))
    numbers: list[int] = []
    for path, rows in present.items():
        with h5py.File(path) as file:
            assert len(file["entry/data/data"]) == rows
            batches = file["entry/data/batch"][:]
            expected = images(batches)
            expected[file["entry/data/packets"][:] == 0] = 0  # lost with the file
            np.testing.assert_array_equal(file["entry/data/data"][:], expected)
        numbers += batches.tolist()
    removed = sum(rows for path, rows in found.items() if path not in present)
    assert numbers == list(range(removed, source.next))


@pytest.mark.files_in_no_document("the error comes after the run")
def test_a_file_that_is_removed_behind_the_last_reading_fails_the_run(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    def plan() -> Any:
        yield from bps.open_run()
        yield from take_reading(detector, source)
        detector.files[0].unlink()
        yield from bps.close_run()

    with pytest.raises(CaptureError, match="was removed or cut while it was being written"):
        run_engine(bpp.stage_wrapper(plan(), [detector]))


def test_settings_that_have_no_effect_are_refused(detector: FrameDetector, source: Source) -> None:
    detector.acquire_time.put(1.0)
    detector.stage()
    with pytest.raises(CaptureError, match="acquire_time is 1, which is for fly scans"):
        detector.trigger()
    detector.acquire_time.put(0.0)
    detector.on_error.put("resume")
    with pytest.raises(CaptureError, match="on_error is 'resume', which is for fly scans"):
        detector.trigger()
    detector.unstage()
