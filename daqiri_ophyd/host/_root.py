"""Reading facts from files beneath a root directory."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["FactError", "Root", "require_host"]

_LARGEST = 1 << 20
# Characters that neither terminals nor XML accept.
_UNPRINTABLE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_INTEGER_BITS = 64


class FactError(Exception):
    """A fact cannot be read on this host; the text says which, and why."""


def require_host(root: str | os.PathLike[str]) -> None:
    """
    Accept the root of a host only.

    Raises
    ------
    ValueError
        If it is not a folder, or has neither of the folders proc and sys.
    """
    name = os.fspath(root)
    if not os.path.isdir(root):
        raise ValueError(f"root is {name!r}, which is not a folder; give / or a recorded host")
    if not any(os.path.isdir(os.path.join(root, each)) for each in ("proc", "sys")):
        raise ValueError(
            f"root is {name!r}, a folder without proc and sys; give / or a recorded host, which "
            "has them (`daqiri-ophyd host record DIR` makes one)"
        )


class Root:
    """Files of a host, by their usual absolute paths.

    Parameters
    ----------
    directory : path, optional
        Root of the host's file system: ``/``, or the folder of a recorded host.
    """

    def __init__(self, directory: str | os.PathLike[str] = "/") -> None:
        self.directory = Path(directory).resolve()

    @property
    def live(self) -> bool:
        """Whether this is the running host, not a recorded one."""
        return self.directory == Path("/")

    def path(self, path: str) -> Path:
        """
        Return the path on this machine for a path on the host.

        Raises
        ------
        FactError
            If a recorded link leads out of its root, or in circles.
        """
        place = self.directory / path.lstrip("/")
        if self.live:
            return place
        try:
            place = place.resolve()
        except (OSError, RuntimeError):
            raise FactError(f"{path}: its links lead nowhere") from None
        if not place.is_relative_to(self.directory):
            raise FactError(f"{path}: leads out of {self.directory}")
        return place

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        try:
            return self.path(path).exists()
        except (OSError, FactError):
            return False

    def bytes(self, path: str, size: int = _LARGEST) -> bytes:
        """
        Return the first bytes of a file.

        Raises
        ------
        FactError
            If it is missing or cannot be read.
        """
        try:
            with open(self.path(path), "rb", opener=_open_without_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise FactError(f"{path}: is not a file")
                return file.read(size)
        except OSError as error:
            raise FactError(f"{path}: {_reason(error)}") from None

    def text(self, path: str, size: int = _LARGEST) -> str:
        """
        Return the text of a file's first bytes, stripped; unprintable characters become spaces.

        Raises
        ------
        FactError
            If it is missing or cannot be read.
        """
        return _UNPRINTABLE.sub(" ", self.bytes(path, size).decode("utf-8", "replace")).strip()

    def lines(self, path: str) -> list[str]:
        """
        Return a file's lines.

        Raises
        ------
        FactError
            If it is missing or cannot be read.
        """
        return self.text(path).splitlines()

    def integer(self, path: str) -> int:
        """
        Return the integer of at most 64 bits in a file, decimal or with a prefix such as 0x.

        Raises
        ------
        FactError
            If it is missing, cannot be read, or holds something else.
        """
        text = self.text(path)
        try:
            value = int(text, 0)
        except ValueError:
            raise FactError(f"{path}: holds {text[:40]!r}, not an integer") from None
        if value.bit_length() > _INTEGER_BITS:
            raise FactError(f"{path}: holds {text[:40]!r}, beyond {_INTEGER_BITS} bits")
        return value

    def optional(self, path: str, size: int = _LARGEST) -> str:
        """Return the text of a file's first bytes, or an empty one if it cannot be read."""
        try:
            return self.text(path, size)
        except FactError:
            return ""

    def json(self, path: str) -> Any:
        """
        Return the contents of a JSON file, or None if there is none.

        Raises
        ------
        FactError
            If it is malformed, nested too deeply or cannot be read.
        """
        if not self.exists(path):
            return None
        try:
            return json.loads(self.text(path))
        except (ValueError, RecursionError) as error:
            raise FactError(f"{path}: {error}") from None

    def names(self, path: str) -> list[str]:
        """Return the printable names in a folder, sorted; none if there is no such folder."""
        try:
            names = os.listdir(self.path(path))
        except (OSError, FactError):
            return []
        return sorted(name for name in names if name.isprintable())

    def target(self, path: str) -> str:
        """
        Return the host's path that a link leads to, or the path itself.

        Raises
        ------
        FactError
            If a recorded link leads out of its root, or in circles.
        """
        try:
            return "/" + str(self.path(path).resolve().relative_to(self.directory))
        except (OSError, RuntimeError):
            raise FactError(f"{path}: its links lead nowhere") from None

    def glob(self, pattern: str) -> Iterator[str]:
        """Yield the host's paths that a pattern matches, sorted."""
        try:
            found = sorted(self.directory.glob(pattern.lstrip("/")))
        except OSError:
            return
        for path in found:
            yield "/" + str(path.relative_to(self.directory))


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
