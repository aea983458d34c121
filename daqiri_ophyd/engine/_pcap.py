"""pcap files as arrays."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native

from ._errors import GenericFailureError, InvalidParameterError

__all__ = ["PcapFile"]


class PcapFile:
    """A classic pcap file, mapped into memory and indexed.

    ``pcap[i]`` is packet ``i`` without a copy: a read-only uint8 array over the mapped file; a
    slice is a list of such arrays. Arrays stay usable after `close`. A file that another program
    cuts while it is mapped takes the process down, as any mapped file does; appending is safe and
    not seen.

    Parameters
    ----------
    path : str or Path
        File of either byte order, µs or ns. Format: https://www.ietf.org/archive/id/
        draft-gharris-opsawg-pcap-01.html.

    Attributes
    ----------
    path : Path
        The file.
    link_type : int
        Kind of packets: 1 Ethernet, 101 IP without a link layer, others as registered.
    snap_length : int
        Longest packet that the file says it may hold, bytes.
    nanosecond : bool
        Whether the file's resolution is ns, else µs.
    torn_bytes : int
        Bytes at the end that are no whole record; they were left out.

    Raises
    ------
    GenericFailureError
        If the file cannot be read.
    InvalidParameterError
        If it is no pcap file, or a record's length is impossible.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._data: NDArray[np.uint8] | None = _map(file)
                (
                    self.link_type,
                    self.snap_length,
                    self.nanosecond,
                    _,
                    self.torn_bytes,
                    damage,
                    self._offsets,
                    self._lengths,
                    self._wire_lengths,
                    self._timestamps,
                ) = _native.index_pcap(self._data, file.fileno(), str(self.path))
        except OSError as error:
            raise GenericFailureError(
                f"cannot read {self.path}: {error.strerror or error}"
            ) from error
        if damage:
            raise InvalidParameterError(
                f"{self.path}: {damage}; 'truncate -s {self._data.size - self.torn_bytes}' on a "
                f"copy keeps the {len(self)} packets before it"
            )

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes of the file, shape (size,), read-only; packets lie at `offsets`."""
        if self._data is None:
            raise InvalidParameterError(f"{self.path} is closed; open it again")
        return self._data

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each packet begins in `data`, shape (n,)."""
        return self._offsets

    @property
    def lengths(self) -> NDArray[np.uint32]:
        """Bytes of each packet in the file, shape (n,)."""
        return self._lengths

    @property
    def wire_lengths(self) -> NDArray[np.uint32]:
        """Bytes of each packet on the wire, shape (n,)."""
        return self._wire_lengths

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Time of each packet, ns since the epoch, shape (n,)."""
        return self._timestamps

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.uint8]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | list[NDArray[np.uint8]]:
        if isinstance(index, slice):
            return [self._packet(i) for i in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"packet {index} of a file of {count}")
        return self._packet(index)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return map(self._packet, range(len(self)))

    def _packet(self, index: int) -> NDArray[np.uint8]:
        begin = self._offsets[index]
        return self.data[begin : begin + self._lengths[index]]

    def gather(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Copy the packets to rows of one array, at memory speed.

        Parameters
        ----------
        out : ndarray of uint8, shape (n, width), optional
            Where to; C-contiguous, ``width`` at least the longest packet. None: a new array.

        Returns
        -------
        ndarray of uint8, shape (n, width)
            `out`, or a new array as wide as the longest packet; rows are padded with 0.

        Raises
        ------
        InvalidParameterError
            If `out` does not fit, or the file was closed.
        """
        return _native.gather(self.data, self._offsets, self._lengths, out)

    def close(self) -> None:
        """Let go of the file; it stays mapped while there are arrays over it. Idempotent."""
        self._data = None

    def __enter__(self) -> PcapFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PcapFile {str(self.path)!r}, {len(self)} packets>"


def _map(file: BinaryIO) -> NDArray[np.uint8]:
    if os.fstat(file.fileno()).st_size == 0:
        return np.frombuffer(b"", np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
