"""Checking and repairing files of frames, of any bytes: a report or an error, never a crash.

The HDF5 library is not compiled for coverage, and what Python does hardly depends on the bytes: a
fuzzer that looks at coverage would learn nothing. So files that HDF5 opens are changed, in their
structure and in their bytes. pytest runs some; ``python tests/fuzz/test_frame_files.py SECONDS``
goes on, and keeps an input that fails in ``build/fuzz/failed``.

HDF5 may crash on them, in a process of its own. Here that is a fork of one that has loaded the
library, so that an input takes milliseconds.
"""

import io
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - has h5py copy compressed frames
import numpy as np
import pytest

from daqiri_ophyd.cli import _frame_file
from daqiri_ophyd.documents import frame_facts, sidecar_path
from daqiri_ophyd.engine import DaqiriError, Engine
from daqiri_ophyd.engine import _frame_file as engine_frame_file

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("frame_file_server.py")
RECORDING = ROOT / "tests" / "integration" / "engine" / "frame_recording_process.py"
FRAMES = 3
DETECTOR = "entry/instrument/camera"
STRUCTURE = 4096  # most of what HDF5 itself reads comes before
METADATA = {"packets": 3, "bytes": 300, "t_first_ns": 1, "t_last_ns": 2, "dropped": 0, "queue": "q"}


class Server:
    """Does the work of the process that reads files."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        to.write(json.dumps(command[3:]) + "\n")
        to.flush()
        return subprocess.CompletedProcess(command, *json.loads(answers.readline()))

    def close(self) -> None:
        self._process.communicate()


def contiguous(data: bytes) -> bytes:
    """The same frames as earlier versions stored them, and other programs do: not in chunks."""
    made = io.BytesIO()
    with h5py.File(io.BytesIO(data)) as source, h5py.File(made, "w") as file:
        detector = file.create_group(DETECTOR)
        for name, dataset in source[DETECTOR].items():
            detector[name] = dataset[()]
        file["entry/data"] = detector
    return made.getvalue()


def recorded() -> dict[str, bytes]:
    """Files as recorders leave them: complete, and in the middle of it; and a contiguous one."""
    spec = spec_from_file_location(RECORDING.stem, RECORDING)
    assert spec is not None and spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    kinds: dict[str, dict[str, Any]] = {
        "chunked": {},
        "compressed": {"compression": "bitshuffle-lz4"},
    }
    found = {}
    with Engine.open(made.config()) as engine, tempfile.TemporaryDirectory() as folder:
        port = engine.ports[0]
        for number, (kind, options) in enumerate(kinds.items()):
            plan = port.reorder["camera"]
            recorder = plan.record(folder, kind, max_frames=FRAMES + 1, **options)
            with recorder:
                first = number * (FRAMES + 1)
                port.tx[0].send(made.packets_of(first, made.pixels(first, FRAMES)))
                while recorder.snapshot().flushed < FRAMES:
                    recorder.wait(0.1)
                path = recorder.snapshot().path
                assert path is not None
                found[f"killed {kind}"] = path.read_bytes()
                port.tx[0].send(made.packets_of(first + FRAMES, made.pixels(first + FRAMES, 1)))
                while recorder.snapshot().running:
                    recorder.wait(0.1)
            found[kind] = path.read_bytes()
    return found | {"contiguous": contiguous(found["chunked"])}


# --- Changes of the structure


def replace(name: str, **how: Any) -> Callable[[h5py.File], None]:
    """Another dataset in the place of one."""

    def change(file: h5py.File) -> None:
        del file[DETECTOR][name]
        file[DETECTOR].create_dataset(name, **how)

    return change


def resize(name: str, rows: int) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        if file[DETECTOR][name].chunks:
            file[DETECTOR][name].resize(rows, axis=0)

    return change


def values(name: str, row: int, value: int) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file[DETECTOR][name][row] = value

    return change


def link(name: str, to: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[DETECTOR][name]
        file[DETECTOR][name] = to

    return change


def rename(name: str) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file.move(DETECTOR, f"entry/instrument/{name}")

    return change


def virtual(file: h5py.File) -> None:
    data = file[DETECTOR]["data"]
    layout = h5py.VirtualLayout(data.shape, data.dtype)
    layout[:] = h5py.VirtualSource(".", "/entry/data/data", data.shape)
    del file[DETECTOR]["data"]
    file[DETECTOR].create_virtual_dataset("data", layout)


CHANGES: list[Callable[[h5py.File], Any]] = [
    *(resize(name, rows) for name in ("data", "packets", "valid") for rows in (0, 2, 2**40)),
    *(values("packets", row, value) for row in (0, -1) for value in (0, 2**32 - 1)),
    values("timestamp", -1, -(2**63)),
    values("missing", 0, 2**32 - 1),
    replace("packets", data=np.arange(4, dtype="f8")),
    replace("packets", data=5),
    replace("packets", data=h5py.Empty("u4")),
    replace("packets", data=np.array(["a", "b"], dtype=h5py.string_dtype())),
    replace("packets", data=np.zeros((4, 2), "u4")),
    replace("packets", data=np.zeros(4, [("a", "u4"), ("b", "u1")])),
    replace("packets", shape=(2**60,), dtype="u4", chunks=(2**10,)),
    replace("timestamp", shape=(2**60,), dtype="i8", chunks=(2**10,), compression="gzip"),
    replace("valid", shape=(4, 2**60), dtype="u1", chunks=(1, 1)),
    replace("data", data=np.zeros(4, "u2")),
    replace("data", data=np.zeros((4, 8, 8), "c8")),
    replace("data", shape=(4, 2**30, 2**30, 2**30), dtype="u8", chunks=(1, 1, 1, 1)),
    replace("data", shape=(4, 0), dtype="u2", chunks=(1, 1), maxshape=(None, None)),
    replace("data", shape=(2**62, 8), dtype="u2", chunks=(1, 8)),
    replace("data", shape=(4,) * 32, dtype="u1", chunks=(1,) * 32),
    link("missing", h5py.SoftLink("missing")),
    link("missing", h5py.ExternalLink("other.h5", "/x")),
    link("batch", h5py.SoftLink("/entry/instrument/camera/data")),
    link("valid", h5py.SoftLink("/entry")),
    rename("\N{GREEK SMALL LETTER ALPHA}" * 200),
    rename("a/b"),
    lambda file: file.create_group("entry/instrument/second"),
    lambda file: file["entry/instrument"].move("camera", "../data/camera"),
    lambda file: file.pop("entry"),
    virtual,
]


def restructured(data: bytes, change: Callable[[h5py.File], Any], folder: Path) -> bytes:
    path = folder / "changed.h5"
    path.write_bytes(data)
    with h5py.File(path, "r+") as file:
        change(file)
    return path.read_bytes()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, most of them where the structure is; or a file that is cut off."""
    mutable = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 4, 16))):
        at = chance.randrange(chance.choice((64, STRUCTURE, len(data))))
        new = chance.choice((chance.randbytes(1), bytes(8), b"\xff" * 8, chance.randbytes(4)))
        mutable[at : at + len(new)] = new
    if chance.random() < 0.3:
        del mutable[chance.randrange(chance.choice((STRUCTURE, len(mutable)))) :]
    return bytes(mutable)


