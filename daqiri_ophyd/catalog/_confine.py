"""Limits the files that a catalog may name to its readable directories on this host."""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from weakref import WeakKeyDictionary

from tiled.utils import path_from_uri

from ._moved import MovedFolders

__all__ = [
    "Folders",
    "UnreadableFileError",
    "confined_path",
    "directories_of",
    "folders_of",
    "require_below",
    "require_confined",
    "set_folders",
    "whereabouts",
]


@dataclass(frozen=True)
class Folders:
    """Folders of captures of a Tiled connection.

    Parameters
    ----------
    readable : tuple of Path
        Directories that may be read; empty: not known.
    moved : MovedFolders
        New places of folders that documents name.
    is_applied : bool
        Whether the server's addresses have the new places already.
    is_shared : bool
        Whether the server may be on another host, whose paths are not those of this one.
    stores : tuple of str
        Addresses of object stores that may be read.
    """

    readable: tuple[Path, ...] = ()
    moved: MovedFolders = field(default_factory=MovedFolders)
    is_applied: bool = False
    is_shared: bool = False
    stores: tuple[str, ...] = ()

    @property
    def unapplied(self) -> MovedFolders:
        """The new places for addresses from the server."""
        return MovedFolders() if self.is_applied else self.moved

    @property
    def stored(self) -> MovedFolders:
        """The new places for documents that are stored."""
        return MovedFolders() if self.is_shared else self.moved


# By connection of a `Catalog`: a run refers to its connection, not its catalog.
_FOLDERS: WeakKeyDictionary[Any, Folders] = WeakKeyDictionary()


class UnreadableFileError(PermissionError):
    """A catalog names a file that is not below one of its readable directories."""


def confined_path(uri: str, directories: Iterable[Path], *, explain: bool = True) -> Path:
    """Return the path of a file URI, if the file may be read.

    Parameters
    ----------
    uri : str
        ``file://localhost/...``, with the name of this host, or without a host.
    directories : iterable of Path
        Readable directories. The real path of the file, without ``..`` and links, must be below
        the real path of one of them.
    explain : bool
        Whether an error may say if the file exists.

    Raises
    ------
    UnreadableFileError
        If the file may not be read.
    """
    try:
        host = urlparse(uri).hostname or "localhost"
        path = path_from_uri(uri)
        os.path.realpath(path)  # raises for a NUL
    except ValueError as error:
        raise UnreadableFileError(f"{uri!r} is not the address of a file: {error}.") from None
    if host not in ("localhost", socket.gethostname().lower()):
        raise UnreadableFileError(
            f"{uri} is on host {host!r}; only files of this host can be read: file://localhost/..."
        )
    require_below(path, directories, explain=explain)
    return path


def require_below(path: Path, directories: Iterable[Path], *, explain: bool = True) -> None:
    """Raise if the real path of a file is not below that of a directory.

    Raises
    ------
    UnreadableFileError
        If it is not.
    """
    directories, real = list(directories), Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(directory)) for directory in directories):
        found = str(path) if real == path else f"{path} ({real})"
        raise UnreadableFileError(
            f"{found} is not below a readable directory. Readable: "
            f"{', '.join(map(str, directories)) or 'none'}."
            f"{f' {whereabouts(path)}' if explain else ''}"
        )


def whereabouts(path: Path) -> str:
    """Return whether a file exists and how to read it, for the end of a message."""
    folder = path.parent
    if path.exists():
        if path.is_symlink():
            folder = Path(os.path.realpath(path)).parent
        return f"The file exists; to read it: readable=[{str(folder)!r}]."
    if folder.is_dir():
        return "The file does not exist; its folder does."
    missing = next((p for p in (*folder.parents,)[::-1] if not p.exists()), folder)
    return (
        f"The file does not exist, nor does {missing}: was the folder moved? Name its new place, "
        f"NEW: Catalog.open(..., readable=['NEW'], moved={{{str(missing)!r}: 'NEW'}})."
    )


def require_confined(
    paths: Iterable[Path], directories: Iterable[Path], *, explain: bool = True
) -> None:
    """Raise if a file may not be read; as `confined_path`, but fast for files of one directory.

    Raises
    ------
    UnreadableFileError
        If one of them may not be read.
    """
    directories = list(directories)
    real = [os.path.realpath(directory) for directory in directories]
    confined: dict[Path, bool] = {}
    for path in paths:
        folder = path.parent
        if folder not in confined:
            found = Path(os.path.realpath(folder))
            confined[folder] = any(found.is_relative_to(directory) for directory in real)
        if not confined[folder] or path.name == ".." or path.is_symlink():
            require_below(path, directories, explain=explain)


def set_folders(context: Any, folders: Folders) -> None:
    """Store the folders of captures of a Tiled connection."""
    _FOLDERS[context] = folders


def folders_of(context: Any) -> Folders:
    """Return the folders of captures of a Tiled connection; none if not known."""
    return _FOLDERS.get(context, Folders())


def directories_of(context: Any, readable: Iterable[str | Path] | None) -> list[Path]:
    """Return the directories that may be read: those that are given, or those of a connection."""
    return list(map(Path, folders_of(context).readable if readable is None else readable))
