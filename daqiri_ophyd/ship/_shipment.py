"""The order to upload the files of a recording, in their folder until all are in the store."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from daqiri_ophyd.documents import MASTER, is_written

from ._mark import SUFFIX as MARK
from ._mark import is_shipped, mark_of, write_in_place
from ._store import StoreError, split_address

__all__ = ["SUFFIX", "Shipment", "order_all", "pending_shipments", "remove_local"]

SUFFIX = ".shipment"
_RECORDED = re.compile(rf"(.+)_\d{{6,}}(\.pcap|\.raw|\.h5|{MASTER}\.h5)")
_NUMBER = "{:06d}"
_SPARE_BYTES = 4096


class Shipment:
    """Files of one recorder, or of those of several queues, that are uploaded to one address.

    The order is the file ``<prefix>.shipment``, JSON with ``ship_to``, the address of the folder in
    the store, ``keep``, and ``files``, templates of their names: other recorders may write to the
    same folder. It exists until all files are in the store. Whoever uploads the files holds its
    lock; if that process is killed, another continues.

    Parameters
    ----------
    path : Path
        The order.
    ship_to : str
        Address of the folder in the store.
    keep : bool
        Keep local files. Without it, a file of packets or frames, and its index, are removed once
        they are in the store; its metadata file and its mark stay.
    files : sequence of str
        Templates of the file names, such as ``port0_{:06d}.pcap``.
    lock : int
        Descriptor of the order, locked.
    """

    def __init__(
        self, path: Path, ship_to: str, keep: bool, files: Iterable[str], lock: int
    ) -> None:
        self.path = path
        self.ship_to = ship_to
        self.keep = keep
        self.files = tuple(files)
        self.bucket, self._prefix = split_address(ship_to)
        self._lock = lock
        self.spare = path.with_name(f".{path.name}.spare")
        """File that becomes a mark on a full disk, which only has room once a file may go."""
        self.keep_spare()
        names = (map(re.escape, template.split(_NUMBER)) for template in self.files)
        self._file_name = re.compile("|".join(r"\d{6,}".join(each) for each in names))
        self.ended = False
        """Whether no more files come."""
        self.added: set[Path] = set()
        self.left = 0
        """Files that were added and are not in the store."""
        _open.add(self)

    @classmethod
    def create(
        cls,
        folder: Path,
        prefix: str,
        ship_to: str,
        *,
        keep: bool,
        files: Iterable[str] | None = None,
    ) -> Shipment:
        """Write the order for files of a folder; default: ``<prefix>_000000`` and so on.

        Raises
        ------
        ValueError
            If `ship_to` is no address of an object store.
        StoreError
            If there is such an order already.
        OSError
            If it cannot be written.
        """
        split_address(ship_to)
        if files is None:
            files = [f"{prefix}_{_NUMBER}.{suffix}" for suffix in ("pcap", "raw", "h5")]
        order = {"ship_to": ship_to, "keep": keep, "files": list(files)}
        path = folder / f"{prefix}{SUFFIX}"
        # Two processes may begin at the same time.
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.unlink(missing_ok=True)
        lock = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            # Locked and whole before others see it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, json.dumps(order).encode())
            os.fsync(lock)
            os.link(part, path)
        except FileExistsError:
            os.close(lock)
            raise StoreError(
                f"{path} exists: files of an earlier recording are not all in the store. Use "
                "another folder, or upload them first: daqiri-ophyd catalog ship"
            ) from None
        except BaseException:
            os.close(lock)
            raise
        finally:
            part.unlink()
        return cls(path, ship_to.rstrip("/"), keep, order["files"], lock)

    @classmethod
    def take(cls, path: Path) -> Shipment | None:
        """Continue an order that another process left; None: it is carried out, or done.

        Raises
        ------
        StoreError
            If it is damaged.
        OSError
            If it cannot be read.
        """
        try:
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink == 0:
                os.close(lock)
                return None
            size = os.fstat(lock).st_size
            order: dict[str, Any] = json.loads(os.read(lock, size))
            files = [str(template) for template in order["files"]]
            found = cls(path, str(order["ship_to"]), bool(order["keep"]), files, lock)
        except BlockingIOError:
            os.close(lock)
            return None
        except (ValueError, KeyError, TypeError) as error:
            os.close(lock)
            raise StoreError(
                f"{path} is damaged ({error!r}), as on a full disk. Remove it, and upload its "
                "files: daqiri-ophyd catalog ship --to ADDRESS"
            ) from error
        return found

    def uri(self, file: Path) -> str:
        """Return the address of the object of a file."""
        return f"{self.ship_to}/{file.name}"

    def key(self, file: Path) -> str:
        """Return the key of the object of a file in the bucket."""
        return f"{self._prefix}/{file.name}" if self._prefix else file.name

    def keep_spare(self) -> None:
        """Write the spare file, if it is missing and the disk has room."""
        if self.keep or self.spare.exists():
            return
        try:
            write_in_place(self.spare, bytes(_SPARE_BYTES))
        except OSError:
            with suppress(OSError):
                self.spare.unlink()

    def unshipped(self) -> Iterator[Path]:
        """Yield its complete files that were not added and are not in the store, by their names.

        Without `keep`, also those that are, and are still here: a process was killed before it
        removed them.
        """
        for file in self._found():
            if file in self.added or (self.keep and mark_of(file)):
                continue
            if self._is_complete(file):
                yield file

    def has(self, file: Path) -> bool:
        """Whether a file is one of its files, by its name."""
        return file.parent == self.path.parent and bool(self._file_name.fullmatch(file.name))

    def _found(self) -> list[Path]:
        with os.scandir(self.path.parent) as entries:
            names = sorted(e.name for e in entries if self._file_name.fullmatch(e.name))
        return [self.path.with_name(name) for name in names]

    @staticmethod
    def _is_complete(file: Path) -> bool:
        return file.with_name(f"{file.name}.json").is_file() and not is_written(file)

    @property
    def unmarked(self) -> list[Path]:
        """Files that are not in the store."""
        return [file for file in self._found() if not is_shipped(file)]

    @property
    def incomplete(self) -> list[Path]:
        """Files that a killed process has not completed; `daqiri-ophyd catalog recover` does."""
        return [file for file in self.unmarked if not self._is_complete(file)]

    def release(self, *, done: bool) -> None:
        """Unlock the order; remove it if all files are in the store."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        try:
            if done:
                self.spare.unlink(missing_ok=True)
                self.path.unlink(missing_ok=True)
        finally:
            # A child made by fork(2) may have the descriptor, too.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def forget(self) -> None:
        """Leave the order to the parent process, which shares the lock: close, do not unlock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_open: WeakSet[Shipment] = WeakSet()


def _forget() -> None:
    """Leave the orders to the parent process: a child that outlives it would keep their locks."""
    for shipment in list(_open):
        shipment.forget()


os.register_at_fork(after_in_child=_forget)


def remove_local(file: Path) -> None:
    """Remove a file that is in the store, and its index."""
    file.unlink(missing_ok=True)
    file.with_name(f"{file.name}.npy").unlink(missing_ok=True)


def pending_shipments(folder: Path) -> Iterator[Path]:
    """Yield orders below a folder that are not done."""
    for parent, names in _names_below(folder):
        for name in names:
            if name.endswith(SUFFIX):
                yield Path(parent) / name


def order_all(folder: Path, ship_to: str, *, keep: bool = True, root: Path | None = None) -> int:
    """Write orders for all complete files below a folder that are not in a store, one a folder.

    Orders of earlier processes for files of the same folders are replaced.

    Parameters
    ----------
    folder : Path
        The folder.
    ship_to : str
        Address of the store, for the files of `root`.
    keep : bool
        Keep local files.
    root : Path, optional
        Folder whose place in the store is `ship_to`. Default: `folder`.

    Returns
    -------
    int
        Number of orders.

    Raises
    ------
    ValueError
        If `ship_to` is no address of an object store.
    StoreError
        If another process uploads files of the folder.
    OSError
        If an order cannot be written.
    """
    split_address(ship_to)
    root, count = (folder if root is None else root).resolve(), 0
    for parent, names in _names_below(folder.resolve()):
        place, recorded = Path(parent), {}
        for name in names:
            found = _RECORDED.fullmatch(name)
            if found and f"{name}.json" in names and f"{name}{MARK}" not in names:
                recorded[f"{found[1]}_{_NUMBER}{found[2]}"] = found[1]
        if not recorded:
            continue
        below = place.relative_to(root).as_posix()
        address = ship_to.rstrip("/") + ("" if below == "." else f"/{below}")
        split_address(address)
        files = set(recorded).union(
            *(_take_away(place / name) for name in names if name.endswith(SUFFIX))
        )
        prefix = min(recorded.values())
        order = Shipment.create(place, prefix, address, keep=keep, files=sorted(files))
        order.release(done=False)
        count += 1
    return count


def _take_away(path: Path) -> tuple[str, ...]:
    """Remove an order that nobody carries out, if there is one; return its files."""
    if not path.exists():
        return ()
    found = Shipment.take(path)
    if found is None:
        raise StoreError(f"{path} is carried out by another process; wait for it, or end it.")
    found.release(done=True)
    return found.files


def _names_below(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield parent, sorted(names)
