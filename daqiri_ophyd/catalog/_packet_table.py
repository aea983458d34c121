"""Packets of capture files as a table, for Tiled."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from socket import AF_INET6, inet_ntop
from typing import Any

import numpy as np
import pandas as pd
from fastapi import HTTPException
from numpy.typing import NDArray
from tiled.adapters.core import Adapter
from tiled.structures.core import StructureFamily
from tiled.structures.table import TableStructure

from daqiri_ophyd.documents import read_sidecar, sidecar_path
from daqiri_ophyd.engine import DaqiriError, PcapFile
from daqiri_ophyd.ship import StoredObject, StoreError

from ._confine import UnreadableFileError
from ._stored import Stored

__all__ = ["ROWS", "PacketTableAdapter", "answered"]

ROWS = 100_000
"""Largest number of packets in a partition."""

# Files share a partition up to this size: each has to be indexed for it.
_SHARED_BYTES = 64 << 20
_MOST_AT_ONCE = 10  # partitions, about 130 MB
_MOST_FILES = 4
_IDLE_S = 10.0

_Fields = dict[str, NDArray[Any]]
_Columns = dict[str, NDArray[Any] | pd.Series]

# Columns with the same values as in `Packets.to_columns`.
_NUMBERS = {
    "length": np.uint32,
    "wire_length": np.uint32,
    "eth_type": np.uint16,
    "vlan": np.uint16,
    "ip_version": np.uint8,
    "ip_protocol": np.uint8,
    "ip_ttl": np.uint8,
    "src_port": np.uint16,
    "dst_port": np.uint16,
    "tcp_seq": np.uint32,
    "tcp_flags": np.uint16,
    "payload_length": np.uint32,
}
_ADDRESSES = {
    "eth_src": ("eth_src",),
    "eth_dst": ("eth_dst",),
    "src": ("ip_version", "ipv4_src", "ipv6_src"),
    "dst": ("ip_version", "ipv4_dst", "ipv6_dst"),
}
_PLACE = {"file": np.uint32, "packet": np.uint32, "time": "datetime64[ns, UTC]"}
_PCAP_COLUMNS: dict[str, Any] = {
    **_PLACE,
    "length": np.uint32,
    "wire_length": np.uint32,
    **dict.fromkeys(("src", "dst"), "string[pyarrow]"),
    "src_port": np.uint16,
    "dst_port": np.uint16,
    **dict.fromkeys(("eth_src", "eth_dst"), "string[pyarrow]"),
    **_NUMBERS,
}
_RAW_COLUMNS: dict[str, Any] = {
    **_PLACE,
    "length": np.uint32,
    "flow": np.uint32,
    "offset": np.uint64,
}


class PacketTableAdapter(Adapter[TableStructure]):
    """The packets of capture files as a table: one row per packet, partitions of at most `ROWS`.

    Small files share a partition, so that a client does not need a request for each of them. A
    partition is created only from the headers of its packets, once their files are indexed.

    ========================== ===================================================================
    file, packet               number of the file in the stream, of the packet in the file
    time                       UTC, ns
    length                     bytes in the file
    flow                       id of the flow; raw captures only
    wire_length                bytes on the wire
    src, dst                   IP addresses as text; empty: not an IP packet
    src_port, dst_port         UDP or TCP ports
    eth_src, eth_dst           Ethernet addresses as text
    eth_type, vlan, ...        as in `daqiri_ophyd.engine.Packets.to_columns`
    ========================== ===================================================================

    Raw captures have no headers: their columns are ``file``, ``packet``, ``time`` and those of the
    index, ``length``, ``flow`` and ``offset``.

    Parameters
    ----------
    files : sequence of Path or StoredObject
        Files of one capture, in order.

    Raises
    ------
    HTTPException
        If a file cannot be read.
    """

    structure_family = StructureFamily.table

    def __init__(self, files: Sequence[Stored]) -> None:
        with answered():
            self._parts = _partitions(files)
        self._raw = any(file.suffix == ".raw" for file in files)
        self._dtypes = _RAW_COLUMNS if self._raw else _PCAP_COLUMNS
        # A table without partitions could not be read.
        structure = TableStructure.from_pandas(self._frame({}))
        structure.npartitions = max(1, len(self._parts))
        super().__init__(structure)

    def read(self, fields: Sequence[str] | None = None) -> pd.DataFrame:
        """Return all packets.

        Parameters
        ----------
        fields : sequence of str, optional
            Columns. Default: all.

        Raises
        ------
        HTTPException
            If there are too many for one response.
        """
        parts = self.structure().npartitions
        if parts > _MOST_AT_ONCE:
            raise HTTPException(
                400,
                f"The packets are in {parts} partitions of up to {ROWS} packets; at most "
                f"{_MOST_AT_ONCE} are sent at once. Request them by /table/partition, as the "
                "Python client does.",
            )
        frames = [self.read_partition(part, fields) for part in range(parts)]
        return pd.concat(frames, ignore_index=True)

    def read_partition(self, partition: int, fields: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the packets of one partition.

        Parameters
        ----------
        partition : int
            Number of the partition.
        fields : sequence of str, optional
            Columns. Default: all.

        Raises
        ------
        IndexError
            If there is no such partition.
        KeyError
            If there is no such column.
        HTTPException
            If the file cannot be read.
        """
        wanted = list(self._dtypes if fields is None else fields)
        for name in wanted:
            if name not in self._dtypes:
                raise KeyError(name)
        if not self._parts and partition == 0:
            return self._frame({}, wanted)
        with answered():
            found = [
                _numbered(part, _raw_fields(part) if self._raw else _pcap_fields(part, wanted))
                for part in self._parts[partition]
            ]
        whole = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
        return self._frame(_columns(whole, wanted), wanted)

    def _frame(self, made: _Columns, wanted: Sequence[str] | None = None) -> pd.DataFrame:
        columns = {
            name: pd.Series(made.get(name, []), dtype=self._dtypes[name])
            for name in (self._dtypes if wanted is None else wanted)
        }
        return pd.DataFrame(columns)


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Report to the client why a file cannot be read, instead of an internal error."""
    try:
        yield
    except UnreadableFileError as error:
        raise HTTPException(403, f"This server does not serve this file: {error}") from error
    except StoreError as error:
        raise HTTPException(424, str(error)) from error
    except (DaqiriError, OSError, ValueError) as error:
        raise HTTPException(422, str(error)) from error


@dataclass(frozen=True, slots=True)
class _Part:
    """Packets of one file in a partition."""

    number: int  # of the file
    path: Stored
    packets: slice


def _partitions(files: Sequence[Stored]) -> list[list[_Part]]:
    """Return the packets of each partition."""
    partitions: list[list[_Part]] = []
    rows = size = 0
    for number, path in enumerate(files):
        if isinstance(path, StoredObject):
            count, file_bytes = _extent(path)
        else:
            count, file_bytes = _extent(path, *_identity_of_content(path))
        for start in range(0, count, ROWS):
            more = min(ROWS, count - start)
            # The last one goes to the end of the file, independent of its metadata.
            stop = start + ROWS if start + ROWS < count else None
            if not partitions or rows + more > ROWS or size + file_bytes > _SHARED_BYTES:
                partitions.append([])
                rows = size = 0
            partitions[-1].append(_Part(number, path, slice(start, stop)))
            rows += more
            size += file_bytes
    return partitions


def _identity_of_content(path: Path) -> tuple[int, int, int]:
    try:
        return _identity(sidecar_path(path))
    except FileNotFoundError:
        return _identity(path)


@functools.lru_cache(maxsize=65_536)  # an adapter is created for each request
def _extent(path: Stored, *_identity: int) -> tuple[int, int]:
    """Return the packets of a file, and their bytes."""
    if isinstance(path, StoredObject):
        return path.sidecar.packets, path.sidecar.bytes
    sidecar = read_sidecar(path)
    if sidecar is not None:
        return sidecar.packets, sidecar.bytes
    packets = len(_raw_index(path) if path.suffix == ".raw" else _files.get(path))
    return packets, path.stat().st_size


def _raw_index(path: Stored) -> NDArray[Any]:
    if isinstance(path, StoredObject):
        return np.load(path.index.fetch(), mmap_mode="r")
    return np.load(path.with_name(path.name + ".npy"), mmap_mode="r")


def _identity(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


class _IndexedFiles:
    """The files that are being read; a file that was not read for a while is unmapped.

    Partitions of a file are read one after the other. A removed file that stays mapped still
    occupies space on the disk.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[tuple[Path, int, int, int], tuple[float, PcapFile]] = {}

    def get(self, path: Path) -> PcapFile:
        """Return an indexed file."""
        key = (path, *_identity(path))
        with self._lock:
            _, file = self._files.get(key, (0.0, None))
        if file is None:
            file = PcapFile(path)  # not in the lock: a large file takes seconds
        with self._lock:
            waiting = bool(self._files)
            self._files.pop(key, None)
            self._files[key] = time.monotonic(), file
            for oldest in list(self._files)[:-_MOST_FILES]:
                del self._files[oldest]
        if not waiting:
            self._release_later()
        return file

    def _release_later(self) -> None:
        timer = threading.Timer(_IDLE_S, self._release)
        timer.daemon = True
        timer.start()

    def _release(self) -> None:
        before = time.monotonic() - _IDLE_S
        with self._lock:
            self._files = {key: kept for key, kept in self._files.items() if kept[0] > before}
            waiting = bool(self._files)
        if waiting:
            self._release_later()


