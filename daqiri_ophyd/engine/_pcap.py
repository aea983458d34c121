"""pcap files as arrays."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native

from ._errors import GenericFailureError, InvalidParameterError
from ._packets import Packets
from ._unpack import open_classic

__all__ = ["PcapFile"]


class PcapFile(Packets):
    """A pcap file, mapped into memory and indexed.

    Classic pcap is used as it lies; its packets may be larger than memory: of the file, only the
    record headers are looked at. pcapng, and what is compressed with gzip or zstd, is unpacked to
    ``$TMPDIR`` first. Arrays and selections stay usable after `close`. What is appended while the
    file is open is not seen. When it is cut meanwhile, the bytes that are gone read as zero, and
    `gather`, `to_columns`, `select` and `verify` raise.

    Parameters
    ----------
    path : str or Path
        pcap file of either byte order, µs or ns; pcapng file with packets of one link type; either
        of them compressed with gzip or zstd. Formats: https://www.ietf.org/archive/id/
        draft-ietf-opsawg-pcap-06.html, draft-ietf-opsawg-pcapng, RFC 1952, RFC 8878.

    allow_damage : bool
        Open a file in which a record's length is impossible, too, with the packets before it.

    Attributes
    ----------
    path : Path
        The file.
    wrapping : tuple of str
        What was around the packets, outermost first: ``gzip``, ``zstd``, ``pcapng``.
    link_type : int
        Kind of packets: 1 Ethernet, 101 IP without a link layer, others as registered.
    snap_length : int
        Longest packet that the file says it may hold, bytes.
    nanosecond : bool
        Whether the file's resolution is ns, else µs.
    byte_order : {'little', 'big'}
        Of the headers.
    torn_bytes : int
        Bytes at the end that are no whole record; they were left out.
    damage : str
        Empty, or which record's length is impossible.

    Raises
    ------
    GenericFailureError
        If the file cannot be read, is cut while it is read, or cannot be unpacked for want of
        room.
    InvalidParameterError
        If it is no pcap file, a record's length is impossible and `allow_damage` not set,
        or what is compressed is damaged.
    NotSupportedError
        If it is a pcapng file and libpcap is not installed.
    """

    def __init__(self, path: str | Path, *, allow_damage: bool = False) -> None:
        path = Path(path)
        self.path = path
        try:
            file, self.wrapping = open_classic(path)
            with file:
                mapped = _native.map_file(file.fileno(), str(path))
                (
                    link_type,
                    self.snap_length,
                    self.nanosecond,
                    big_endian,
                    self.torn_bytes,
                    self.damage,
                    offsets,
                    lengths,
                    wire_lengths,
                    timestamps,
                ) = _native.index_pcap(mapped)
        except OSError as error:
            raise GenericFailureError(f"cannot read {path}: {error.strerror or error}") from error
        self.byte_order: Literal["little", "big"] = "big" if big_endian else "little"
        super().__init__(
            mapped.data, link_type, offsets, lengths, wire_lengths, timestamps, file=mapped
        )
        if self.damage and not allow_damage:
            raise InvalidParameterError(
                f"{path}: {self.damage}; the {len(self)} packets before it can be kept: "
                "daqiri-ophyd pcap repair --output OUT FILE"
            )

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes of the file, shape (size,), read-only; packets lie at `offsets`.

        Of a file that was unpacked: of what it was unpacked to.
        """
        if self._data is None:
            raise InvalidParameterError(f"{self.path} is closed; open it again")
        return self._data

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