def inputs(chance: random.Random, folder: Path) -> Iterator[bytes]:
    """What recorders leave, then changes of its structure, then of bytes, without an end."""
    seeds = recorded()
    saved = list(seeds.values())
    yield from saved
    for kind in ("chunked", "contiguous"):
        for change in CHANGES:
            saved.append(restructured(seeds[kind], change, folder))
            yield saved[-1]
    while True:
        yield mutated(chance.choice(saved), chance)


# --- What holds for all of them


def require_report(data: bytes, folder: Path, said: bool) -> str:
    """The content of a file is reported and repaired, or it is rejected; with or without metadata.

    Returns which of them.
    """
    path = folder / "a.h5"
    for old in folder.glob("*a.h5*"):
        old.unlink()
    path.write_bytes(data)
    if said:
        sidecar_path(path).write_text(json.dumps(METADATA | {"frames": len(data) % 5}))
    found = _frame_file.examine(path)
    assert found.code in (0, 1, 2)
    assert all(found.problems)
    if found.frames is None:
        assert str(path) in found.unreadable
    try:
        done = _frame_file.repair(path)
    except (ValueError, DaqiriError, OSError) as error:
        assert str(path) in str(error)
        assert found.code != 0
        return "crashed" if "HDF5 crashed" in str(error) else "refused"
    assert bool(done) == bool(found.problems)
    after = _frame_file.examine(path)
    assert after.problems == []
    assert found.frames is not None and after.frames is not None
    assert frame_facts(after.frames) == frame_facts(found.frames)
    assert set(after.frames.lengths.values()) == {after.frames.frames}
    if said:
        content = json.loads(sidecar_path(path).read_text())
        assert content == METADATA | frame_facts(after.frames)
    assert _frame_file.repair(path) == []
    return "repaired" if done else "sound"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = Server()
    monkeypatch.setattr(engine_frame_file.subprocess, "run", server.run)
    yield
    server.close()


@pytest.mark.usefixtures("server")
def test_any_bytes_are_reported_or_refused(tmp_path: Path) -> None:
    chance = random.Random(32008)
    source = inputs(chance, tmp_path)
    for _ in range(2 * len(CHANGES) + 5 + 30):
        require_report(next(source), tmp_path, chance.random() < 0.5)


def main(seconds: float) -> None:
    chance = random.Random()
    failed = ROOT / "build" / "fuzz" / "failed"
    failed.mkdir(parents=True, exist_ok=True)
    server = Server()
    engine_frame_file.subprocess.run = server.run  # type: ignore[assignment]
    end, outcomes = time.monotonic() + seconds, Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        for data in inputs(chance, Path(name)):
            if time.monotonic() > end:
                break
            try:
                outcome = require_report(data, Path(name), chance.random() < 0.5)
            except Exception as error:
                outcome = "failed"
                path = failed / f"frames-{outcomes.total()}.h5"
                path.write_bytes(data)
                sys.stderr.write(f"{path}: {type(error).__name__}: {error}\n")
            outcomes[outcome] += 1
    server.close()
    sys.stderr.write(", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()) + "\n")
    sys.exit("failed" in outcomes)


if __name__ == "__main__":
    main(float(sys.argv[1]))
