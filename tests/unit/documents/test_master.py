"""Master files of files that are made here."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from daqiri_ophyd.documents import is_master, sidecar_path, write_master
from daqiri_ophyd.documents._master_parts import _spans
from daqiri_ophyd.engine import InvalidParameterError, examine_frames

SHAPE, UNITS, FILL = (2, 3), 4, 77


def recorded(
    path: Path,
    numbers: Any,
    *,
    plan: str = "images",
    dtype: str = "u2",
    pulses: Any = None,
    clocks: int = 0,
) -> Path:
    """Write a file of frames like a recorder; the values of each are its number."""
    numbers = np.asarray(numbers)
    count = len(numbers)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        device = file.create_group(f"entry/instrument/{plan}")
        plot = file.create_group("entry/data")
        plot.attrs["signal"] = "data"
        device["description"] = f"frames of reorder plan {plan}"
        frames = device.create_dataset(
            "data",
            (count, *SHAPE),
            dtype,
            maxshape=(None, *SHAPE),
            chunks=(1, *SHAPE),
            fillvalue=FILL,
        )
        frames[:] = numbers[:, None, None]
        columns = {
            "batch": numbers.astype("u4"),
            "timestamp": numbers.astype("i8") * 10,
            "packets": np.full(count, UNITS, "u4"),
            "missing": np.zeros(count, "u4"),
            "lossy": np.zeros(count, bool),
            "total": numbers.astype("f8"),
        }
        if pulses is not None:
            columns["pulse_id"] = np.array(pulses, "u8")
            columns["packets"][columns["pulse_id"] == 0] = 0  # of frames that did not come
        if clocks:
            columns["clock"] = clock_of(numbers, clocks)
        for name, values in columns.items():
            device[name] = values
        for name in ("data", *columns):
            plot[name] = device[name]
    told = {"frames": count, "packets": count * UNITS, "missing": 0, "bytes": count, "dropped": 1}
    told |= {"t_first_ns": 10 * int(numbers.min(initial=0)), "t_last_ns": 5 + 10 * count}
    sidecar_path(path).write_text(json.dumps(told))
    return path


def clock_of(numbers: Any, packets: int) -> Any:
    """Numbers of 64 bits of each packet of frames."""
    return np.asarray(numbers, "u8")[:, None] * 100 + np.arange(packets, dtype="u8") + 2**63


def columns_of(path: Path, detector: str = "images") -> dict[str, Any]:
    with h5py.File(path) as file:
        group = file[f"entry/instrument/{detector}"]
        return {name: each[()].tolist() for name, each in group.items() if each.ndim == 1}


def values_of(path: Path, detector: str = "images") -> list[int]:
    with h5py.File(path) as file:
        frames = file[f"entry/instrument/{detector}/data"][()]
    assert (frames == frames[:, :1, :1]).all()
    return frames[:, 0, 0].tolist()


def of_mode(path: Path, mode: str, plan: str = "port0/images") -> Path:
    """Let the metadata file name a plan, and its mode."""
    told = json.loads(sidecar_path(path).read_text())
    told |= {"reorder_plan": plan} | ({"mode": mode} if mode else {})
    sidecar_path(path).write_text(json.dumps(told))
    return path


@pytest.mark.parametrize("one_folder", [True, False])
@pytest.mark.parametrize("join", ["number", "row"])
@pytest.mark.parametrize("modes", [("roi", ""), ("", "roi"), ("roi", "fast")])
def test_files_of_several_modes_of_a_plan_are_refused(
    modes: tuple[str, str], join: Any, one_folder: bool, tmp_path: Path
) -> None:
    """Their frames have one shape; what their pixels are differs."""
    first = of_mode(recorded(tmp_path / "x_000000.h5", [0, 1]), modes[0])
    other = tmp_path / ("x_000001.h5" if one_folder else "b/x_000000.h5")
    second = of_mode(recorded(other, [2, 3]), modes[1])
    with pytest.raises(ValueError) as caught:
        write_master([first, second], tmp_path / "whole.h5", join=join)
    said = str(caught.value)
    assert f"{first} has frames of mode {modes[0]!r} of plan 'port0/images'" in said
    assert f"{second} of mode {modes[1]!r}; accepted are files of one mode" in said
    assert "frames master FILE... --output NAME.h5" in said
    assert not (tmp_path / "whole.h5").exists()


def test_plans_of_several_interfaces_have_modes_of_their_own(tmp_path: Path) -> None:
    files = [
        of_mode(recorded(tmp_path / "a" / "x_000000.h5", [0, 1]), "roi"),
        of_mode(recorded(tmp_path / "b" / "x_000000.h5", [2, 3]), "", "port1/images"),
    ]
    path = write_master(files, tmp_path / "whole.h5")
    with h5py.File(path) as file:
        assert set(file["entry/instrument"]) == {"images_0", "images_1"}
    assert values_of(path, "images_0") == [0, 1, FILL, FILL]
    assert values_of(path, "images_1") == [FILL, FILL, 2, 3]


def test_receivers_that_take_turns_are_one_detector(tmp_path: Path) -> None:
    files = [
        recorded(tmp_path / "a" / "x_000000.h5", [0, 2, 4]),
        recorded(tmp_path / "b" / "x_000000.h5", [1, 3, 7]),
        recorded(tmp_path / "a" / "x_000001.h5", [6, 9]),
    ]
    path = write_master(files, tmp_path / "whole.h5")
    shutil.move(tmp_path / "a", tmp_path / "moved" / "a")
    for name in ("b", "whole.h5"):
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    path = tmp_path / "moved" / "whole.h5"
    numbers = [0, 1, 2, 3, 4, 6, 7, 9]
    found = columns_of(path)
    assert values_of(path) == found["batch"] == found["total"] == numbers
    assert found["timestamp"] == [10 * number for number in numbers]
    assert found["packets"] == [UNITS] * 8
    with h5py.File(path) as file:
        assert list(file["entry/instrument"]) == ["images"]
    assert json.loads(sidecar_path(tmp_path / "whole.h5").read_text()) == {
        "frames": 8,
        "packets": 8 * UNITS,
        "missing": 0,
        "bytes": 8,
        "dropped": 3,
        "t_first_ns": 0,
        "t_last_ns": 35,
        "parts": ["a/x_000000.h5", "a/x_000001.h5", "b/x_000000.h5"],
    }


@pytest.mark.parametrize("plans", [("images", "images"), ("left", "right")])
def test_modules_are_detectors_with_equal_rows(tmp_path: Path, plans: tuple[str, str]) -> None:
    """A row that a receiver lacks is as one of which no packet came."""
    first = recorded(tmp_path / "a_000000.h5", [3, 4, 5, 8], plan=plans[0])
    second = recorded(tmp_path / "b_000000.h5", [4, 5, 6], plan=plans[1])
    path = write_master([first, second], references={"dark": np.zeros(SHAPE)})
    names = ["images_0", "images_1"] if plans[0] == plans[1] else list(plans)
    assert path == tmp_path / "a_000000_master.h5"
    missing = {names[0]: [3], names[1]: [0, 4]}
    numbers = np.array([3, 4, 5, 6, 8])
    for name, rows in missing.items():
        found = columns_of(path, name)
        here = np.isin(range(5), rows, invert=True)
        assert found["batch"] == found["sequence_number"] == numbers.tolist()
        assert values_of(path, name) == np.where(here, numbers, FILL).tolist()
        assert found["packets"] == np.where(here, UNITS, 0).tolist()
        assert found["missing"] == np.where(here, 0, UNITS).tolist()
        assert found["lossy"] == (~here).tolist()
        np.testing.assert_array_equal(found["total"], np.where(here, numbers, np.nan))
    with h5py.File(path) as file:
        assert list(file["entry/instrument"]) == names
        assert file["entry/data/data"] == file[f"entry/instrument/{names[0]}/data"]
        assert file[f"entry/{names[1]}/data"] == file[f"entry/instrument/{names[1]}/data"]
        assert "dark" in file[f"entry/instrument/{names[0]}"]


def test_plans_are_joined_by_rows(tmp_path: Path) -> None:
    """Their numbers may differ, and begin anew."""
    files = [
        recorded(tmp_path / "a_000000.h5", [0, 1, 0], plan="left"),
        recorded(tmp_path / "a_000001.h5", [1], plan="left"),
        recorded(tmp_path / "b_000000.h5", [7, 8, 9, 10], plan="right"),
    ]
    path = write_master(files, join="row")
    assert values_of(path, "left") == columns_of(path, "left")["batch"] == [0, 1, 0, 1]
    assert values_of(path, "right") == columns_of(path, "right")["batch"] == [7, 8, 9, 10]
    with pytest.raises(ValueError, match=r"b_000000.h5 and following have 4 frames, and .* 3; "):
        write_master([files[0], files[2]], tmp_path / "other.h5", join="row")


def test_recordings_are_joined_by_a_column_of_their_plans(tmp_path: Path) -> None:
    """Of 64 bits, whatever the numbers of frames are; images that did not come have none."""
    late = 2**63 + 10
    files = [
        recorded(tmp_path / "a_000000.h5", [0, 1, 2], plan="left", pulses=[5, 0, late]),
        recorded(tmp_path / "a_000001.h5", [3, 4], plan="left", pulses=[0, late + 2]),
        recorded(tmp_path / "b_000000.h5", [7, 8, 9], plan="right", pulses=[5, 6, late]),
    ]
    path = write_master(files, column="pulse_id")
    pulses = [5, 6, late, late + 2]
    left, right = columns_of(path, "left"), columns_of(path, "right")
    assert left["pulse_id"] == right["pulse_id"] == pulses
    assert values_of(path, "left") == [0, FILL, 2, 4]
    assert values_of(path, "right") == [7, 8, 9, FILL]
    assert (left["batch"], right["batch"]) == ([0, 0, 2, 4], [7, 8, 9, 0])
    assert left["packets"] == [UNITS, 0, UNITS, UNITS]
    # One recording, in the order of its pulses.
    path = write_master(files[2:], tmp_path / "one.h5", column="pulse_id")
    assert columns_of(path, "right")["pulse_id"] == [5, 6, late]
    accepted = (
        "accepted are the numbers of frames, and columns of its plan with one for each frame: "
        "pulse_id"
    )
    for column in ("energy", "timestamp", "total"):
        with pytest.raises(ValueError, match=f"cannot be joined by '{column}'; {accepted}"):
            write_master(files, tmp_path / "other.h5", column=column)
    twice = recorded(tmp_path / "c_000000.h5", [1, 2], plan="other", pulses=[5, 5])
    with pytest.raises(ValueError, match="pulse_id 5 is there 2 times"):
        write_master([*files, twice], tmp_path / "other.h5", column="pulse_id")
    none = recorded(tmp_path / "d_000000.h5", [1, 2], pulses=[0, 0])
    with pytest.raises(ValueError, match="no frame has a pulse_id"):
        write_master([none], tmp_path / "other.h5", column="pulse_id")


def test_columns_of_packets(tmp_path: Path) -> None:
    """A row that a recording lacks has zeros; recordings with other packets are detectors."""
    files = [
        recorded(tmp_path / "a_000000.h5", [0, 2], clocks=UNITS),
        recorded(tmp_path / "b_000000.h5", [3], clocks=UNITS),
        recorded(tmp_path / "c_000000.h5", [1, 2, 4], clocks=9),
    ]
    path = write_master(files)
    with h5py.File(path) as file:
        for name, numbers, packets in (("images_0", [0, 2, 3], UNITS), ("images_1", [1, 2, 4], 9)):
            clock = file[f"entry/instrument/{name}/clock"]
            assert (clock.shape, clock.dtype) == ((5, packets), np.uint64)
            expected = np.zeros((5, packets), "u8")
            expected[numbers] = clock_of(numbers, packets)
            np.testing.assert_array_equal(clock[()], expected)
    text = "cannot be joined by 'clock', which has several numbers for each frame; accepted are"
    with pytest.raises(ValueError, match=rf"a_000000.h5: recordings {text}.* for each frame: none"):
        write_master(files, tmp_path / "other.h5", column="clock")
    other = recorded(tmp_path / "a_000001.h5", [5], clocks=9)
    with pytest.raises(
        ValueError, match=r"clock\[9\],.*, and .*clock\[4\],.*files of one recording"
    ):
        write_master([files[0], other], tmp_path / "other.h5")


def test_frames_that_did_not_come_have_no_number_in_irregular_steps(tmp_path: Path) -> None:
    """They have the number of the next frame, as recorders write it."""
    first = recorded(tmp_path / "x_000000.h5", [10, 17, 42, 42, 42], pulses=[1, 2, 0, 0, 3])
    second = recorded(tmp_path / "y_000000.h5", [17, 30])
    path = write_master([first, second])
    found = columns_of(path, "images_0")
    assert found["batch"] == [10, 17, 30, 42]
    assert found["pulse_id"] == [1, 2, 0, 3]
    assert columns_of(path, "images_1")["packets"] == [0, UNITS, UNITS, 0]


def test_names_with_characters_that_hdf5_replaces(tmp_path: Path) -> None:
    files = [recorded(tmp_path / "50%b é" / f"x%b_{n:06d}.h5", [n]) for n in range(3)]
    assert values_of(write_master(files)) == [0, 1, 2]
    assert values_of(write_master(files, tmp_path / "above.h5")) == [0, 1, 2]
    (tmp_path / "link").symlink_to(tmp_path / "50%b é")
    assert values_of(write_master(files, tmp_path / "link" / "other.h5")) == [0, 1, 2]


def test_files_without_frames_and_without_metadata(tmp_path: Path) -> None:
    """Files of other programs have all of it in themselves; those in a store, only metadata."""
    files = [recorded(tmp_path / f"x_{n:06d}.h5", [n] * (n != 1)) for n in range(4)]
    files[2].unlink()
    path = write_master(files)
    assert columns_of(path)["packets"] == [UNITS, 0, UNITS]
    recorded(files[2], [2])
    assert values_of(path) == [0, 2, 3]


def linked(folder: Path) -> list[Path]:
    path = recorded(folder / "x_000000.h5", [0])
    with h5py.File(path, "a") as file:
        file["entry/elsewhere"] = h5py.ExternalLink("/etc/other.h5", "/")
    return [path]


def no_frames(folder: Path) -> list[Path]:
    path = folder / "x_000000.h5"
    with h5py.File(path, "w") as file:
        file["values"] = [1]
    facts = {"frames": 1, "t_first_ns": 1, "t_last_ns": 1}
    sidecar_path(path).write_text(json.dumps(facts))
    return [path]


def other_shape(folder: Path) -> list[Path]:
    return [
        recorded(folder / "x_000000.h5", [0]),
        recorded(folder / "x_000001.h5", [1], dtype="u1"),
    ]


def numbers_again(folder: Path) -> list[Path]:
    return [recorded(folder / "x_000000.h5", [0, 1, 0]), recorded(folder / "y_000000.h5", [3])]


def torn(folder: Path) -> list[Path]:
    path = recorded(folder / "x_000000.h5", [0, 1])
    told = json.loads(sidecar_path(path).read_text())
    sidecar_path(path).write_text(json.dumps(told | {"frames": 5}))
    return [path]


def edited(folder: Path) -> list[Path]:
    path = recorded(folder / "x_000000.h5", [0, 1])
    told = json.loads(sidecar_path(path).read_text())
    sidecar_path(path).write_text(json.dumps(told | {"packets": "8"}))
    return [path]


def of_a_master(folder: Path) -> list[Path]:
    return [write_master([recorded(folder / "x_000000.h5", [0])])]


def empty(folder: Path) -> list[Path]:
    return [recorded(folder / "x_000000.h5", [])]


def twice(folder: Path) -> list[Path]:
    return [recorded(folder / "x_000000.h5", [0])] * 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (linked, "x_000000.h5: its object '/entry/elsewhere' takes data from another file, /etc"),
        (no_frames, "x_000000.h5 is no file of frames"),
        (other_shape, r"x_000001.h5 has frames of 2 x 3 uint8 of plan 'images' .*, and .*uint16"),
        (numbers_again, "x_000000.h5: frame number 0 is there 2 times"),
        (torn, "dataset 'batch' has 2 rows, and its metadata file counts 5 frames. Repair"),
        (edited, r"x_000000.h5.json: its 'packets' is '8'; accepted are whole numbers"),
        (of_a_master, "x_000000_master.h5 is a master file itself"),
        (empty, "A master file needs frames"),
        (twice, "x_000000.h5 is given twice"),
    ],
)
def test_files_that_cannot_be_joined_are_named(tmp_path: Path, make: Any, text: str) -> None:
    files = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=text):
        write_master(files, tmp_path / "whole.h5")
    assert sorted(tmp_path.iterdir()) == before


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x_000000.h5", [0, 1])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(OSError, match="x_000000.h5 cannot be opened: .*truncated"):
        write_master([path])
    assert not (tmp_path / "x_000000_master.h5").exists()


@pytest.mark.parametrize(
    ("plans", "names"),
    [
        (("images", "images", "images_0"), {"images_0_", "images_1", "images_0"}),
        (("images", "instrument", "run"), {"images", "instrument", "run"}),
    ],
)
def test_plans_may_have_names_that_a_master_uses(
    tmp_path: Path, plans: tuple[str, ...], names: set[str]
) -> None:
    files = [
        recorded(tmp_path / f"{number}" / "x_000000.h5", [1, 2], plan=plan)
        for number, plan in enumerate(plans)
    ]
    path = write_master(files, tmp_path / "all.h5", attributes={"energy": 12.4})
    with h5py.File(path) as file:
        assert set(file["entry/instrument"]) == names
        assert file["entry/run/energy"][()] == 12.4
        for name in names:
            assert file["entry/instrument"][name]["data"][:, 0, 0].tolist() == [1, 2]
        plots = [each for each in file["entry"].values() if "signal" in each.attrs]
        assert len(plots) == 3


def test_a_master_without_its_metadata_file_is_not_taken_for_a_file_of_frames(
    tmp_path: Path,
) -> None:
    path = write_master([recorded(tmp_path / "x_000000.h5", [0])])
    sidecar_path(path).unlink()
    with h5py.File(path, "a") as file:  # as recorders write them
        device = file["entry/instrument/images"]
        for name, kind in (("last_timestamp", "i8"), ("timed_out", "u1")):
            device[name] = np.zeros(1, kind)
        device["valid"] = np.zeros((1, 1), "u1")
    with pytest.raises(InvalidParameterError, match=r"it is a master without .*_master.h5.json"):
        examine_frames(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    files = [recorded(tmp_path / "x_000000.h5", [0])]
    path = write_master(files)
    assert is_master(path) and not is_master(files[0])
    with pytest.raises(FileExistsError, match="x_000000_master.h5 exists; remove it"):
        write_master(files)
    files[0].unlink()
    with pytest.raises(FileNotFoundError, match="none of the files of this recording is here"):
        write_master(files, tmp_path / "other.h5")
    with pytest.raises(OSError, match="nowhere") as error:
        write_master([recorded(tmp_path / "y_000000.h5", [0])], tmp_path / "nowhere" / "y.h5")
    assert error.value.filename == str(tmp_path / "nowhere" / "y.h5")


def test_attributes_do_not_replace_what_files_have(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x_000000.h5", [0])
    with h5py.File(path, "a") as file:
        file["entry/run/scan_id"] = 3
    attributes = {"scan_id": 4, "a/b": 1.5, "text": "\0é\ud800", "list": [1], "large": 2**80}
    attributes |= {"": 1, ".": 2, "none": None}
    with h5py.File(write_master([path], attributes=attributes)) as file:
        run = file["entry/run"]
        assert set(run) == {"scan_id", "a_b", "text"}
        assert (run["scan_id"][()], run["a_b"][()]) == (3, 1.5)
        assert run["text"].asstr()[()] == " é?"


@pytest.mark.parametrize(
    "rows", [[0, 1, 2], [5], [0, 2, 4, 5, 6, 9], [3, 2, 1], [0, 4, 8, 9], list(range(0, 30, 3))]
)
def test_runs_of_rows_have_equal_steps(rows: list[int]) -> None:
    found = np.full(40, -1)
    spans = list(_spans(np.array(rows)))
    for of_file, of_master in spans:
        found[of_master] = np.arange(len(rows))[of_file]
    assert [found[row] for row in rows] == list(range(len(rows)))
    assert (found >= 0).sum() == len(rows)
    assert len(spans) <= max(1, len(rows))
