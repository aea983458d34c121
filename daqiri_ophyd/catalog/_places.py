"""What a catalog directory remembers of its readable folders, for copies of it in other places.

Documents name files by absolute paths. The directory keeps, in ``folders.json``, where it was and
the paths of the readable folders relative to it. In a copy or after a move, the folder at the same
relative path has the files, if it exists and is readable.
"""

import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from ._address import DATABASE, CatalogError, ServerAddress, write_private

__all__ = ["known_stores", "moved_readable", "settle"]

_NAME = "folders.json"
_STORAGE = "storage.duckdb"

Pairs = list[tuple[str, str]]
"""Absolute paths of folders, and their paths relative to the catalog directory."""


def settle(directory: Path, readable: Iterable[Path]) -> bool:
    """Remember the readable folders of a catalog directory, and where it is.

    If it was elsewhere before, its database is changed to name the directory's own storage: event
    tables and arrays. Files of captures are named as before.

    Parameters
    ----------
    directory : Path
        The catalog directory, locked by this process.
    readable : iterable of Path
        Directories of captures, as given and without links.

    Returns
    -------
    bool
        Whether the directory was elsewhere before, or may have been.

    Raises
    ------
    CatalogError
        If the database or the file cannot be read or written.
    """
    remembered = _read(directory)
    here = str(directory)
    try:
        if remembered is None:
            # Opened by an earlier version, or never.
            before = _move_storage(directory, None)
            kept = ServerAddress.read(directory).readable if before else ()
            folders = [(folder, os.path.relpath(folder, before)) for folder in kept]
        else:
            before, folders = remembered
            if before != here:
                _move_storage(directory, before)
    except sqlite3.Error as error:
        if remembered is None:
            return False  # the server names what is wrong with the database
        raise CatalogError(
            f"The catalog database {directory / DATABASE} cannot be changed to its new place: "
            f"{error}"
        ) from error
    # Files may be named with the links of a folder, and the folder be moved with or without them.
    now = [(str(p), os.path.relpath(each, here)) for p in readable for each in (p, p.resolve())]
    everything = list(dict.fromkeys([*folders, *now]))
    if remembered != (here, everything):
        _write(directory, everything)
    # Of an earlier version's catalog without event tables, nobody knows where it was.
    return before != here if before is not None else remembered is None


def known_stores(directory: Path) -> tuple[str, ...]:
    """Return the addresses of object stores that a catalog directory was opened with before.

    None in a copy: whoever made the original has not decided what may be read here.
    """
    try:
        remembered = _read(directory)
        here = remembered is not None and remembered[0] == str(directory)
        return ServerAddress.read(directory).stores if here else ()
    except CatalogError:
        return ()  # of another user; or the server names what is wrong


def moved_readable(directory: Path, readable: Iterable[Path]) -> dict[str, str]:
    """Return the present paths of the folders that a catalog directory remembers.

    Empty if all are where they were. A folder that was readable is in its new place, if a folder
    with the same path relative to the catalog directory is readable now, or is to be. It is in its
    old place, if that is readable now, and not only because a folder with both is.

    Parameters
    ----------
    directory : Path
        The catalog directory.
    readable : iterable of Path
        Directories that may be read now, as given and without links.
    """
    remembered = _read(directory)
    allowed = [(str(path), os.path.realpath(path)) for path in readable]
    found: dict[str, str] = {}
    for old, relative in remembered[1] if remembered else ():
        new = os.path.normpath(directory / relative)
        real = os.path.realpath(new)
        if found.get(old, old) != old:
            continue
        if any(_below(old, name) and not _below(new, name) for name, _ in allowed):
            found[old] = old
        elif any(_below(real, path) for _, path in allowed) and (
            os.path.isdir(real) or real in {path for _, path in allowed}
        ):
            found[old] = new
    return found if any(old != new for old, new in found.items()) else {}


def _below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def _read(directory: Path) -> tuple[str, Pairs] | None:
    path = directory / _NAME
    try:
        kept = json.loads(path.read_text("utf-8"))
        return str(kept["directory"]), [(str(old), str(new)) for old, new in kept["folders"]]
    except (FileNotFoundError, PermissionError):  # that of another user
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CatalogError(
            f"{path} cannot be used ({error!r}). Remove it; it is created again, but files of a "
            "folder that was moved then need Catalog.open(..., moved=...)."
        ) from error


def _write(directory: Path, folders: Pairs) -> None:
    content = {"directory": str(directory), "folders": folders}
    write_private(directory / _NAME, json.dumps(content))


def _move_storage(directory: Path, before: str | None) -> str | None:
    """Let the database name the storage in its own directory; return where it was before."""
    database = directory / DATABASE
    if not database.is_file():
        return before
    with closing(sqlite3.connect(database)) as connection, connection:
        own: list[tuple[int, Any]] = connection.execute(
            "SELECT DISTINCT assets.id, assets.data_uri FROM assets "
            "JOIN data_source_asset_association AS link ON link.asset_id = assets.id "
            "JOIN data_sources ON data_sources.id = link.data_source_id "
            "WHERE data_sources.management != 'external'"
        ).fetchall()
        tables = f"duckdb://localhost/{directory / _STORAGE}"
        for number, uri in own:
            if uri.startswith("duckdb:") and uri.endswith(f"/{_STORAGE}"):
                before = before or str(Path("/" + uri.partition("//localhost//")[2]).parent)
                _rename(connection, number, uri, tables)
        for number, uri in own:
            data = f"file://localhost{before}/data/"
            if before is not None and uri.startswith(data):
                new = f"file://localhost{directory}/data/{uri.removeprefix(data)}"
                _rename(connection, number, uri, new)
    return before


def _rename(connection: sqlite3.Connection, number: int, old: str, new: str) -> None:
    if old != new:
        connection.execute("UPDATE assets SET data_uri = ? WHERE id = ?", (new, number))
