"""Objects that a shipper has uploaded, read in ranges or as local copies."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import Sidecar, sidecar_of, sidecar_path

from ._mark import read_mark
from ._store import StoreError, open_store, reason_of, split_address

__all__ = ["COPIES", "ObjectReader", "StoredObject", "fetch_ahead", "fetch_all"]

# Shorter reads, of an HDF5 file's metadata, get blocks that are kept.
_BLOCK_BYTES = 32 << 10
_KEPT_BLOCKS = 128
_COPY_BYTES = 8 << 20
_AT_ONCE = 64  # copies
_INDEX = ".npy"


@lru_cache(16)
def _bucket(address: str) -> Any:
    return open_store(address, retry_config={"max_retries": 3})


class StoredObject:
    """A file in an object store, whose metadata say that it is whole.

    Parameters
    ----------
    uri : str
        Its address: that of a file of packets or frames, or of an index.
    recorded : Path, optional
        The file on this host, which may be gone. Its metadata file and its mark, if they are still
        there, spare a request.

    Raises
    ------
    ValueError
        If it is no address of an object store.
    """

    def __init__(self, uri: str, recorded: Path | None = None) -> None:
        self.uri = uri
        self._recorded = recorded
        self.bucket, self.key = split_address(uri)
        self.name = self.key.rpartition("/")[2]
        self.suffix = Path(self.name).suffix

    def __repr__(self) -> str:
        return f"<StoredObject {self.uri}>"

    def __str__(self) -> str:
        return self.uri

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredObject) and other.uri == self.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The file's metadata, with ``object``, and ``index`` of a raw file: ``bytes``, ``sha256``.

        Raises
        ------
        FileNotFoundError
            If there are none: the file is not in the store, or not whole.
        StoreError
            If the store cannot be read, or they are damaged.
        """
        if self._recorded is not None and (mark := read_mark(self._recorded)) is not None:
            with suppress(OSError, ValueError, TypeError):
                found = json.loads(sidecar_path(self._recorded).read_bytes())
                return {**found, "object": {"bytes": mark.bytes, "sha256": mark.sha256}}
        key = f"{self.key.removesuffix(_INDEX)}.json"
        content = self._request(lambda store: bytes(store.get(key).bytes()))
        try:
            found = json.loads(content)
            if not {"sha256", "bytes"} <= found["object"].keys():
                raise ValueError(f"its object is {found['object']!r}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(
                f"{self.bucket}/{key} is not the metadata of an uploaded file: {error!r}"
            ) from error
        return dict(found)

    @property
    def sidecar(self) -> Sidecar:
        """The same metadata, checked.

        Raises
        ------
        SidecarError
            If they are not valid.
        FileNotFoundError, StoreError
            As `metadata`.
        """
        return sidecar_of(self.metadata, f"{self.uri.removesuffix(_INDEX)}.json")

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self._facts["bytes"])

    @property
    def sha256(self) -> str:
        """Its SHA-256, in hexadecimal."""
        return str(self._facts["sha256"])

    @property
    def _facts(self) -> dict[str, Any]:
        part = "index" if self.name.endswith(f".raw{_INDEX}") else "object"
        try:
            return dict(self.metadata[part])
        except (KeyError, TypeError, ValueError):
            raise FileNotFoundError(f"{self.uri} is not in the store") from None

    @property
    def index(self) -> StoredObject:
        """The index of a raw file."""
        return StoredObject(self.uri + _INDEX)

    def exists(self) -> bool:
        """Whether it is in the store, and whole.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        try:
            return bool(self._facts)
        except FileNotFoundError:
            return False

    def open(self) -> ObjectReader:
        """Open it for reading in ranges.

        Raises
        ------
        FileNotFoundError, StoreError
            As `metadata`.
        """
        return ObjectReader(self)

    def read(self, start: int, length: int) -> bytes:
        """Return a range of its bytes."""
        return self._request(
            lambda store: bytes(store.get_range(self.key, start=start, length=length))
        )

    def fetch(self) -> Path:
        """Return a local copy, which has its checksum; its metadata file is beside it.

        A raw file has its index beside it, too. Later copies may replace it, see `Copies`;
        `fetch_all` is for files that are needed at the same time.

        Raises
        ------
        FileNotFoundError, StoreError
            As `metadata`; also if the object does not have its checksum.
        OSError
            If the copy cannot be written.
        """
        return COPIES.of(self)

    @cached_property
    def copy(self) -> Path:
        """Path of the local copy, which may not be there.

        Raises
        ------
        FileNotFoundError, StoreError
            As `metadata`.
        """
        # Files with equal packets have their own metadata and index; and what a store tells must
        # not become part of a path.
        told = json.dumps([self.uri, self.metadata], sort_keys=True).encode()
        return COPIES.folder / hashlib.sha256(told).hexdigest() / self.name

    def copy_to(self, path: Path) -> None:
        """Write it to a file, and compare its checksum; the file is left out after an error."""
        digest = hashlib.sha256()
        try:
            with path.open("wb") as file:
                for start in range(0, self.size, _COPY_BYTES):
                    block = self.read(start, min(_COPY_BYTES, self.size - start))
                    digest.update(block)
                    file.write(block)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            reason = f"{self.uri} cannot be copied: {error.strerror}"
            raise OSError(error.errno, reason, str(path.parent)) from error
        if digest.hexdigest() != self.sha256:
            raise StoreError(
                f"{self.uri} is damaged: its SHA-256 is {digest.hexdigest()}, and was "
                f"{self.sha256} when it was uploaded"
            )

    def _request(self, ask: Any) -> Any:
        try:
            return ask(_bucket(self.bucket))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{self.uri} is not in the store: {reason_of(error)}"
            ) from error
        except StoreError:
            raise
        except Exception as error:
            # Credentials may have expired.
            _bucket.cache_clear()
            raise StoreError(f"{self.uri} cannot be read: {reason_of(error)}") from error


def fetch_all(files: Iterable[Path | StoredObject]) -> list[Path]:
    """Return the paths of files, or of local copies of objects, which are there at the same time.

    Parameters
    ----------
    files : iterable of Path or StoredObject
        The files.

    Raises
    ------
    FileNotFoundError, StoreError, OSError
        As `StoredObject.fetch`.
    """
    files = list(files)
    kept = {file.copy.parent for file in files if isinstance(file, StoredObject)}
    return [COPIES.of(f, kept) if isinstance(f, StoredObject) else f for f in files]


def fetch_ahead(file: object) -> None:
    """Fetch an object on a thread, for a `fetch` that follows, which tells what fails."""

    def fetch(stored: StoredObject) -> None:
        with suppress(OSError, StoreError):
            stored.fetch()

    if isinstance(file, StoredObject):
        threading.Thread(target=fetch, args=(file,), name="fetch-ahead", daemon=True).start()


class ObjectReader(io.RawIOBase):
    """An object as a file: reads are requests for ranges; short ones are kept.

    Parameters
    ----------
    stored : StoredObject
        The object.
    """

    def __init__(self, stored: StoredObject) -> None:
        from fsspec.caching import BlockCache

        self._object = stored
        self._size = stored.size
        self._at = 0
        self._blocks = BlockCache(
            _BLOCK_BYTES, lambda a, b: stored.read(a, b - a), self._size, _KEPT_BLOCKS
        )

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def seekable(self) -> bool:
        """Whether it has positions: yes."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; return the number of bytes."""
        length = max(0, min(memoryview(buffer).nbytes, self._size - self._at))
        if not length:
            return 0
        if length < _BLOCK_BYTES:
            found = self._blocks._fetch(self._at, self._at + length)  # noqa: SLF001 - its interface
        else:
            found = self._object.read(self._at, length)
        memoryview(buffer).cast("B")[:length] = found
        self._at += length
        return length


