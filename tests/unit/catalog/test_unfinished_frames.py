"""What becomes of files of frames of a run that was not closed, on files that h5py makes."""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from daqiri_ophyd.catalog._unfinished import UnfinishedRun
from daqiri_ophyd.cli import _frame_file
from daqiri_ophyd.documents import FrameStream, frame_facts, keep_frames, sidecar_path
from daqiri_ophyd.engine import InvalidParameterError, examine_frames

Documents = list[tuple[str, dict[str, Any]]]

SHAPE = (4, 6)
NUMBERS = {
    "batch": "u4",
    "timestamp": "i8",
    "last_timestamp": "i8",
    "packets": "u4",
    "missing": "u4",
    "timed_out": "u1",
    "lossy": "?",
    "pulse_id": "u8",
}


def write(path: Path, count: int) -> Path:
    """Write a file of so many frames, as a recorder does, and its metadata."""
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        detector = file.create_group("entry/instrument/camera")
        plot = file.create_group("entry/data")
        values = {name: np.ones(count, kind) for name, kind in NUMBERS.items()}
        values |= {"valid": np.ones((count, 1), "u1"), "data": np.ones((count, *SHAPE), "u2")}
        values |= {"pulses": np.ones((count, 4), "u8")}
        for name, value in values.items():
            chunks = (1, *SHAPE) if name == "data" else (8, *value.shape[1:])
            plot[name] = detector.create_dataset(
                name, data=value, chunks=chunks, maxshape=(None, *value.shape[1:])
            )
    said = frame_facts(examine_frames(path)) | {"dropped": 0}
    sidecar_path(path).write_text(json.dumps(said))
    return path


def frames_of(path: Path) -> int:
    with h5py.File(path) as file:
        return len(file["entry/data/data"])


