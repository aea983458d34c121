"""Other files that an HDF5 file takes data from: external links, external storage, virtual sources.

HDF5 opens them without asking, so a file below a readable directory could name any file.
"""

import glob
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py

from daqiri_ophyd.documents import other_files

from ._confine import UnreadableFileError, require_below

__all__ = ["require_confined_references", "require_own_data"]

_KEPT_FILES = 4096
_OPTIONS = ("swmr", "libver", "locking")
_PREFIXES = {
    "link": "HDF5_EXT_PREFIX",
    "storage": "HDF5_EXTFILE_PREFIX",
    "virtual": "HDF5_VDS_PREFIX",
}
_Opening = tuple[tuple[str, Any], ...]


def require_confined_references(
    path: Path,
    directories: Iterable[Path],
    options: Mapping[str, Any],
    *,
    explain: bool = True,
) -> None:
    """Raise if an HDF5 file takes data from a file that may not be read, directly or not.

    Parameters
    ----------
    path : Path
        The file. Other than HDF5 files pass.
    directories : iterable of Path
        Readable directories.
    options : mapping
        How its reader opens it: ``swmr``, ``libver`` and ``locking`` of `h5py.File`. HDF5 does not
        open a file in two ways at once.
    explain : bool
        Whether an error may say if the other file exists.

    Raises
    ------
    UnreadableFileError
        If it does, or is a pipe or a device.
    OSError
        If the file cannot be opened.
    """
    # Clients name them, too, as text or lists.
    given = {key: options[key] for key in _OPTIONS if options.get(key) is not None}
    opening = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in given.items())
    directories = list(directories)
    checked: set[Path] = set()
    pending = [path]
    while pending:
        file = pending.pop()
        if file in checked:
            continue
        checked.add(file)
        for name, other in _references(file, opening):
            try:
                require_below(other, directories, explain=explain)
            except UnreadableFileError as error:
                raise UnreadableFileError(
                    f"{file} cannot be read: its object {name!r} takes data from another file, and "
                    f"{error}"
                ) from None
            pending.append(other)


def require_own_data(opened: Any, name: str) -> None:
    """Raise if an HDF5 file that is open as a stream takes data from any other file.

    Raises
    ------
    UnreadableFileError
        If it does.
    OSError
        If it is no HDF5 file.
    """
    with h5py.File(opened, "r", libver="latest", locking=False) as file:
        for inner, _, other in other_files(file):
            raise UnreadableFileError(
                f"{name} cannot be read: its object {inner!r} takes data from another file, {other}"
            )


def _references(path: Path, opening: _Opening) -> tuple[tuple[str, Path], ...]:
    """Return names of objects in a file, and the files that they are in or take data from."""
    try:
        found = path.stat()
    except OSError:
        return ()
    # A recorder may be writing it. Its owner can set mtime back, not ctime.
    key = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
    return tuple(
        (name, file)
        for name, kind, other in _named_files(path, opening, key)
        for file in _opened(path, kind, other)
    )


@lru_cache(_KEPT_FILES)
def _named_files(path: Path, opening: _Opening, _key: object) -> tuple[tuple[str, str, str], ...]:
    """Return name, kind and file name of each object that is not in the file alone."""
    if path.exists() and not path.is_file() and not path.is_dir():
        # To open a pipe waits for a writer, and HDF5 waits with all its threads.
        raise UnreadableFileError(f"{path} cannot be read: it is not a regular file.")
    if not path.is_file() or not h5py.is_hdf5(path):
        return ()
    named = {"libver": "latest", **dict(opening)}
    try:
        file = h5py.File(path, "r", **named)
    except OSError:
        # Those that it refers to may be open, or be written, in another way.
        file = h5py.File(path, "r", **{**named, "swmr": not named.get("swmr", False)})
    with file:
        return tuple(other_files(file))


def _opened(path: Path, kind: str, name: str) -> list[Path]:
    """Return the files that HDF5 tries for a name in a file; the first place, if there are none."""
    if name == "." and kind == "virtual":
        return []
    has_blocks = kind == "virtual" and "%b" in name
    if kind == "virtual":
        # %b is the number of a block.
        pattern = glob.escape(name.replace("%%", "\0")).replace("%b", "*").replace("\0", "%")
    else:
        pattern = glob.escape(name)
    folders = [os.getcwd()]
    if kind != "storage":
        beside = [path.parent, Path(os.path.realpath(path)).parent]
        folders = [os.path.realpath(beside[0]), os.getcwd(), str(beside[1])]
    # HDF5 looks here first.
    prefixes = os.environ.get(_PREFIXES[kind], "").replace("${ORIGIN}", str(path.parent))
    folders = [*filter(None, prefixes.split(":")), *folders]
    places = [os.path.join(glob.escape(folder), pattern) for folder in folders]
    if os.path.isabs(name) and kind != "storage":
        # HDF5 also tries the name alone.
        alone = os.path.basename(pattern)
        places = [pattern, *(os.path.join(glob.escape(folder), alone) for folder in folders)]
    every: list[Path] = []
    for place in dict.fromkeys(places):
        files = sorted(glob.glob(place))
        every += map(Path, files)
        # Each block may be in another folder. HDF5 goes on to the next place if the system does not
        # open a file, such as a link to nothing; not if it is no HDF5 file.
        if not has_blocks and any(os.access(file, os.R_OK) for file in files):
            break
    first = name if os.path.isabs(name) else os.path.join(folders[0], name)
    return every or [Path(first)]
