"""Reading facts from files beneath a root directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["FactError", "Root"]

_LARGEST = 1 << 20


class FactError(Exception):
    """A fact that cannot be had here; its text says which and why."""


class Root:
    """Files of a host, by their usual absolute paths.

    Parameters
    ----------
    directory : path, optional
        Where the host's file system begins: ``/``, or a folder that holds a recorded one.
    """

    def __init__(self, directory: str | os.PathLike[str] = "/") -> None:
        self.directory = Path(directory).resolve()

    @property
    def live(self) -> bool:
        """Whether this is the running host, not a recorded one."""
        return self.directory == Path("/")

    def path(self, path: str) -> Path:
        """Return where the host's path lies."""
        return self.directory / path.lstrip("/")

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        try:
            return self.path(path).exists()
        except OSError:
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
            with self.path(path).open("rb") as file:
                return file.read(size)
        except OSError as error:
            raise FactError(f"{path}: {_reason(error)}") from None

    def text(self, path: str) -> str:
        """
        Return a file's text without the white space around it.

        Raises
        ------
        FactError
            If it is missing or cannot be read.
        """
        return self.bytes(path).decode("utf-8", "replace").replace("\0", " ").strip()

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
        Return the integer that a file holds, decimal or with a prefix such as 0x.

        Raises
        ------
        FactError
            If it is missing, cannot be read, or holds something else.
        """
        text = self.text(path)
        try:
            return int(text, 0)
        except ValueError:
            raise FactError(f"{path}: holds {text[:40]!r}, not an integer") from None

    def optional(self, path: str) -> str:
        """Return a file's text, or an empty one if it cannot be read."""
        try:
            return self.text(path)
        except FactError:
            return ""

    def json(self, path: str) -> Any:
        """
        Return what a JSON file holds, or None if there is none.

        Raises
        ------
        FactError
            If it is malformed or cannot be read.
        """
        if not self.exists(path):
            return None
        try:
            return json.loads(self.text(path))
        except ValueError as error:
            raise FactError(f"{path}: {error}") from None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        try:
            return sorted(entry.name for entry in self.path(path).iterdir())
        except OSError:
            return []

    def target(self, path: str) -> str:
        """
        Return the host's path that a link leads to, or the path itself.

        Raises
        ------
        FactError
            If a recorded link leads out of its root, or around in circles.
        """
        try:
            real = self.path(path).resolve()
            return "/" + str(real.relative_to(self.directory))
        except (OSError, RuntimeError, ValueError) as error:
            raise FactError(f"{path}: {error}") from None

    def glob(self, pattern: str) -> Iterator[str]:
        """Yield the host's paths that a pattern matches, sorted."""
        try:
            found = sorted(self.directory.glob(pattern.lstrip("/")))
        except OSError:
            return
        for path in found:
            yield "/" + str(path.relative_to(self.directory))


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
