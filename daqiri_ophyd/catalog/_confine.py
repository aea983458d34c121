"""Limits the files that a catalog may name to its readable directories on this host."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from weakref import WeakKeyDictionary

from tiled.utils import path_from_uri

__all__ = [
    "UnreadableFileError",
    "confined_path",
    "readable_of",
    "require_confined",
    "set_readable",
]

# Directories by connection of a `Catalog`: a run refers to its connection, not its catalog.
_READABLE: WeakKeyDictionary[Any, tuple[Path, ...]] = WeakKeyDictionary()


class UnreadableFileError(PermissionError):
    """A catalog names a file that is not below one of its readable directories."""


def confined_path(uri: str, directories: Iterable[Path]) -> Path:
    """Return the path of a file URI, if the file may be read.

    Parameters
    ----------
    uri : str
        ``file://localhost/...``, with the name of this host, or without a host.
    directories : iterable of Path
        Readable directories. The real path of the file, without ``..`` and links, must be below
        the real path of one of them.

    Raises
    ------
    UnreadableFileError
        If the file may not be read.
    """
    directories = list(directories)
    try:
        host = urlparse(uri).hostname or "localhost"
        path = path_from_uri(uri)
        real = Path(os.path.realpath(path))
    except ValueError as error:
        raise UnreadableFileError(f"{uri!r} is not the address of a file: {error}.") from None
    if host not in ("localhost", socket.gethostname().lower()):
        raise UnreadableFileError(
            f"{uri} is on host {host!r}; only files of this host can be read: file://localhost/..."
        )
    if not any(real.is_relative_to(os.path.realpath(directory)) for directory in directories):
        found = str(path) if real == path else f"{path} ({real})"
        raise UnreadableFileError(
            f"{found} is not below a readable directory. Readable: "
            f"{', '.join(map(str, directories)) or 'none'}."
        )
    return path


def require_confined(paths: Iterable[Path], directories: Iterable[Path]) -> None:
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
            confined_path(f"file://localhost{path}", directories)


def set_readable(context: Any, directories: Iterable[Path]) -> None:
    """Store the readable directories of a Tiled connection."""
    _READABLE[context] = tuple(directories)


def readable_of(context: Any) -> tuple[Path, ...] | None:
    """Return the readable directories of a Tiled connection; None if not known."""
    return _READABLE.get(context)