_files = _IndexedFiles()


def _raw_fields(part: _Part) -> _Fields:
    index = _raw_index(part.path)[part.packets]
    return {name: index[name] for name in ("timestamp", "length", "flow", "offset")}


def _pcap_fields(part: _Part, wanted: Sequence[str]) -> _Fields:
    path = part.path.fetch() if isinstance(part.path, StoredObject) else part.path
    packets = _files.get(path)[part.packets]
    needed = [name for name in wanted if name in _NUMBERS]
    needed += [field for name in wanted for field in _ADDRESSES.get(name, ())]
    # Without names, all columns would be returned.
    return packets.to_columns(["timestamp", *dict.fromkeys(needed)])


def _numbered(part: _Part, fields: _Fields) -> _Fields:
    rows = len(fields["timestamp"])
    packets = np.arange(part.packets.start, part.packets.start + rows)
    return {**fields, "file": np.full(rows, part.number), "packet": packets}


def _columns(fields: _Fields, wanted: Sequence[str]) -> _Columns:
    """Return columns of a table from the fields of its packets."""
    made: _Columns = {name: fields[name] for name in wanted if name in fields}
    made["time"] = _times(fields["timestamp"])
    for name in set(wanted) & {"src", "dst"}:
        made[name] = _ip_texts(fields["ip_version"], fields[f"ipv4_{name}"], fields[f"ipv6_{name}"])
    for name in set(wanted) & {"eth_src", "eth_dst"}:
        made[name] = _texts(fields[name], lambda number: int(number).to_bytes(6).hex(":"))
    return made


def _times(ns: NDArray[Any]) -> pd.Series:
    return pd.Series(ns.astype("datetime64[ns]")).dt.tz_localize("UTC")


def _texts(values: NDArray[Any], text: Callable[[Any], str]) -> NDArray[Any]:
    """Return the text of each value; each distinct value is converted once."""
    distinct, which = np.unique(values, return_inverse=True)
    return np.array([text(value) for value in distinct], object)[which]


def _ip_texts(
    version: NDArray[np.uint8], ipv4: NDArray[np.uint32], ipv6: NDArray[np.uint8]
) -> NDArray[Any]:
    made = np.full(len(version), "", object)
    four, six = version == 4, version == 6
    made[four] = _texts(ipv4[four], lambda number: str(IPv4Address(int(number))))
    if six.any():
        whole = np.ascontiguousarray(ipv6[six]).view("V16").ravel()
        made[six] = _texts(whole, lambda address: inet_ntop(AF_INET6, address.tobytes()))
    return made
