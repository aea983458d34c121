"""Common parts of all repairs of recorded files: locks, links and logs."""

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
    # The recorder unlocks the file first, while its metadata is still being completed.
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
    """Hold the lock that a recorder holds while writing; raises BlockingIOError."""
    fcntl.flock(file, kind | fcntl.LOCK_NB)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def require_no_links(path: Path) -> None:
    """Raise ValueError if a file that a repair writes next to ``path`` is a link."""
    for beside in (sidecar_part(path), _log_path(path)):
        if beside.is_symlink():
            raise ValueError(f"{beside} is a link, which repairs do not follow; remove it first")


def _log_path(path: Path) -> Path:
    return path.with_name(path.name + ".repair.jsonl")


def append_log(path: Path, entry: dict[str, Any]) -> None:
    """Append a record of a repair to ``<name>.repair.jsonl``; one JSON object per line."""
    with _open_log(path) as file:
        file.write(_line(entry))


@contextmanager
def logged(path: Path, entry: dict[str, Any]) -> Iterator[None]:
    """Log a change of a file before it is made; remove the record if the change is rejected."""
    before = _state(path)
    with _open_log(path) as file:
        end = file.tell()
        file.write(_line(entry))
        # The change is logged even if this process is killed during it.
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
    # Another user with write access could have created a link since the check.
    return open(_log_path(path), "a", opener=no_link)


def _line(entry: dict[str, Any]) -> str:
    return json.dumps({"time_ns": time.time_ns(), **entry}) + "\n"


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
