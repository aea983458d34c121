"""HDF5 files that take data from other files."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from daqiri_ophyd.catalog._confine import UnreadableFileError, require_below
from daqiri_ophyd.catalog._hdf5_references import require_confined_references

VALUES = np.arange(4)
Refers = Callable[[h5py.Group, str], None]


def link(group: h5py.Group, other: str) -> None:
    group["named"] = h5py.ExternalLink(other, "/data")


def storage(group: h5py.Group, other: str) -> None:
    group.create_dataset("named", (4,), "i8", external=[(other, 0, 32)])


def virtual(group: h5py.Group, other: str) -> None:
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource(other, "data", (4,))
    group.create_virtual_dataset("named", layout)


def numbered(group: h5py.Group, other: str) -> None:
    rows = h5py.h5s.create_simple((4,), (h5py.h5s.UNLIMITED,))
    rows.select_hyperslab((0,), (h5py.h5s.UNLIMITED,), (4,), (4,))
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_virtual(rows, other.encode(), b"/data", h5py.h5s.create_simple((4,)))
    whole = h5py.h5s.create_simple((0,), (h5py.h5s.UNLIMITED,))
    h5py.h5d.create(group.id, b"named", h5py.h5t.NATIVE_INT64, whole, settings)


@pytest.fixture
def readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A readable folder, next to one that is not; each has an HDF5 file and a raw one."""
    for name in ("readable", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "raw").write_bytes(VALUES.tobytes())
        with h5py.File(tmp_path / name / "other.h5", "w") as file:
            file["data"] = VALUES
    monkeypatch.chdir(tmp_path / "readable")
    return tmp_path / "readable"


def master(readable: Path, refers: Refers, other: str, name: str = "master.h5") -> Path:
    with h5py.File(readable / name, "w") as file:
        refers(file.create_group("entry"), other)
        file["entry/itself"] = h5py.SoftLink("/entry")
        file["entry/again"] = file["entry"]
    return readable / name


def check(path: Path, readable: Path) -> None:
    require_confined_references(path, [readable], {})


@pytest.mark.parametrize("refers", [link, storage, virtual])
@pytest.mark.parametrize("is_absolute", [True, False])
def test_other_files_must_be_readable(readable: Path, refers: Refers, is_absolute: bool) -> None:
    name = "raw" if refers is storage else "other.h5"
    inside, outside = readable / name, readable.parent / "elsewhere" / name
    path = master(readable, refers, str(inside) if is_absolute else name)
    check(path, readable)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["entry/named"], VALUES)
    path = master(readable, refers, str(outside) if is_absolute else f"../elsewhere/{name}")
    with pytest.raises(
        UnreadableFileError, match=r"'/entry/named' takes data .*elsewhere"
    ) as found:
        check(path, readable)
    assert str(found.value).startswith(f"{path} cannot be read")
    (readable / "linked").symlink_to(outside)
    with pytest.raises(UnreadableFileError, match="elsewhere"):
        check(master(readable, refers, "linked"), readable)


@pytest.mark.parametrize("refers", [link, virtual])
@pytest.mark.parametrize("is_absolute", [True, False])
def test_the_next_place_after_one_that_cannot_be_opened(
    readable: Path, refers: Refers, is_absolute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(readable.parent / "elsewhere")
    first = readable / "other.h5"
    path = master(readable, refers, str(first) if is_absolute else first.name)
    check(path, readable)
    first.unlink()
    first.symlink_to("nothing")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["entry/named"], VALUES)
    with pytest.raises(UnreadableFileError, match="elsewhere"):
        check(path, readable)


