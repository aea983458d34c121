"""Recorded frames that are corrected when they are read, with the references of their master."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from corrected_frames import bits

from daqiri_ophyd.catalog import Catalog, frames_dataset
from daqiri_ophyd.cli import _main
from daqiri_ophyd.devices import FrameDetector
from daqiri_ophyd.documents import Correction, is_master, write_corrected, write_master
from daqiri_ophyd.engine import valid_pixels

from .conftest import SHAPE, Source, fly, image, images

DARK = np.random.default_rng(1).integers(0, 500, SHAPE, np.uint16)
FLAT = np.random.default_rng(2).random(SHAPE)
MASK = np.random.default_rng(3).random(SHAPE) < 0.2


def references(folder: Path) -> dict[str, str]:
    """Write files of reference data; return their names."""
    for name, values in (("dark", DARK), ("flatfield", FLAT), ("pixel_mask", MASK)):
        np.save(folder / f"{name}.npy", values)
    return {name: f"{folder}/{name}.npy" for name in ("dark", "flatfield", "pixel_mask")}


def corrected(frames: np.ndarray, arrived: Any = True) -> np.ndarray:
    """Correct frames, in another way."""
    with np.errstate(all="ignore"):
        value = (frames.astype("f4") - DARK.astype("f4")) / FLAT.astype("f4")
    return np.where(np.broadcast_to(arrived & ~MASK, value.shape), value, np.float32(np.nan))


def record(
    run_engine: RunEngine, detector: FrameDetector, source: Source, folder: Path
) -> tuple[str, np.ndarray]:
    """Record 5 images; the second lacks packets 1 and 6, the fourth all. Return run and pixels."""
    for name, file in references(folder).items():
        getattr(detector, name).put(file)
    detector.roll_frames.put(2)
    detector.on_drop.put("flag")

    def motion() -> Any:
        yield from bps.null()
        source.send()
        source.send(without=(1, 6))
        source.send()
        source.next += 1
        source.send()
        # Behind an absent one, an image waits for the next, or as long as statuses do.
        source.send()

    plan = fly(detector, motion(), prepared=5)
    (uid,) = run_engine(bpp.stage_wrapper(plan, [detector]))
    arrived = np.ones((5, *SHAPE), bool)
    arrived[1, [1, 6]] = False  # a packet is a row
    arrived[3] = False
    return uid, corrected(images(range(5)), arrived)


@pytest.mark.files_in_no_document("corrected frames were not recorded")
def test_frames_of_a_master_are_corrected(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uid, expected = record(run_engine, detector, source, tmp_path)
    (master,) = detector.masters
    before = master.read_bytes()
    correction = Correction.of_master(master)
    assert list(correction.references) == ["pixel_mask", "dark", "flatfield"]
    np.testing.assert_array_equal(correction.masked, MASK)
    whole = [0, 2, 4]
    with h5py.File(master) as file:
        assert bits(correction.apply(file["entry/data/data"][0])) == bits(expected[0])
        taken = file["entry/data/data"][1]
        valid = np.unpackbits(file["entry/data/valid"][1], bitorder="little")
    plan = detector.daq.engine.port("port0").reorder["images"].config
    found = correction.apply(taken, valid_pixels(plan, valid))
    assert bits(found) == bits(expected[1])
    # Of a catalog; lost packets have the fill value of the plan there.
    data = frames_dataset(catalog.client[uid], correction=correction)
    assert (data["frames"].shape, data["frames"].dtype) == ((5, *SHAPE), "f4")
    assert data["frames"].chunks is not None  # not read yet
    complete = data.isel(frame=data["missing"] == 0)
    assert bits(complete["frames"].to_numpy()) == bits(expected[whole])
    assert bits(data["frames"].to_numpy()[1, [0, 7]]) == bits(expected[1, [0, 7]])
    with pytest.raises(ValueError, match=r"frames have the shape 8 x 32, .* 2 x 2"):
        frames_dataset(catalog.client[uid], correction=Correction(dark=np.zeros((2, 2))))
    # A file.
    assert _main._run(["frames", "correct", str(master)]) == 0
    path = master.with_name(f"{master.stem}_corrected.h5")
    told = f"{path}: 5 frames, {MASK.sum()} pixels masked; applied: pixel_mask, dark, flatfield\n"
    assert capsys.readouterr().out == told
    assert master.read_bytes() == before
    with h5py.File(path) as file, h5py.File(master) as raw:
        assert file["entry/data/data"] == file["entry/instrument/images/data"]
        assert bits(file["entry/data/data"][()]) == bits(expected)
        assert not file["entry/data/data"].is_virtual
        for name in set(raw["entry/data"]) - {"data"}:
            values = file[f"entry/data/{name}"]
            assert values.dtype == raw[f"entry/data/{name}"].dtype
            np.testing.assert_array_equal(values[()], raw[f"entry/data/{name}"][()])
        assert dict(file["entry/data"].attrs).keys() == dict(raw["entry/data"].attrs).keys()
        device = file["entry/instrument/images"]
        assert set(device) == set(raw["entry/instrument/images"])
        np.testing.assert_array_equal(device["dark"][()], DARK)
        assert all(device[f"{name}_applied"][()] for name in correction.references)
        assert file["entry/entry_identifier"].asstr()[()] == uid
        assert file["entry/data/data"].attrs["units"] == "counts"
    # Commands know it as a file of frames, and nobody corrects it twice.
    assert _main._run(["frames", "check", str(path)]) == 0
    assert "sound, 5 frames, 1 of them without a packet" in capsys.readouterr().out
    assert _main._run(["frames", "info", str(path)]) == 0
    assert "5 of 8 x 32 float32" in capsys.readouterr().out
    assert not is_master(path)
    for arguments in ([str(path)], [str(path), "--dark", f"{tmp_path}/dark.npy"]):
        assert _main._run(["frames", "correct", *arguments]) == 1
        assert "accepted are files of frames as they were recorded" in capsys.readouterr().err
    with pytest.raises(ValueError, match="pixel_mask, dark, flatfield applied to its frames"):
        Correction.of_master(path)


def test_references_may_be_given_to_the_command(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, expected = record(run_engine, detector, source, tmp_path)
    (master,) = detector.masters
    first, output = detector.files[0], tmp_path / "out.h5"
    command = ["frames", "correct", str(first), "--output", str(output), "--json"]
    assert _main._run(command) == 1
    assert "has no reference data; accepted are pixel_mask, dark, flatfield of its" in (
        capsys.readouterr().err
    )
    given = [
        text
        for name in ("dark", "flatfield", "pixel_mask")
        for text in (f"--{name.replace('_', '-')}", f"{tmp_path}/{name}.npy")
    ]
    assert _main._run([*command, *given, "--fill", "-1"]) == 0
    told = json.loads(capsys.readouterr().out)[str(output)]
    assert told == {
        "frames": 2,
        "applied": ["pixel_mask", "dark", "flatfield"],
        "masked": int(MASK.sum()),
    }
    with h5py.File(output) as file:
        found = file["entry/data/data"][()]
    assert bits(found) == bits(np.where(np.isnan(expected[:2]), np.float32(-1), expected[:2]))
    # Beside those of a master, and in place of them.
    np.save(tmp_path / "zero.npy", np.zeros(SHAPE))
    given = ["--dark", f"{tmp_path}/zero.npy", "--output", f"{tmp_path}/other.h5"]
    assert _main._run(["frames", "correct", str(master), *given]) == 0
    with h5py.File(tmp_path / "other.h5") as file:
        good = ~MASK
        with np.errstate(over="ignore"):
            wanted = image(0).astype("f4") / FLAT.astype("f4")
        assert bits(file["entry/data/data"][0][good]) == bits(wanted[good])
        assert set(file["entry/instrument/images"]) >= {"flatfield", "pixel_mask_applied"}


def test_what_cannot_be_corrected_is_named_and_leaves_nothing(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record(run_engine, detector, source, tmp_path)
    (master,), (first, second, _) = detector.masters, detector.files
    np.save(tmp_path / "small.npy", np.zeros((2, 2)))
    (tmp_path / "text.h5").write_text("text")
    output = tmp_path / "folder" / "out.h5"
    output.parent.mkdir()

    def error_of(*arguments: str | Path) -> str:
        command = ["frames", "correct", *map(str, arguments), "--output", str(output)]
        assert _main._run(command) == 1
        assert not list(output.parent.iterdir())
        return capsys.readouterr().err

    dark = ("--dark", f"{tmp_path}/dark.npy")
    assert "frames have the shape 8 x 32, and the reference data 2 x 2" in error_of(
        first, "--dark", f"{tmp_path}/small.npy"
    )
    assert "dark has the shape 2 x 2, and pixel_mask 8 x 32" in error_of(
        master, "--dark", f"{tmp_path}/small.npy"
    )
    assert "none.h5: No such file" in error_of(tmp_path / "none.h5")
    assert "text.h5 cannot be opened: " in error_of(tmp_path / "text.h5")
    assert "text.h5" in error_of(tmp_path / "text.h5", *dark)
    assert "none.npy: No such file" in error_of(first, "--dark", f"{tmp_path}/none.npy")
    both = write_master([first, second], tmp_path / "both.h5", references={"dark": DARK})
    second.rename(tmp_path / "moved.h5")
    assert f"{both}: 1 of its files are not where it names them" in error_of(both)
    (tmp_path / "moved.h5").rename(second)
    for path in (first, first.with_name(f"{first.name}.json")):
        shutil.copyfile(path, tmp_path / path.name)
    both = write_master([first, tmp_path / first.name], tmp_path / "two.h5")
    assert "has detectors images_0, images_1; accepted is one" in error_of(both, *dark)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_corrected(second, Correction(dark=DARK), tmp_path / "nowhere" / "out.h5")
    output.touch()
    assert _main._run(["frames", "correct", str(second), *dark, "--output", str(output)]) == 1
    assert "out.h5 exists; remove it to write it again" in capsys.readouterr().err


def test_a_disk_that_is_full_gets_no_file(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record(run_engine, detector, source, tmp_path)
    output = tmp_path / "folder" / "out.h5"
    output.parent.mkdir()
    command = ["frames", "correct", str(detector.masters[0]), "--output", str(output)]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        assert _main._run(command) == 1
    assert f"{output}: No space left on device" in capsys.readouterr().err
    assert not list(output.parent.iterdir())
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: usage)
        assert _main._run(command) == 1
    assert "folder has 1.0 MB free, and the frames need 4.2 MB. Free" in capsys.readouterr().err
    assert not list(output.parent.iterdir())
    assert _main._run(command) == 0


def test_a_file_without_frames_is_corrected(tmp_path: Path) -> None:
    columns = ("batch", "timestamp", "last_timestamp", "packets", "missing", "timed_out", "lossy")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        device, plot = (file.create_group(f"entry/{name}") for name in ("instrument/x", "data"))
        device.create_dataset(
            "data", (0, *SHAPE), "u2", chunks=(1, *SHAPE), maxshape=(None, *SHAPE)
        )
        device["valid"] = np.zeros((0, 1), "u1")
        for name in columns:
            device[name] = np.zeros(0, "i8")
        for name in device:
            plot[name] = device[name]
    with h5py.File(write_corrected(tmp_path / "x.h5", Correction(dark=DARK))) as file:
        frames = file["entry/data/data"]
        assert (frames.shape, frames.dtype) == ((0, *SHAPE), "f4")
    with pytest.raises(
        ValueError, match="frames have the shape 8 x 32, and the reference data 2 x"
    ):
        write_corrected(tmp_path / "x.h5", Correction(dark=np.zeros((2, 2))), tmp_path / "y.h5")


def test_pixels_between_modules_have_no_value(
    run_engine: RunEngine, make: Any, tmp_path: Path
) -> None:
    """Also if a single file, without a master, is corrected."""
    (rows, columns), half = SHAPE, SHAPE[0] // 2
    positions = [{"origin": [0, 0]}, {"origin": [half + 1, 0], "flip": "rows"}]
    modules = {"shape": [half, columns], "positions": positions}
    daq = make(frame={"shape": [rows + 1, columns], "dtype": "uint16", "modules": modules})
    daq.open()
    detector, source = daq.port0.frames.images, Source(daq)

    def motion() -> Any:
        yield from bps.null()
        source.send(without=(half,))
        # An incomplete image waits for two more, or as long as statuses do.
        source.send(2)

    run_engine(bpp.stage_wrapper(fly(detector, motion(), prepared=1), [detector]))
    correction = Correction(dark=np.zeros((rows + 1, columns)))
    path = write_corrected(detector.files[0], correction, tmp_path / "out.h5")
    with h5py.File(path) as file:
        (found,) = file["entry/data/data"][()]
    (sent,) = images([0]).astype("f4")
    nothing = np.full((1, columns), np.float32(np.nan))
    # The first row of the lower module, which is the last one of the image, did not come.
    lower = sent[: half - 1 : -1]
    expected = np.concatenate([sent[:half], nothing, lower[:-1], nothing])
    assert bits(found) == bits(expected)


def test_pixels_of_which_no_packet_is_known_have_no_value(
    run_engine: RunEngine, detector: FrameDetector, source: Source, tmp_path: Path
) -> None:
    """Of a file without a configuration, nor a metadata file with one."""
    _, expected = record(run_engine, detector, source, tmp_path)
    first = detector.files[0]
    first.with_name(f"{first.name}.json").unlink()
    correction = Correction(dark=DARK, flatfield=FLAT, pixel_mask=MASK)
    with h5py.File(write_corrected(first, correction, tmp_path / "out.h5")) as file:
        found = file["entry/data/data"][()]
    # The file has the configuration, too.
    assert bits(found) == bits(expected[: len(found)])
    with h5py.File(first, "r+") as file:
        del file["entry/configuration"]
    with h5py.File(write_corrected(first, correction, tmp_path / "unknown.h5")) as file:
        found = file["entry/data/data"][()]
    assert bits(found[0]) == bits(expected[0])
    assert np.isnan(found[1]).all()
