"""``daqiri-ophyd frames info``, ``check`` and ``repair``, on files that h5py makes and reads."""

import fcntl
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from daqiri_ophyd.cli import _main
from daqiri_ophyd.documents import sidecar_path

COUNT = 12
T0 = 1_700_000_000_000_000_000
STEP = 1_000_003
SHAPE = (4, 6)
COLUMNS = {
    "batch": "u4",
    "timestamp": "i8",
    "last_timestamp": "i8",
    "packets": "u4",
    "missing": "u4",
    "timed_out": "u1",
    "lossy": "?",
}


def pixels(count: int = COUNT) -> np.ndarray:
    return np.arange(count * 24, dtype="u2").reshape(count, *SHAPE)


def column(name: str, count: int = COUNT) -> np.ndarray:
    i = np.arange(count)
    times = {"timestamp": T0 + i * STEP, "last_timestamp": T0 + i * STEP + 500}
    return {"batch": i, "packets": 3 + i % 2, "missing": (i + 1) % 2, **times}.get(name, 0 * i)


def fill(file: h5py.File, lengths: dict[str, int], contiguous: bool) -> None:
    detector = file.create_group("entry/instrument/camera")
    plot = file.create_group("entry/data")
    values = {name: column(name).astype(kind) for name, kind in COLUMNS.items()}
    values |= {"valid": np.full((COUNT, 1), 15, "u1"), "data": pixels()}
    for name, whole in values.items():
        value = whole[: lengths.get(name, COUNT)]
        chunks = (1, *SHAPE) if name == "data" else (8, *whole.shape[1:])
        how = {} if contiguous else {"chunks": chunks, "maxshape": (None, *value.shape[1:])}
        plot[name] = detector.create_dataset(name, data=value, **how)


def write(
    path: Path, *, contiguous: bool = False, said: dict[str, Any] | None = None, **lengths: int
) -> Path:
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        fill(file, lengths, contiguous)
    if said is not None:
        sidecar_path(path).write_text(json.dumps(facts() | said))
    return path


def facts(count: int = COUNT) -> dict[str, Any]:
    return {
        "frames": count,
        "packets": int(column("packets")[:count].sum()),
        "missing": int(column("missing")[:count].sum()),
        "bytes": count * 48,
        "t_first_ns": T0,
        "t_last_ns": T0 + (count - 1) * STEP + 500,
    }