class Run:
    """Documents of a run in which device ``images`` writes files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.images = FrameStream(
            "images",
            "daqiri://port0/reorder/a",
            SHAPE,
            np.dtype("<u2"),
            columns={"pulse_id": (), "pulses": (4,)},
        )
        self.documents: Documents = [("start", {"uid": "run", "time": 1.0})]
        self.completed: Documents = []

    def declare(self, name: str, *, per_row: int = 1, **scalars: list[str]) -> None:
        """Declare a stream of frames, and of columns of devices."""
        keys: dict[str, Any] = dict(self.images.describe(per_row))
        own = list(keys) + scalars.pop("images", [])
        objects = {"images": own} | scalars
        columns = [key for of in objects.values() for key in of if key not in keys]
        keys |= {key: {"source": "x", "dtype": "number", "shape": []} for key in columns}
        doc = {"uid": name, "name": name, "data_keys": keys, "object_keys": objects}
        self.documents.append(("descriptor", {**doc, "time": 1.0, "run_start": "run"}))

    def file(self, count: int, *, per_row: int = 1, number: int = 0) -> Path:
        """Go on with a file of so many frames."""
        path = write(self.folder / f"images_{number:06d}.h5", count)
        self.images.begin(path, frames_per_row=per_row, flown=per_row == 1)
        return path

    def rows(self, descriptor: str, frames: int, first: int = 1) -> None:
        """Have rows of so many frames of the latest file in documents of a stream."""
        self.images.grow(frames)
        for name, doc in self.images.collect_asset_docs():
            if name == "stream_datum":
                rows = doc["indices"]["stop"] - doc["indices"]["start"]
                numbers = {"start": first, "stop": first + rows}
                doc = {**doc, "descriptor": descriptor, "seq_nums": numbers}
            self.documents.append((name, dict(doc)))

    def page(self, descriptor: str, rows: int, *columns: str) -> None:
        """Have so many rows of columns in an event page."""
        numbers = list(range(1, rows + 1))
        data = {column: [1.0] * rows for column in columns}
        page = {"descriptor": descriptor, "seq_num": numbers, "time": [2.0] * rows, "data": data}
        self.documents.append(("event_page", {**page, "uid": [f"{n}" for n in numbers]}))

    def event(self, descriptor: str, row: int) -> None:
        doc = {"descriptor": descriptor, "seq_num": row, "time": 2.0, "uid": "x", "data": {}}
        self.documents.append(("event", doc))

    def complete(self, *, partial: bool = False) -> UnfinishedRun:
        run = UnfinishedRun(self.documents, [self.folder], _frame_file.repair, partial=partial)
        self.completed = list(run.complete())
        return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def kept(path: Path, frames: int) -> list[str]:
    return [f"{path}: {frames} frames are in no document; they are kept"]


@pytest.mark.parametrize(("surplus", "cut"), [(1, True), (20, True), (21, False), (4990, False)])
def test_frames_of_two_readings_are_cut_and_of_more_are_kept(
    run: Run, surplus: int, cut: bool
) -> None:
    """The documents may lack more than one reading: a power failure takes their last seconds."""
    run.declare("primary", per_row=10, images=["images_dropped"])
    path = run.file(10 + surplus, per_row=10)
    run.rows("primary", 10)
    run.event("primary", 1)
    done = run.complete()
    assert frames_of(path) == (10 if cut else 10 + surplus)
    text = f"{path}: {surplus} frames of a reading that was not complete are cut off"
    assert done.mended == ([text] if cut else kept(path, surplus))
    assert (done.rows, done.unlisted) == (0, [])


@pytest.mark.parametrize("proof", ["events", "own columns", "frames of a row"])
def test_readings_are_known_by_what_proves_them(run: Run, proof: str) -> None:
    per_row = 2 if proof == "frames of a row" else 1
    motor = {} if proof == "own columns" else {"motor": ["motor_x"]}
    run.declare("primary", per_row=per_row, images=["images_dropped"], **motor)
    path = run.file(3 * per_row + 1, per_row=per_row)
    run.rows("primary", 3 * per_row)
    if proof == "events":
        for row in (1, 2, 3):
            run.event("primary", row)
    else:
        run.page("primary", 3, "images_dropped", *(["motor_x"] if motor else []))
    done = run.complete()
    assert frames_of(path) == 3 * per_row
    assert len(done.mended) == 1 and "cut off" in done.mended[0]


def test_frames_beside_another_flyers_columns_are_kept(run: Run) -> None:
    run.declare("primary", flyer=["flyer_x"])
    path = run.file(6)
    beside = write(path.with_name("images_000001.h5"), 3)
    run.rows("primary", 5)
    run.page("primary", 5, "flyer_x")
    done = run.complete()
    assert frames_of(path) == 6
    assert done.mended == kept(path, 1)
    assert (done.rows, done.unlisted) == (0, [beside])


@pytest.mark.parametrize("streams", [1, 2])
def test_files_follow_in_the_only_stream_that_has_their_device(run: Run, streams: int) -> None:
    run.declare("a")
    if streams == 2:
        run.declare("b")  # whose file is in no document yet
    run.file(6)
    beside = write(run.folder / "images_000001.h5", 3)
    run.rows("a", 5)
    done = run.complete()
    assert (done.rows, done.unlisted) == ((4, []) if streams == 1 else (1, [beside]))
    master = run.folder / "images_000000_master.h5"
    written = [f"{master}: written, the master of 2 files"] if streams == 1 else []
    found = [doc for name, doc in run.completed if name == "stream_resource"]
    chunks: dict[str, set[tuple[int, ...]]] = {doc["data_key"]: set() for doc in found}
    for doc in found:
        chunks[doc["data_key"]].add(tuple(doc["parameters"]["chunk_shape"]))
    assert chunks["images_pulse_id"] == {(1024,)}
    assert chunks["images_pulses"] == {(256,)}  # four numbers for each frame
    assert len(found) == (2 if streams == 1 else 1) * len(chunks)
    assert done.mended == written
    assert [path.name for path in run.folder.glob("*master.h5")] == [master.name] * len(written)


def test_files_of_a_part_of_the_documents_are_repaired_and_listed(run: Run) -> None:
    run.declare("primary", per_row=10, images=["images_dropped"])
    path = run.file(11, per_row=10)
    run.rows("primary", 10)
    run.event("primary", 1)
    beside = write(run.folder / "images_000001.h5", 3)
    sidecar_path(beside).write_text(sidecar_path(path).read_text())
    done = run.complete(partial=True)
    assert (frames_of(path), frames_of(beside)) == (11, 3)
    assert json.loads(sidecar_path(beside).read_bytes())["frames"] == 3
    assert (done.rows, done.unlisted) == (0, [beside])
    assert done.mended[0].startswith(f"{beside}: images_000001.h5.json corrected")
    assert done.mended[1:] == kept(path, 1)


def no_json(path: Path) -> Any:
    sidecar_path(path).write_text("{")


def no_counts(path: Path) -> Any:
    content = json.loads(sidecar_path(path).read_bytes())
    sidecar_path(path).write_text(json.dumps(content | {"left_out_by_reason": []}))


def part(path: Path) -> Any:
    path.with_name(f".{path.name}.json.part").touch()


def writer(path: Path) -> Any:
    file = path.open("rb")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (no_json, "is not JSON"),
        (no_counts, "left_out_by_reason is \\[\\], expected an object"),
        (part, "json.part exists"),
        (writer, "is being written by a recorder"),
    ],
)
def test_a_file_is_cut_only_if_its_metadata_can_be_corrected(
    tmp_path: Path, spoil: Callable[[Path], Any], text: str
) -> None:
    path = write(tmp_path / "images_000000.h5", 5)
    before = path.read_bytes()
    held = spoil(path)
    said = sidecar_path(path).read_bytes()
    with pytest.raises(ValueError, match=text):
        keep_frames(path, 3, "they are of no reading")
    if held is not None:
        held.close()
    assert (path.read_bytes(), sidecar_path(path).read_bytes()) == (before, said)
    assert not path.with_name(f"{path.name}.repair.jsonl").exists()


def test_a_cut_is_in_the_log_and_in_the_metadata(tmp_path: Path) -> None:
    path = write(tmp_path / "images_000000.h5", 5)
    assert keep_frames(path, 3, "they are of no reading") == 2
    said = json.loads(sidecar_path(path).read_bytes())
    assert (frames_of(path), said["frames"], said["left_out"]) == (3, 3, 2)
    assert said["left_out_by_reason"] == {"rewound": 2}
    (line,) = path.with_name(f"{path.name}.repair.jsonl").read_text().splitlines()
    logged = json.loads(line)
    assert (logged["frames_kept"], logged["frames_cut"]) == (3, 2)
    assert logged["reason"] == "they are of no reading"
    assert keep_frames(path, 3, "they are of no reading") == 0


def test_a_file_that_somebody_holds_is_reported(run: Run) -> None:
    def refuse(path: Path) -> list[str]:
        raise InvalidParameterError(f"{path} is in use")

    run.declare("a")
    path = run.file(6)
    run.rows("a", 5)
    done = UnfinishedRun(run.documents, [run.folder], refuse)
    done.complete()
    assert done.mended == [f"{path}: not repaired: {path} is in use"]
