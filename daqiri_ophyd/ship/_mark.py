"""The local mark of a file that is in an object store."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "SUFFIX",
    "Mark",
    "is_shipped",
    "mark_of",
    "mark_path",
    "read_mark",
    "write_in_place",
    "write_mark",
]

SUFFIX = ".shipped"


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a file was uploaded to.

    Parameters
    ----------
    uri : str
        Address of the object.
    bytes : int
        Its size.
    sha256 : str
        Its SHA-256, in hexadecimal.
    e_tag : str
        What the store calls this version of the object.
    time_ns : int
        Time of the upload, ns since the epoch.
    """

    uri: str
    bytes: int
    sha256: str
    e_tag: str
    time_ns: int


def mark_path(file: Path) -> Path:
    """Return the path of the mark of a file."""
    return file.with_name(file.name + SUFFIX)


def read_mark(file: Path) -> Mark | None:
    """Return where a file was uploaded to; None: it was not.

    Parameters
    ----------
    file : Path
        The file, which may be gone.

    Raises
    ------
    ValueError
        If the mark is damaged.
    """
    path = mark_path(file)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return Mark(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: {error}. Without it, the file is uploaded again."
        ) from None


def mark_of(file: Path) -> Mark | None:
    """Return where a file was uploaded to, like `read_mark`; None also for a damaged mark."""
    try:
        return read_mark(file)
    except ValueError:
        return None


def is_shipped(file: Path) -> bool:
    """Whether a file, which may be gone, has a mark."""
    return mark_path(file).is_file()


def write_mark(file: Path, mark: Mark, spare: Path | None = None, *, durable: bool) -> None:
    """Write a mark; it is whole, or not there.

    Parameters
    ----------
    file : Path
        The file.
    mark : Mark
        Its mark.
    spare : Path, optional
        File that becomes the mark on a full disk.
    durable : bool
        Whether it is to outlive a power failure.
    """
    path = mark_path(file)
    part = path.with_name(path.name + ".part")
    text = json.dumps(asdict(mark)).encode()
    try:
        write_in_place(part, text, durable=durable)
    except OSError as error:
        if spare is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        with suppress(FileNotFoundError):  # another file has it
            spare.replace(part)
        write_in_place(part, text, durable=durable)
    part.replace(path)
    if not durable:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_in_place(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file, `durable`: to disk; if it exists, where it is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb", buffering=0) as file:
        if file.write(content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file.truncate()
        if durable:
            os.fsync(descriptor)
