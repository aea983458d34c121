"""Paths for the extension, whose texts are UTF-8."""

from pathlib import Path

from ._errors import InvalidParameterError

__all__ = ["native_path", "shown_path"]


def native_path(path: Path) -> str:
    """Return a path for the extension.

    Raises
    ------
    InvalidParameterError
        If it is not UTF-8.
    """
    text = str(path)
    if shown_path(path) != text:
        raise InvalidParameterError(
            f"{text!r} is not UTF-8; accepted are names in UTF-8: rename the file or directory"
        )
    return text


def shown_path(path: Path) -> str:
    r"""Return a path for messages; bytes that are not UTF-8 are shown as ``\udcff``."""
    return str(path).encode(errors="backslashreplace").decode()
