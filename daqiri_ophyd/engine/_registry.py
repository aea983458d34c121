"""The engines of this user, in all processes."""

from __future__ import annotations

import os
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ._snapshot import EngineSnapshot

__all__ = [
    "UnreadableEngine",
    "answer_of",
    "ask_engines",
    "is_running",
    "running_engines",
    "runtime_directory",
    "runtime_entries",
]

_TIMEOUT_S = 2.0
_IN_LINE_S = 0.02
_LONGEST_ANSWER = 16 << 20
_ASKED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class UnreadableEngine:
    """An engine whose state cannot be read.

    Parameters
    ----------
    pid : int
        Id of the process that runs it.
    number : int
        Number of the engine in its process.
    problem : str
        Reason why its state cannot be read.
    """

    pid: int
    number: int
    problem: str


def running_engines() -> list[EngineSnapshot]:
    """Request a snapshot from all engines of this user, in any process.

    Each engine listens on a Unix socket in ``$XDG_RUNTIME_DIR/daqiri`` (without that variable:
    ``/tmp/daqiri-<uid>``). Sockets of processes that were killed are removed.

    Returns
    -------
    list of EngineSnapshot
        Sorted by process, then by the order in which they were opened. Engines that do not answer
        are left out; see `ask_engines`.

    Raises
    ------
    PermissionError
        If the directory of the sockets is a link, belongs to another user, or can be written by
        others.
    """
    return [answer for answer in ask_engines() if isinstance(answer, EngineSnapshot)]


def ask_engines() -> list[EngineSnapshot | UnreadableEngine]:
    """Request snapshots as `running_engines` does, and include engines that do not answer.

    The timeout is 2 s per engine.

    Returns
    -------
    list of EngineSnapshot or UnreadableEngine
        Sorted by process, then by the order in which they were opened.

    Raises
    ------
    PermissionError
        As for `running_engines`.
    """
    found = []
    for path in runtime_entries(runtime_directory()):
        pid, _, number = path.name.partition(".")
        if all(part.isascii() and part.isdecimal() for part in (pid, number)):
            found.append((int(pid), int(number), path))
    if not found:
        return []
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        answers = list(pool.map(lambda entry: _ask(*entry), sorted(found)))
    return [answer for answer in answers if answer is not None]


def runtime_directory() -> Path:
    """Return the directory of the sockets of this user's processes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime) / "daqiri"
    return Path(f"/tmp/daqiri-{os.geteuid()}")


def runtime_entries(directory: Path) -> list[Path]:
    """Return the entries of the directory, if no other user can have created them.

    Raises
    ------
    PermissionError
        If one can.
    """
    try:
        state = directory.lstat()
    except FileNotFoundError:
        return []
    if not stat.S_ISDIR(state.st_mode):
        problem = "is not a directory"
    elif state.st_uid != os.geteuid():
        problem = f"belongs to user {state.st_uid}"
    elif state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"can be written by others (mode {stat.S_IMODE(state.st_mode):o})"
    else:
        return list(directory.iterdir())
    raise PermissionError(
        f"{directory} {problem}, so engines do not use it and cannot be reached there. Have it "
        "removed, or set XDG_RUNTIME_DIR to your own directory, for the engines too."
    )


def _ask(pid: int, number: int, path: Path) -> EngineSnapshot | UnreadableEngine | None:
    """Return the answer of one engine; None if there is no engine."""
    try:
        state = path.lstat()
        if not stat.S_ISSOCK(state.st_mode) or state.st_uid != os.geteuid():
            return None
        text = answer_of(path)
    except ConnectionRefusedError:
        if not is_running(pid):
            with suppress(OSError):
                path.unlink()
        return None
    except TimeoutError:
        return UnreadableEngine(pid, number, f"does not answer within {_TIMEOUT_S:.0f} s")
    except OSError as error:
        problem = f"cannot be asked: {error.strerror or error}"
    else:
        if len(text) > _LONGEST_ANSWER:
            problem = f"answers with more than {_LONGEST_ANSWER >> 20} MiB"
        else:
            try:
                return EngineSnapshot.from_json(text)
            except ValueError as error:
                problem = f"has an answer that is {error}"
    # If the socket no longer exists, the engine was closed in the meantime.
    return UnreadableEngine(pid, number, problem) if os.path.lexists(path) else None


def answer_of(path: Path) -> bytes:
    """Return the answer of a socket, up to its end or until it is too long.

    Raises
    ------
    OSError
        If it does not answer within 2 s.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    text = bytearray()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_TIMEOUT_S)
        _connect(client, path, deadline)
        while len(text) <= _LONGEST_ANSWER:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            client.settimeout(left)
            part = client.recv(1 << 16)
            if not part:
                break
            text += part
    return bytes(text)


def _connect(client: socket.socket, path: Path, deadline: float) -> None:
    while True:
        try:
            return client.connect(str(path))
        except BlockingIOError:  # other clients are waiting
            if time.monotonic() > deadline:
                raise TimeoutError from None
            time.sleep(_IN_LINE_S)


def is_running(pid: int) -> bool:
    """Whether there is a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
