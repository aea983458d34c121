"""Where the files of documents are, after their folders were copied, moved or mounted elsewhere."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlparse

from daqiri_ophyd.documents import directory_uri
from daqiri_ophyd.ship import is_address, split_address

__all__ = ["MovedFolders", "Moves"]

Moves: TypeAlias = Mapping[str, str | Path] | Mapping[Path, str | Path]
"""New paths of folders by the old ones."""


class MovedFolders:
    """Old and new paths of folders; only the new ones are read.

    A file below several of the old folders belongs to the innermost. Files that are below a new
    folder already are left there, unless the same folder is also an old one.

    Parameters
    ----------
    named : mapping of path to path, optional
        New paths by old ones, as the user has named them; they come before `remembered`. Old paths
        are absolute: those in documents, or those that `remembered` has made of them. A new place
        can be an address of an object store, too: see `address`.
    remembered : mapping of str to str, optional
        Absolute new paths by old ones, as the catalog directory remembers them.

    Raises
    ------
    ValueError
        If an old path is not absolute, addresses of files cannot have a new one, or an address is
        none of an object store.
    """

    def __init__(
        self,
        named: Moves | None = None,
        remembered: Mapping[str, str] | None = None,
    ) -> None:
        checked = {}
        self._in_stores: dict[str, str] = {}
        for old, new in (named or {}).items():
            if not Path(old).is_absolute():
                raise ValueError(
                    f"moved: found the old folder {str(old)!r}, which is relative; give its full "
                    "path, as the message about the file has it."
                )
            if is_address(str(new)):
                split_address(str(new))
                self._in_stores[_normal(str(old))] = str(new).rstrip("/")
                continue
            place = Path(os.path.abspath(new))
            directory_uri(place)
            checked[_normal(str(old))] = str(place)
        self._named = _with_new(checked)
        self._remembered = _with_new(remembered or {})

    def __bool__(self) -> bool:
        """Whether there are any such folders."""
        return bool(self._named or self._remembered)

    @property
    def stores(self) -> tuple[str, ...]:
        """Addresses of folders that are in object stores."""
        return tuple(self._in_stores.values())

    def address(self, path: str | Path) -> str:
        """Return the address of the object of a file; empty: its folder is in no object store."""
        text = str(path)
        return "" if "\0" in text else _moved(_normal(text), self._in_stores) or ""

    def path(self, path: str | Path) -> Path:
        """Return the present path of a file or folder; unchanged if it is below no old folder.

        ``..`` is resolved as text: links of the old folder may be gone.
        """
        text = str(path)
        if "\0" in text:
            return Path(path)
        normal = _normal(text)
        if _moved(normal, self._in_stores):
            return Path(path)  # see `address`
        found = _moved(normal, self._named)
        if found is None:
            known = _moved(normal, self._remembered)
            found = known and (_moved(known, self._named) or known)
        return Path(found or path)

    def uri(self, uri: str) -> str:
        """Return the present address of a file or folder; unchanged if it is not a file's."""
        if not self or not uri.startswith("file:"):
            return uri
        try:
            parsed = urlparse(uri)
        except ValueError:
            return uri
        # Not quoted: readers of these addresses do not unquote them.
        before = Path(parsed.path)
        after = self.path(before)
        if after == before:
            return uri
        end = "/" if parsed.path.endswith("/") else ""
        return parsed._replace(path=str(after).rstrip("/") + end).geturl()


def _with_new(folders: Mapping[str, str]) -> dict[str, str]:
    return {new: new for new in folders.values()} | dict(folders)


def _moved(path: str, folders: Mapping[str, str]) -> str | None:
    folder = path
    while folder not in folders:
        if folder == "/":
            return None
        folder = os.path.dirname(folder)
    rest = path[len(folder) :].lstrip("/")
    return os.path.join(folders[folder], rest) if rest else folders[folder]


def _normal(path: str) -> str:
    return os.path.normpath("/" + path.lstrip("/"))
