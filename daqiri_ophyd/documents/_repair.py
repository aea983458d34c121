"""What all repairs of files of recorders have in common: locks, links and logs."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from ._sidecar import no_link, sidecar_part

__all__ = ["append_log", "is_written", "locked", "logged", "require_no_links"]


def is_written(path: Path) -> bool:
    """Whether a recorder is writing the file."""
    # The recorder lets go of the file first: what is locked then is being completed.
    return _is_locked(sidecar_part(path)) or _is_locked(path)


def _is_locked(path: Path) -> bool:
    try:
        # A named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file, locked(file, fcntl.LOCK_SH):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False  # reported when the file is read


@contextmanager
def locked(file: BinaryIO, kind: int) -> Iterator[None]:
    """Hold the lock that a recorder holds while writing. Raises BlockingIOError."""
    fcntl.flock(file, kind | fcntl.LOCK_NB)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def require_no_links(path: Path) -> None:
    """Raise ValueError if a file that a repair writes beside ``path`` is a link already."""
    for beside in (sidecar_part(path), _log_path(path)):
        if beside.is_symlink():
            raise ValueError(f"{beside} is a link, which is not written through; remove it first")


def _log_path(path: Path) -> Path:
    return path.with_name(path.name + ".repair.jsonl")


def append_log(path: Path, entry: dict[str, Any]) -> None:
    """Append a record of a repair to ``<name>.repair.jsonl``; one JSON object per line."""
    with _open_log(path) as file:
        file.write(_line(entry))


@contextmanager
def logged(path: Path, entry: dict[str, Any]) -> Iterator[None]:
    """Record a change of a file before it is made. One that is refused leaves no record."""
    before = _state(path)
    with _open_log(path) as file:
        end = file.tell()
        file.write(_line(entry))
        # The change is known also if this process is killed while it is made.
        file.flush()
        try:
            yield
        except BaseException:
            if _state(path) == before:
                file.truncate(end)
                if end == 0:
                    _log_path(path).unlink()
            raise


def _open_log(path: Path) -> TextIO:
    # Whoever may write in the folder could have put a link there since it was looked for.
    return open(_log_path(path), "a", opener=no_link)


def _line(entry: dict[str, Any]) -> str:
    return json.dumps({"time_ns": time.time_ns(), **entry}) + "\n"


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
