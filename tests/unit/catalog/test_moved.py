"""Where files are after their folders were moved."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.catalog import UnreadableFileError
from daqiri_ophyd.catalog._confine import confined_path
from daqiri_ophyd.catalog._moved import MovedFolders
from daqiri_ophyd.catalog._places import moved_readable, settle

NAMED = {"/data/captures": "/mnt/c", "/data/captures/old/": "/mnt/old", "/": "/all"}
NAMES = st.sampled_from(["captures", "cap", "data", "a b", "%20", "über", "..", ".", "x.pcap"])
PATHS = st.lists(NAMES, max_size=6).map(lambda names: "/" + "/".join(names))
FOLDERS = st.dictionaries(PATHS, PATHS, max_size=4)


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("/data/captures/a.pcap", "/mnt/c/a.pcap"),
        ("/data/captures", "/mnt/c"),
        ("/data/captures/", "/mnt/c"),
        ("//data//captures/./a.pcap", "/mnt/c/a.pcap"),
        ("/data/captures/old/a.pcap", "/mnt/old/a.pcap"),
        ("/data/captures/older/a.pcap", "/mnt/c/older/a.pcap"),
        ("/data/captures/%2e%2e/a%20b.pcap", "/mnt/c/%2e%2e/a%20b.pcap"),
        ("/data/cap/a.pcap", "/all/data/cap/a.pcap"),
        ("/data/captures2/a.pcap", "/all/data/captures2/a.pcap"),
        ("/data/captures/../a.pcap", "/all/data/a.pcap"),
        ("/data/x/../captures/a.pcap", "/mnt/c/a.pcap"),
        ("/mnt/c/a.pcap", "/mnt/c/a.pcap"),  # it is there already
        ("/all/a.pcap", "/all/a.pcap"),
    ],
)
def test_the_innermost_folder_counts(path: str, moved: str) -> None:
    assert MovedFolders(NAMED).path(path) == Path(moved)


@pytest.mark.parametrize(
    ("uri", "moved"),
    [
        ("file://localhost/old/a%20b.pcap", "file://localhost/new/a%20b.pcap"),
        ("file://localhost/old/folder/", "file://localhost/new/folder/"),
        ("file://localhost/old", "file://localhost/new"),
        ("file://localhost/old/", "file://localhost/new/"),
        ("file:///old/a", "file:///new/a"),
        ("file://localhost/older/a", "file://localhost/older/a"),
        ("file://elsewhere.example/old/a", "file://elsewhere.example/new/a"),
        ("FILE://localhost/old/a", "FILE://localhost/old/a"),
        ("duckdb://localhost//old/a", "duckdb://localhost//old/a"),
        ("file://[/old/a", "file://[/old/a"),
        ("file://localhost/old/\0a", "file://localhost/old/\0a"),
    ],
)
def test_addresses_keep_what_is_not_the_folder(uri: str, moved: str) -> None:
    assert MovedFolders({"/old": "/new"}).uri(uri) == moved
    assert MovedFolders().uri(uri) == uri


def test_folders_that_follow_each_other_are_moved_once() -> None:
    moved = MovedFolders({"/a": "/b", "/b": "/c"})
    assert [moved.path(f"/{name}/x") for name in "abc"] == [Path(f"/{n}/x") for n in "bcc"]


def test_what_the_user_names_comes_before_what_is_remembered() -> None:
    remembered = {"/old": "/copy", "/other": "/copy/other"}
    moved = MovedFolders({"/old": "/named", "/copy/other": "/third"}, remembered)
    assert moved.path("/old/x") == Path("/named/x")
    assert moved.path("/other/x") == Path("/third/x")
    assert moved.path("/copy/x") == Path("/copy/x")
    assert MovedFolders({}, remembered).path("/other/x") == Path("/copy/other/x")


@given(path=PATHS, folders=FOLDERS, remembered=FOLDERS)
def test_a_path_is_below_a_new_folder_or_unchanged(
    path: str, folders: dict[str, str], remembered: dict[str, str]
) -> None:
    clean = {os.path.normpath(old): os.path.normpath(new) for old, new in remembered.items()}
    found = MovedFolders(folders, clean).path(path)
    places = [os.path.normpath(new) for new in (*folders.values(), *clean.values())]
    assert found == Path(path) or any(found.is_relative_to(place) for place in places)
    if found != Path(path):
        assert ".." not in found.parts


def test_old_folders_are_absolute_and_new_ones_have_addresses() -> None:
    with pytest.raises(ValueError, match="moved: found the old folder 'captures', which is rel"):
        MovedFolders({"captures": "/new"})
    with pytest.raises(ValueError, match="'#' is not allowed in the URI"):
        MovedFolders({"/old": "/new#1"})


def test_the_new_place_is_confined(tmp_path: Path) -> None:
    new, outside = tmp_path / "new", tmp_path / "outside"
    new.mkdir()
    outside.mkdir()
    (outside / "secret").touch()
    (new / "link").symlink_to(outside)
    (new / "own").touch()
    moved = MovedFolders({"/old": new})
    assert confined_path(moved.uri("file://localhost/old/own"), [new]) == new / "own"
    # Without ``..``, before links are followed.
    inside = confined_path(moved.uri("file://localhost/old/link/../../old/own"), [new])
    assert inside == new / "own"
    for name in ("link/secret", "../outside/secret", "link/../../outside/secret"):
        with pytest.raises(UnreadableFileError):
            confined_path(moved.uri(f"file://localhost/old/{name}"), [new])
    with pytest.raises(UnreadableFileError):
        confined_path(moved.uri("file://localhost/old/own"), [outside])


def place(directory: Path, *readable: Path) -> Path:
    """Make a catalog directory that remembers folders."""
    for folder in (directory, *readable):
        folder.mkdir(parents=True, exist_ok=True)
    settle(directory, readable)
    return directory


def test_a_catalog_remembers_its_readable_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    catalog, captures = place(first / "catalog", first / "captures"), first / "captures"
    assert moved_readable(catalog, [captures]) == {}
    first.rename(second)
    moved = second / "captures"
    assert moved_readable(second / "catalog", [moved]) == {str(captures): str(moved)}
    assert moved_readable(second / "catalog", [second]) == {str(captures): str(moved)}
    assert moved_readable(second / "catalog", [tmp_path / "other"]) == {}
    assert settle(second / "catalog", [moved]) is True
    assert settle(second / "catalog", [moved]) is False
    # The original is used where the user names it, and not because both can be read.
    captures.mkdir(parents=True)
    assert moved_readable(second / "catalog", [captures]) == {}
    assert moved_readable(second / "catalog", [tmp_path])[str(captures)] == str(moved)
    second.rename(tmp_path / "third")
    third = str(tmp_path / "third" / "captures")
    assert moved_readable(tmp_path / "third" / "catalog", [Path(third)]) == {
        str(captures): third,
        str(moved): third,
    }


def test_a_folder_may_be_behind_a_link(tmp_path: Path) -> None:
    disk, first = tmp_path / "disk", tmp_path / "first"
    disk.mkdir()
    first.mkdir()
    (first / "link").symlink_to(disk)
    place(first / "catalog", first / "link", disk)
    second = first.rename(tmp_path / "second")
    found = moved_readable(second / "catalog", [second / "link", disk])
    assert found[str(first / "link")] == str(second / "link")
    assert found[str(disk)] == str(disk)


def test_a_copy_is_found_where_the_original_was_named_with_a_link(tmp_path: Path) -> None:
    original, link = tmp_path / "disk" / "original", tmp_path / "link"
    catalog = place(original / "catalog", original / "captures")
    link.symlink_to(tmp_path / "disk")
    settle(catalog, [link / "original" / "captures", original / "captures"])
    copy = Path(shutil.copytree(original, tmp_path / "disk" / "copy"))
    found = moved_readable(copy / "catalog", [tmp_path])
    assert found[str(link / "original" / "captures")] == str(copy / "captures")
    assert found[str(original / "captures")] == str(copy / "captures")


def test_a_damaged_memory_is_named(tmp_path: Path) -> None:
    directory = place(tmp_path / "catalog")
    (directory / "folders.json").write_text("[]")
    with pytest.raises(RuntimeError, match=r"folders\.json cannot be used .* Remove it; it is cre"):
        settle(directory, [])


def test_a_link_in_a_folder_that_was_received_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "catalog" / ".folders.json.part").symlink_to(tmp_path / "mine")
    settle(tmp_path / "catalog", [tmp_path])
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "catalog" / "folders.json").is_symlink()