def kill(path: Path, **lengths: int) -> Path:
    """A process that writes the file, for readers who read along, dies."""
    script = (
        "import os, sys, json; from pathlib import Path; import h5py\n"
        "from importlib.util import spec_from_file_location, module_from_spec\n"
        "spec = spec_from_file_location('here', sys.argv[1]); here = module_from_spec(spec)\n"
        "spec.loader.exec_module(here)\n"
        "file = h5py.File(sys.argv[2], 'w', libver=('v110', 'v110'))\n"
        "here.fill(file, json.loads(sys.argv[3]), False)\n"
        "file.swmr_mode = True; file.flush(); os._exit(9)\n"
    )
    command = [sys.executable, "-c", script, __file__, str(path), json.dumps(lengths)]
    assert subprocess.run(command, check=False).returncode == 9
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = _main._run(["frames", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Any]:
    code, out, _ = run(capsys, *arguments, "--json")
    return code, json.loads(out)


def require_frames(path: Path, count: int) -> None:
    """Exact values of so many frames, opened with defaults."""
    with h5py.File(path) as file:
        assert np.array_equal(file["entry/data/data"][()], pixels()[:count])
        for name in COLUMNS:
            assert np.array_equal(file["entry/data"][name][()], column(name)[:count])
        assert file["entry/data/valid"].shape == (count, 1)


@pytest.mark.parametrize("contiguous", [False, True])
def test_info_tells_what_is_in_a_file(
    contiguous: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a_000000.h5", contiguous=contiguous)
    code, told = run_json(capsys, "info", path)
    assert code == 0
    expected = facts() | {
        "plan": "camera",
        "layout": "contiguous" if contiguous else "chunked",
        "compression": "none",
        "dtype": "uint16",
        "shape": [4, 6],
        "frame_bytes": 48,
        "marked": False,
        "lengths": dict.fromkeys([*COLUMNS, "valid", "data"], COUNT),
        "empty": 0,
        "file_bytes": path.stat().st_size,
        "duration_s": (11 * STEP + 500) / 1e9,
        "being_written": False,
        "run": {},  # other programs write none
        "detector": {},
        "configuration": "",
        "mode": "",
    }
    rate = told[str(path)].pop("frames_per_s")
    assert rate == pytest.approx(COUNT / expected["duration_s"])
    assert told[str(path)] == expected
    code, out, _ = run(capsys, "info", path)
    assert code == 0
    assert "12 of 4 x 6 uint16" in out
    assert "2023-11-14T22:13:20.000000000Z" in out


@pytest.mark.parametrize("contiguous", [False, True])
def test_a_sound_file_is_not_changed(
    contiguous: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.h5", contiguous=contiguous, said={"dropped": 0})
    before = path.read_bytes()
    assert run(capsys, "check", path)[:2] == (0, f"{path}: sound, 12 frames\n")
    assert run(capsys, "repair", path)[:2] == (0, f"{path}: sound, not changed\n")
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path, sidecar_path(path)]


def test_a_killed_writers_file_opens_with_defaults_after_a_repair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kill(tmp_path / "a.h5", timed_out=9, packets=10)
    with pytest.raises(OSError, match="already open for write"):
        h5py.File(path)
    code, told = run_json(capsys, "check", path)
    assert code == 1
    assert told[str(path)] == {
        "state": "repairable",
        "problems": [
            "it is marked as open for writing, as a killed writer leaves it",
            "9 frames are whole, and its datasets are longer: batch 12, timestamp 12, "
            "last_timestamp 12, packets 10, missing 12, lossy 12, valid 12, data 12",
        ],
        "frames": 9,
        "being_written": False,
    }
    code, out, _ = run(capsys, "repair", path)
    assert code == 0
    assert out == (
        f"{path}: the mark of its writer is removed\n{path}: cut to 9 frames, of up to 12\n"
    )
    require_frames(path, 9)
    assert run(capsys, "check", path)[0] == 0
    (line,) = (tmp_path / "a.h5.repair.jsonl").read_text().splitlines()
    logged = json.loads(line)
    assert (logged["frames_kept"], logged["lengths"]["packets"]) == (9, 10)


def test_rows_that_were_not_written_are_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file["entry/data/packets"][10:] = 0
        file["entry/data/packets"][4] = 0
    code, told = run_json(capsys, "info", path)
    assert (told[str(path)]["frames"], told[str(path)]["empty"]) == (10, 1)
    assert run(capsys, "repair", path)[0] == 0
    assert run(capsys, "check", path)[:2] == (
        0,
        f"{path}: sound, 10 frames, 1 of them without a packet\n",
    )


def test_a_contiguous_file_of_a_killed_recorder_keeps_its_frames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # As earlier versions left it: it has the frames that it states, and space behind them.
    path = write(tmp_path / "a.h5", contiguous=True)
    with path.open("ab") as file:
        file.write(bytes(5000))
    part = tmp_path / ".a.h5.json.part"
    part.write_text(json.dumps({"dropped": 0}))
    code, _, err = run(capsys, "check", path)
    assert code == 1
    assert "its recorder was killed" in err
    assert run(capsys, "repair", path)[0] == 0
    assert not part.exists()
    require_frames(path, COUNT)
    assert run(capsys, "check", path)[:2] == (0, f"{path}: sound, 12 frames\n")


def test_a_contiguous_file_is_not_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.h5", contiguous=True, batch=7)
    content = path.read_bytes()
    code, _, err = run(capsys, "repair", path)
    assert code == 1
    assert "is contiguous, which HDF5 cannot cut; copy its first 7 frames" in err
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_lost_its_structure_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.h5")
    with h5py.File(path) as file:
        end = file["entry/data/data"].id.get_chunk_info(7).byte_offset
    os.truncate(path, end)
    code, _, err = run(capsys, "check", path)
    assert code == 2
    assert f"{path} is not a file of frames" in err


def test_metadata_are_corrected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.h5", batch=5, said={"dropped": 2, "packets": 1, "queue": "q"})
    code, _, err = run(capsys, "check", path)
    assert code == 1
    assert "a.h5.json has packets = 1, the file has 17" in err
    assert run(capsys, "repair", path)[0] == 0
    assert json.loads(sidecar_path(path).read_text()) == facts(5) | {"dropped": 2, "queue": "q"}
    sidecar_path(path).write_text("{")
    assert run(capsys, "check", path)[0] == 1
    assert "is now a.h5.json.unusable" in run(capsys, "repair", path)[1]
    assert run(capsys, "check", path)[0] == 0


def test_a_file_that_a_recorder_writes_is_not_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kill(tmp_path / "a.h5")
    part = tmp_path / ".a.h5.json.part"
    with part.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run(capsys, "check", path)[:2] == (
            0,
            f"{path}: sound, 12 frames; a recorder is writing it\n",
        )
        code, _, err = run(capsys, "repair", path)
        assert code == 1
        assert "is being written by a recorder" in err
    code, _, err = run(capsys, "check", path)
    assert code == 1
    assert "its recorder was killed" in err
    assert run(capsys, "repair", path)[0] == 0
    assert not part.exists()
    require_frames(path, COUNT)


def test_a_file_that_somebody_reads_is_repaired_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.h5", batch=5)
    with h5py.File(path, locking=True):
        code, _, err = run(capsys, "repair", path)
        assert code == 1
        assert "unable to lock file" in err
    assert list(tmp_path.iterdir()) == [path]
    # Lines of earlier repairs stay.
    log = tmp_path / "a.h5.repair.jsonl"
    log.write_text("{}\n")
    with h5py.File(path, locking=True):
        assert run(capsys, "repair", path)[0] == 1
    assert log.read_text() == "{}\n"
    assert run(capsys, "repair", path)[0] == 0
    assert len(log.read_text().splitlines()) == 2
    require_frames(path, 5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it does not have the HDF5 signature"),
        (b"\xd4\xc3\xb2\xa1" * 10, "it does not have the HDF5 signature"),
        (b"\x89HDF\r\n\x1a\n" + bytes(8), "HDF5"),
    ],
)
def test_what_is_no_file_of_frames_is_refused(
    content: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(content)
    for command in ("info", "check", "repair"):
        code, _, err = run(capsys, command, path)
        assert code == (2 if command == "check" else 1)
        assert str(path) in err
        assert reason in err
    assert path.read_bytes() == content


def test_other_hdf5_files_are_refused_by_what_they_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = 1
    assert "cannot find its instrument" in run(capsys, "check", path)[2]
    write(path)
    with h5py.File(path, "r+") as file:
        del file["entry/instrument/camera/missing"]
    assert "cannot find its dataset missing" in run(capsys, "check", path)[2]
    missing = tmp_path / "none.h5"
    assert "cannot open" in run(capsys, "check", missing)[2]


def test_damaged_files_get_a_message_whatever_hdf5_does_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [write(tmp_path / "c.h5").read_bytes(), kill(tmp_path / "k.h5").read_bytes()]
    chance = random.Random(32008)
    path = tmp_path / "a.h5"
    for _ in range(12):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 30)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        del data[chance.choice((len(data), chance.randrange(len(data)))) :]
        path.write_bytes(data)
        code, out, err = run(capsys, "check", path)
        assert code in (0, 1, 2)
        assert str(path) in (err if code else out)


BROKEN = {
    "no YAML": ("a: [\n", "its configuration cannot be read: <text>:2:1: error: not valid YAML"),
    "a path": ("/other.yaml", "its configuration cannot be read: <text>"),
    "a wrong key": ("daqiri: {cfg: {verson: 1}}\n", "unknown key 'verson'"),
    "no Unicode": ("\ud800", "its configuration cannot be read: it is no Unicode text"),
    "a number": (5, "its 'configuration' is 5; accepted are texts"),
}


@pytest.mark.parametrize("command", ["master", "correct"])
@pytest.mark.parametrize(("text", "why"), BROKEN.values(), ids=BROKEN)
def test_a_broken_configuration_is_named_with_its_file(
    command: str, text: Any, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a_000000.h5", said={"configuration": text, "reorder_plan": "p/camera"})
    np.save(tmp_path / "dark.npy", np.zeros(SHAPE))
    before = sorted(tmp_path.iterdir())
    code, _, said = run(capsys, command, path, "--dark", tmp_path / "dark.npy")
    assert code == 1
    assert said.startswith(f"error: {sidecar_path(path)}: ") and why in said
    assert "If it" in said and "removed" not in said and "remove it" in said.replace("\n", " ")
    assert sorted(tmp_path.iterdir()) == before
    assert run(capsys, "info", path)[0] == 0
    # The way out.
    sidecar_path(path).unlink()
    assert run(capsys, command, path, "--dark", tmp_path / "dark.npy")[0] == 0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"parts": []}, "lacks parts"),
        ({"frames": "12"}, "its 'frames' is '12'; accepted are whole numbers of 63 bits"),
        ({"t_first_ns": None}, "its 't_first_ns' is None; accepted are whole numbers"),
        ({"mode": 3}, "its 'mode' is 3; accepted are texts"),
        ("no t_last_ns", "lacks t_last_ns, which a master has; write the master again"),
    ],
)
def test_a_broken_metadata_file_of_a_master_is_named(
    said: Any, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a_000000.h5", said={"dropped": 0})
    assert run(capsys, "master", path)[0] == 0
    master = tmp_path / "a_000000_master.h5"
    told = json.loads(sidecar_path(master).read_text())
    if isinstance(said, str):
        del told["t_last_ns"]
    else:
        told |= said
    sidecar_path(master).write_text(json.dumps(told))
    for command, expected in (("info", 1), ("check", 2), ("repair", 1)):
        code, _, shown = run(capsys, command, master)
        assert (code, command) == (expected, command)
        assert f"{sidecar_path(master)}" in shown and why in shown, shown


def test_a_file_of_a_mode_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a_000000.h5")
    with h5py.File(path, "r+") as file:
        file["entry/configuration/mode"] = "half"
    code, out, _ = run(capsys, "info", path)
    assert code == 0 and "camera, mode half" in out
