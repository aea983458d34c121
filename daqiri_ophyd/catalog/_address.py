"""Address of the server of a catalog directory, stored in the directory for other processes."""

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

__all__ = [
    "DATABASE",
    "LOCK",
    "CatalogError",
    "ServerAddress",
    "closed_to_others",
    "find_server",
    "is_locked",
    "is_served",
    "lock_directory",
    "write_private",
]

DATABASE = "catalog.db"
LOCK = "lock"
_NAME = "server.json"
# On a busy host, importing Tiled takes long.
_PATIENCE_S = 90.0


class CatalogError(RuntimeError):
    """A catalog cannot be opened or used."""


@dataclass(frozen=True)
class ServerAddress:
    """Address and key of the server of a catalog directory.

    Parameters
    ----------
    api_key : str
        API key; created once for each directory.
    port : int
        Port on 127.0.0.1; 0: not chosen yet.
    process : int
        Process whose server answers at the port; 0: none.
    readable : tuple of str
        Directories of captures that the server reads.
    stores : tuple of str
        Addresses of object stores that it reads, now and in later processes.
    """

    api_key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    port: int = 0
    process: int = 0
    readable: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()

    @property
    def uri(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}/api/v1"

    def write(self, directory: Path) -> None:
        """Store it in a catalog directory, in a file that only its owner can read.

        Raises
        ------
        CatalogError
            If the directory cannot be written.
        """
        write_private(directory / _NAME, json.dumps(asdict(self)))

    @classmethod
    def read(cls, directory: Path) -> "ServerAddress":
        """Return the address stored in a catalog directory, or an empty one with a new key."""
        try:
            kept = json.loads((directory / _NAME).read_text("utf-8"))
            # Earlier versions had no stores.
            lists = {"readable": kept["readable"], "stores": kept.get("stores", ())}
            return cls(**{**kept, **{name: tuple(found) for name, found in lists.items()}})
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CatalogError(
                f"{directory / _NAME} cannot be used ({error!r}). Remove it; it is created again."
            ) from error


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; a link in its place is replaced, not followed.

    Raises
    ------
    CatalogError
        If it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        raise CatalogError(f"{temporary} cannot be written ({error.strerror}).") from error


def lock_directory(directory: Path) -> IO[str] | None:
    """Lock a catalog directory for this process; None if another process has it open.

    Raises
    ------
    CatalogError
        If the directory cannot be written.
    """
    try:
        (directory / "data").mkdir(parents=True, exist_ok=True)
        lock = (directory / LOCK).open("a")
    except OSError as error:
        raise CatalogError(
            f"The catalog directory {directory} cannot be written ({error.strerror}). "
            "Choose another, or connect to a server: Catalog.connect(uri). To only read it: "
            "Catalog.open(directory, create=False)."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def find_server(directory: Path) -> ServerAddress | None:
    """Return the server of a directory that another process has open; None if it has closed it.

    Raises
    ------
    CatalogError
        If the server does not start within 90 s.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while is_locked(directory):
        address = ServerAddress.read(directory)
        if address.process:
            return address
        if time.monotonic() > deadline:
            raise CatalogError(
                f"Another process has opened the catalog in {directory}, but its server has not "
                f"started within {_PATIENCE_S:.0f} s. See {directory / 'server.log'}."
            )
        time.sleep(0.05)
    return None


def is_served(directory: Path, address: ServerAddress) -> bool:
    """Whether the server of a catalog directory is the one at this address."""
    return is_locked(directory) and ServerAddress.read(directory) == address


def is_locked(directory: Path) -> bool:
    """Whether a process has a catalog directory open."""
    with closed_to_others(directory) as is_closed:
        return not is_closed


@contextlib.contextmanager
def closed_to_others(directory: Path) -> Iterator[bool]:
    """Keep other processes from opening a catalog directory; False: one has it open already."""
    with contextlib.ExitStack() as opened:
        is_closed = True
        with contextlib.suppress(FileNotFoundError):
            lock = opened.enter_context((directory / LOCK).open())
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                is_closed = False
        yield is_closed
