"""The shippers of this user, in all processes."""

from __future__ import annotations

import atexit
import json
import os
import socket
import stat
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from weakref import WeakSet

from daqiri_ophyd.engine import answer_of, is_running, runtime_directory, runtime_entries

from ._state import ShipperState

__all__ = ["ShipperSnapshot", "register", "running_shippers"]

_SUFFIX = ".ship"
_WAITING = 8  # clients


@dataclass(frozen=True, slots=True)
class ShipperSnapshot:
    """State of a shipper of a process.

    Parameters
    ----------
    pid : int
        Id of the process.
    opened_ns : int
        When the shipper began, ns since the epoch.
    bucket : str
        Address of its store.
    state : ShipperState
        Its progress.
    """

    pid: int
    opened_ns: int
    bucket: str
    state: ShipperState


class _Published(Protocol):
    """A shipper, as others see it."""

    opened_ns: int
    bucket: str

    @property
    def is_closed(self) -> bool: ...
    @property
    def state(self) -> ShipperState: ...


_running: WeakSet[Any] = WeakSet()
_published: list[int] = []  # process that others can ask


def register(shipper: _Published) -> None:
    """Let other processes of this user see a shipper, as long as it is open.

    Processes that cannot make a socket are not seen.
    """
    _running.add(shipper)
    if _published != [os.getpid()]:
        _published[:] = [os.getpid()]
        _publish()


def _publish() -> None:
    """Answer those who ask for the shippers of this process, on a thread, until it ends."""
    directory = runtime_directory()
    path = directory / f"{os.getpid()}{_SUFFIX}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        runtime_entries(directory)
        path.unlink(missing_ok=True)  # of a killed process with this number
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_WAITING)
    except OSError:
        listener.close()
        return

    def run() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            found = [
                {"opened_ns": s.opened_ns, "bucket": s.bucket, "state": asdict(s.state)}
                for s in list(_running)
                if not s.is_closed
            ]
            with client, suppress(OSError):
                client.settimeout(1.0)
                client.sendall(json.dumps(found).encode())

    threading.Thread(target=run, name="ship-state", daemon=True).start()
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            path.unlink(missing_ok=True)

    atexit.register(remove)
    # A child that outlives this process would keep it open, and answer nobody.
    os.register_at_fork(after_in_child=listener.close)


def running_shippers() -> list[ShipperSnapshot]:
    """Return the shippers of all processes of this user, by process.

    Processes that do not answer within 2 s are left out.

    Raises
    ------
    PermissionError
        As `daqiri_ophyd.engine.running_engines`.
    """
    found: list[ShipperSnapshot] = []
    for path in sorted(runtime_entries(runtime_directory())):
        number = path.name.removesuffix(_SUFFIX)
        if path.suffix != _SUFFIX or not (number.isascii() and number.isdecimal()):
            continue
        try:
            if not stat.S_ISSOCK(path.lstat().st_mode):
                continue
            answer: Any = json.loads(answer_of(path))
            found += [
                ShipperSnapshot(
                    int(number), each["opened_ns"], each["bucket"], ShipperState(**each["state"])
                )
                for each in answer
            ]
        except ConnectionRefusedError:
            if not is_running(int(number)):
                path.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return found