@pytest.mark.parametrize("refers", [link, virtual])
@pytest.mark.parametrize("first", ["directory", "empty", "text", "cut"])
def test_there_is_no_next_place_after_one_that_is_no_hdf5_file(
    readable: Path, refers: Refers, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 goes on only where the system does not open a file; if not, the check is too short."""
    monkeypatch.chdir(readable.parent / "elsewhere")
    path = master(readable, refers, "other.h5")
    other = readable / "other.h5"
    good = other.read_bytes()
    other.unlink()
    if first == "directory":
        other.mkdir()
    else:
        other.write_bytes({"empty": b"", "text": b"no HDF5", "cut": good[:600]}[first])
    with h5py.File(path) as file, pytest.raises((KeyError, OSError)):
        file["entry/named"][()]


@pytest.mark.parametrize(
    ("refers", "variable"),
    [
        (link, "HDF5_EXT_PREFIX"),
        (storage, "HDF5_EXTFILE_PREFIX"),
        (virtual, "HDF5_VDS_PREFIX"),
    ],
)
def test_folders_in_which_hdf5_looks_first(
    readable: Path, refers: Refers, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "raw" if refers is storage else "other.h5"
    path = master(readable, refers, name)
    elsewhere = readable.parent / "elsewhere"
    changed = VALUES + 1
    (elsewhere / "raw").write_bytes(changed.tobytes())
    with h5py.File(elsewhere / "other.h5", "w") as file:
        file["data"] = changed
    monkeypatch.setenv(variable, str(elsewhere))
    # HDF5 reads some of these variables once in a process.
    program = f"import h5py; print(h5py.File({str(path)!r})['entry/named'][()].tolist())"
    assert (
        subprocess.check_output([sys.executable, "-c", program], text=True)
        == f"{changed.tolist()}\n"
    )
    with pytest.raises(UnreadableFileError, match=f"{elsewhere / name} is not below"):
        check(path, readable)


def test_files_that_other_files_name(readable: Path) -> None:
    outside = str(readable.parent / "elsewhere" / "other.h5")
    inner = master(readable, virtual, outside, "inner.h5")
    with h5py.File(readable / "outer.h5", "w") as file:
        file["a"] = h5py.ExternalLink(inner.name, "/entry/named")
    with pytest.raises(UnreadableFileError, match=f"{inner} cannot be read: .*{outside}"):
        check(readable / "outer.h5", readable)
    # A file that names itself, by another one.
    inner = master(readable, link, "outer.h5", "inner.h5")
    check(readable / "outer.h5", readable)


def test_numbered_sources(readable: Path) -> None:
    outside = readable.parent / "elsewhere" / "other.h5"
    path = master(readable, numbered, "part_%b.h5")
    (readable / "part_0.h5").write_bytes(outside.read_bytes())
    check(path, readable)
    (readable / "part_1.h5").symlink_to(outside)
    with pytest.raises(UnreadableFileError, match=r"part_1\.h5 \("):
        check(path, readable)


def test_a_virtual_dataset_of_its_own_file(readable: Path) -> None:
    path = master(readable, virtual, ".")
    check(path, readable)


@pytest.mark.parametrize("name", ["x#/../../elsewhere/other.h5", "x?/../../elsewhere/other.h5"])
def test_names_are_not_addresses(readable: Path, name: str) -> None:
    (readable / name[:2]).mkdir()
    with pytest.raises(UnreadableFileError, match="elsewhere"):
        check(master(readable, link, f"{readable}/{name}"), readable)


def test_a_file_that_changes_is_read_again(readable: Path) -> None:
    path = master(readable, link, "other.h5")
    check(path, readable)
    check(path, readable)
    master(readable, link, str(readable.parent / "elsewhere" / "other.h5"))
    with pytest.raises(UnreadableFileError, match="elsewhere"):
        check(path, readable)


def test_a_file_whose_time_was_set_back_is_read_again(readable: Path) -> None:
    (readable / "alias.h5").symlink_to(readable.parent / "elsewhere" / "other.h5")
    path = master(readable, link, "other.h5")
    check(path, readable)
    before = path.stat()
    master(readable, link, "alias.h5")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    with pytest.raises(UnreadableFileError, match="elsewhere"):
        check(path, readable)


def test_other_files_pass(readable: Path) -> None:
    check(readable / "raw", readable)
    check(readable / "missing", readable)


def test_a_pipe_is_refused_and_not_waited_for(readable: Path) -> None:
    os.mkfifo(readable / "pipe")
    with pytest.raises(UnreadableFileError, match="pipe cannot be read: it is not a regular file"):
        check(readable / "pipe", readable)


def test_a_link_is_advised_with_the_folder_of_its_file(readable: Path) -> None:
    target = readable.parent / "elsewhere" / "other.h5"
    (readable / "link.h5").symlink_to(target)
    with pytest.raises(UnreadableFileError, match=rf"readable=\['{target.parent}'\]"):
        require_below(readable / "link.h5", [readable])
