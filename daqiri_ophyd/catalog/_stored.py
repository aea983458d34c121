"""Finds the files that documents name: on this host, or in an object store."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from daqiri_ophyd.ship import StoredObject, is_address, read_mark, split_address

from ._confine import UnreadableFileError
from ._moved import MovedFolders

__all__ = ["Stored", "StoredFiles", "require_in_stores", "split_readable"]

Stored: TypeAlias = Path | StoredObject
"""A file on this host, or in an object store."""

_INDEX, _METADATA = ".npy", ".json"


def split_readable(readable: Iterable[str | Path]) -> tuple[list[Path], list[str]]:
    """Return the directories, and the addresses of object stores, that may be read.

    Raises
    ------
    ValueError
        If an address is none of an object store.
    """
    paths, stores = [], []
    for each in readable:
        if is_address(str(each)):
            split_address(str(each))
            stores.append(str(each).rstrip("/"))
        else:
            paths.append(Path(each))
    return paths, stores


def require_in_stores(uri: str, stores: Iterable[str]) -> None:
    """Raise if an object is not below an address that may be read.

    Raises
    ------
    UnreadableFileError
        If it is not.
    """
    if not any(f"{uri}/".startswith(f"{store}/") for store in stores):
        bucket = uri.rpartition("/")[0]
        raise UnreadableFileError(
            f"{uri} is not below an address that may be read: "
            f"{', '.join(stores) or 'none is given'}. Name it like a directory of captures: "
            f"readable=[..., {bucket!r}]."
        )


class StoredFiles:
    """Where files are that are not, or no longer, on this host.

    A file that was uploaded and removed has a mark beside it, which names its object. On other
    hosts, folders that documents name can be at an address: ``moved={"/data": "s3://bucket/data"}``.

    Parameters
    ----------
    moved : MovedFolders
        Folders with new places; those at an address may be read there.
    stores : iterable of str
        Addresses that may be read as well.
    """

    def __init__(self, moved: MovedFolders, stores: Iterable[str] = ()) -> None:
        self._moved = moved
        self._stores = (*moved.stores, *stores)

    def find(self, path: Path) -> Stored:
        """Return the file, or its object; the path itself, if there is neither.

        Raises
        ------
        UnreadableFileError
            If its object is in no store that may be read, or its mark is damaged.
        """
        if path.is_file():
            return path
        if address := self._moved.address(path):
            return StoredObject(address)
        name = path.name
        suffix = _INDEX if name.endswith(f".raw{_INDEX}") else ""
        try:
            mark = read_mark(path.with_name(name.removesuffix(suffix)))
        except ValueError as error:
            raise UnreadableFileError(str(error)) from error
        if mark is None:
            return path
        require_in_stores(mark.uri, self._stores)
        return StoredObject(mark.uri + suffix, None if suffix else path)

    def has(self, path: Path) -> bool:
        """Whether a file that is not on this host is in a folder that is at an address.

        What is on this host is read here, and must be in a folder that may be read.
        """
        return bool(self._moved.address(path)) and not os.path.lexists(path)

    def local(self, path: Path) -> Path:
        """Return the path of the file, or of a copy of its object.

        Raises
        ------
        UnreadableFileError
            As `find`.
        FileNotFoundError, StoreError, OSError
            As `StoredObject.fetch`.
        """
        if path.is_file():
            return path
        # Those of frames end in .json, too.
        file = path.with_name(path.name.removesuffix(_METADATA))
        found = self.find(file)
        if not isinstance(found, StoredObject):
            return path
        copy = found.fetch()
        return copy if file == path else copy.with_name(path.name)
