"""Uploads of single files, in parts, with their checksum and metadata."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import sidecar_path

from ._mark import Mark, write_mark
from ._shipment import Shipment, remove_local
from ._store import StoreError

__all__ = ["StoreFailedError", "Uploads"]

# Larger files are sent in parts, of which a store accepts 10,000.
_WHOLE_BYTES = 16 << 20
_PART_BYTES, _MOST_PARTS = 8 << 20, 9_000
# Of a file; its bytes are in memory until they are sent.
_PARTS_AT_ONCE, _MOST_BYTES = 4, 96 << 20


class StoreFailedError(Exception):
    """The store has not accepted something; another file may not fare better."""


class Uploads:
    """Uploads files to a bucket, each on the thread that asks for it.

    Parameters
    ----------
    store : obstore.store.ObjectStore
        The bucket.
    at_once : int
        Largest number of threads that ask.
    """

    def __init__(self, store: Any, at_once: int) -> None:
        self.store = store
        self._hashing = ThreadPoolExecutor(at_once, "ship-hash")
        self._ended = False

    def end(self) -> None:
        """End uploads in progress, at their next part."""
        self._ended = True
        self._hashing.shutdown(wait=False)

    def upload(self, shipment: Shipment, file: Path, sent: Callable[[int], None]) -> None:
        """Upload a file with its metadata, mark it, and remove it unless it is kept.

        A file that is in the store already is marked.

        Parameters
        ----------
        shipment : Shipment
            Its order.
        file : Path
            The file.
        sent : callable
            Called with the number of bytes that were read.

        Raises
        ------
        StoreFailedError
            If the store has not accepted something.
        StoreError
            If an object with its name has other contents.
        OSError, ValueError
            If the file cannot be read, or has changed meanwhile.
        """
        key = shipment.key(file)
        with _opened(sidecar_path(file)) as opened:
            metadata = json.loads(opened.read())
        before = _version(file)
        mark = self._mark_of_committed(shipment, file)
        if mark is None:
            index = file.with_name(f"{file.name}.npy")
            if index.is_file():
                size, digest, _ = self._put_file(f"{key}.npy", index, lambda _: None)
                metadata["index"] = {"bytes": size, "sha256": digest}
            size, digest, e_tag = self._put_file(key, file, sent)
            metadata["object"] = {"bytes": size, "sha256": digest}
            _require_version(file, before)
            with of_store():
                self.store.put(
                    f"{key}.json", json.dumps(metadata, indent=2).encode(), use_multipart=False
                )
            mark = Mark(shipment.uri(file), size, digest, e_tag, time.time_ns())
        # Else its loss would cost a question to the store.
        write_mark(file, mark, shipment.spare, durable=not shipment.keep)
        if not shipment.keep:
            _require_version(file, before)
            remove_local(file)
            shipment.keep_spare()

    def _mark_of_committed(self, shipment: Shipment, file: Path) -> Mark | None:
        """Return the mark of a file that is in the store already; None: it is not."""
        key = shipment.key(file)
        with of_store():
            try:
                content = bytes(self.store.get(f"{key}.json").bytes())
                head = self.store.head(key)
            except FileNotFoundError:
                return None
        try:
            told = json.loads(content)["object"]
        except (ValueError, TypeError, KeyError):
            told = None
        digest, size = _sha256(file)
        if told != {"bytes": size, "sha256": digest} or head["size"] != size:
            raise StoreError(
                f"{shipment.uri(file)} exists with other contents, and is not replaced; "
                f"{file} stays. Ship it to another prefix: daqiri-ophyd catalog ship --to ADDRESS"
            )
        return Mark(shipment.uri(file), size, digest, str(head["e_tag"]), time.time_ns())

    def _put_file(self, key: str, file: Path, sent: Callable[[int], None]) -> tuple[int, str, str]:
        """Upload a file; return its bytes, its SHA-256 and what the store calls this version."""
        digest, size = _Digest(self._hashing), 0
        with _opened(file) as opened:
            length = os.fstat(opened.fileno()).st_size
            if length <= _WHOLE_BYTES:
                content = opened.read()
                digest.update(content)
                with of_store():
                    put = self.store.put(key, content, use_multipart=False)
                return len(content), digest.text, str(put["e_tag"])
            part = max(_PART_BYTES, -(-length // _MOST_PARTS))
            unread: list[OSError] = []

            def read() -> bytes:
                try:
                    return opened.read(part)
                except OSError as error:
                    # The store would report it as its own failure.
                    unread.append(error)
                    raise

            def parts() -> Iterator[bytes]:
                nonlocal size
                while block := read():
                    if self._ended:
                        raise InterruptedError(f"the upload of {file} is ended")
                    digest.update(block)
                    size += len(block)
                    sent(size)
                    yield block

            # Parts of very large files are large.
            at_once = max(1, min(_PARTS_AT_ONCE, _MOST_BYTES // part))
            try:
                with of_store():
                    put = self.store.put(key, parts(), chunk_size=part, max_concurrency=at_once)
            except StoreFailedError:
                if unread:
                    raise OSError(f"{file} cannot be read: {unread[0]}") from None
                raise
        return size, digest.text, str(put["e_tag"])


class _Digest:
    """SHA-256 of what is uploaded, computed beside the upload, whose client computes its own."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._digest = hashlib.sha256()
        self._last: Future[None] | None = None

    def update(self, block: bytes) -> None:
        """Add a block; returns at once."""
        before = self._last

        def add() -> None:
            if before is not None:
                before.result()  # it began before this one
            self._digest.update(block)

        self._last = self._pool.submit(add)

    @property
    def text(self) -> str:
        """The digest of all blocks, in hexadecimal."""
        if self._last is not None:
            self._last.result()
        return self._digest.hexdigest()


@contextmanager
def of_store() -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # obstore's panics are no exceptions
        raise StoreFailedError from error


def _sha256(file: Path) -> tuple[str, int]:
    with _opened(file) as opened:
        digest = hashlib.file_digest(opened, "sha256")
        return digest.hexdigest(), opened.tell()


def _opened(file: Path) -> FileIO:
    """Open a file as a recorder writes it; a link could lead anywhere, a pipe would never end."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{file} is no regular file")
    return FileIO(descriptor)


def _version(file: Path) -> tuple[int, int, int]:
    found = file.lstat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _require_version(file: Path, before: tuple[int, int, int]) -> None:
    if _version(file) != before:
        raise OSError(f"{file} was changed while it was uploaded, and stays")