class Copies:
    """Local copies of objects, in a folder of the user; the oldest are removed for new ones.

    The folder is ``daqiri-ophyd/objects`` in ``XDG_CACHE_HOME`` (default ``~/.cache``). A copy is
    in a folder named after its address and its metadata, so that processes share it.

    Parameters
    ----------
    most_bytes : int
        Bytes that are kept; what is asked for is kept in any case.
    """

    def __init__(self, most_bytes: int = 16 << 30) -> None:
        self.most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget which copies are being fetched."""
        self._locks = [threading.Lock() for _ in range(_AT_ONCE)]

    @property
    def folder(self) -> Path:
        """Where they are."""
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(home).expanduser() / "daqiri-ophyd" / "objects"

    def of(self, stored: StoredObject, kept: Collection[Path] = ()) -> Path:
        """Return the copy of an object; fetch it if there is none, and keep these folders."""
        path = stored.copy
        folder = path.parent
        with self._locks[int(folder.name, 16) % len(self._locks)]:
            try:
                # A crash of the host may have cut it off.
                if path.stat().st_size == stored.size:
                    os.utime(path)
                    return path
            except FileNotFoundError:
                pass
            folder.mkdir(parents=True, exist_ok=True)
            self._make_room(stored.size, {folder, *kept})
            with tempfile.TemporaryDirectory(dir=folder, prefix=".") as part:
                stored.copy_to(Path(part) / stored.name)
                text = json.dumps(stored.metadata, indent=2)
                (Path(part) / f"{stored.name}.json").write_text(text)
                if stored.suffix == ".raw":
                    stored.index.copy_to(Path(part) / stored.index.name)
                # The file last: it is not found without what is beside it.
                for found in sorted(
                    Path(part).iterdir(), key=lambda each: each.name == stored.name
                ):
                    found.replace(folder / found.name)
        return path

    def _make_room(self, size: int, kept: Collection[Path]) -> None:
        there = []
        for folder in self.folder.iterdir():
            # Also parts that a killed process has left.
            for file in folder.rglob("*"):
                with suppress(FileNotFoundError):  # another process makes room, too
                    found = file.stat()
                    there.append((found.st_mtime, found.st_size, folder))
        total = size + sum(each for _, each, _ in there)
        for _, each, folder in sorted(there):
            if total <= self.most_bytes:
                return
            if folder not in kept:
                # Whoever has it open goes on reading it.
                shutil.rmtree(folder, ignore_errors=True)
                total -= each


COPIES = Copies()
"""Copies of this process."""

os.register_at_fork(after_in_child=lambda: (_bucket.cache_clear(), COPIES.forget()))
