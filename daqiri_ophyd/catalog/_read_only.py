"""Catalogs that cannot be written, such as a mounted archive: a server runs on a temporary copy."""

import os
import shutil
import tempfile
from pathlib import Path

from ._address import DATABASE, LOCK, CatalogError, closed_to_others

__all__ = ["copy_catalog", "is_writable"]

# Databases, each with what may be next to it after a crash.
_DATABASES = (DATABASE, "storage.duckdb")
_COPIED = (*_DATABASES, f"{DATABASE}-wal", "storage.duckdb.wal", "folders.json")
_LINKED = "data"


def is_writable(directory: Path) -> bool:
    """Whether a server can run in a catalog directory."""
    needed = (directory, *(directory / name for name in (LOCK, _LINKED, *_DATABASES)))
    return all(os.access(path, os.W_OK) for path in needed if path.exists())


def copy_catalog(directory: Path) -> "tempfile.TemporaryDirectory[str]":
    """Copy the databases of a catalog to a temporary directory; stored arrays are linked.

    Parameters
    ----------
    directory : Path
        The catalog directory. Nothing in it is changed.

    Raises
    ------
    CatalogError
        If it cannot be read, has changes in progress, or does not fit on the disk.
    """
    copy = tempfile.TemporaryDirectory(prefix="daqiri-catalog-", ignore_cleanup_errors=True)
    try:
        # A copy of databases that change would be broken.
        with closed_to_others(directory) as is_closed:
            if not is_closed:
                raise CatalogError(
                    f"The catalog in {directory} cannot be written by this user, and another user "
                    "has it open. Open it when that is done, or connect to a server."
                )
            for name in _COPIED:
                source = directory / name
                # Which folders have moved is private to who recorded them.
                if source.is_file() and (name != "folders.json" or os.access(source, os.R_OK)):
                    shutil.copyfile(source, Path(copy.name, name))
        if (directory / _LINKED).is_dir():
            Path(copy.name, _LINKED).symlink_to(directory / _LINKED)
    except BaseException as error:
        copy.cleanup()
        if not isinstance(error, OSError):
            raise
        if isinstance(error, PermissionError) and not str(error.filename).startswith(copy.name):
            raise CatalogError(
                f"The catalog in {directory} cannot be read: {error.strerror} ({error.filename}). "
                f"Its owner can change that: chmod -R a+rX {directory}"
            ) from error
        raise CatalogError(
            f"The catalog in {directory} cannot be written, and not be copied to {copy.name} for "
            f"reading: {error.strerror} ({error.filename}). Copy the directory to a disk that can "
            "be written, or set TMPDIR to one."
        ) from error
    return copy
