"""pcap files as arrays."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native

from ._errors import GenericFailureError, InvalidParameterError
from ._native_path import shown_path
from ._packets import Packets
from ._unpack import open_classic

__all__ = ["PcapFile", "write_pcap"]

_FILE_HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("zone", "<i4"),
        ("accuracy", "<u4"),
        ("snap_length", "<u4"),
        ("link_type", "<u4"),
    ]
)


class PcapFile(Packets):
    """A pcap file, mapped into memory and indexed.

    Classic pcap is mapped in place. Only the record headers are read, so files may be larger than
    memory. pcapng files, and files compressed with gzip or zstd, are unpacked to ``$TMPDIR`` first.
    Arrays and selections stay valid after `close`. Packets that are appended while the file is open
    do not appear. If the file is cut while it is open, the missing bytes read as zero, and
    `gather`, `to_columns`, `select` and `verify` raise.

    Parameters
    ----------
    path : str or Path
        pcap file of either byte order, µs or ns; pcapng file with packets of one link type; either
        of them compressed with gzip or zstd. Formats: https://www.ietf.org/archive/id/
        draft-ietf-opsawg-pcap-06.html, draft-ietf-opsawg-pcapng, RFC 1952, RFC 8878.

    allow_damage : bool
        Also open a file with a record of impossible length; it has the packets before it.

    Attributes
    ----------
    path : Path
        The file.
    wrapping : tuple of str
        Compression and format that were unpacked, outermost first: ``gzip``, ``zstd``, ``pcapng``.
    link_type : int
        Link type: 1 Ethernet, 101 IP without a link layer, others as registered.
    snap_length : int
        Longest packet of the file according to its header, bytes.
    nanosecond : bool
        Whether time stamps are in ns, else µs.
    byte_order : {'little', 'big'}
        Byte order of the headers.
    whole_bytes : int
        Offset of the end of the last complete record (pcapng: block), in the file or, if it is
        compressed, in what was unpacked.
    torn_bytes : int
        Bytes of an incomplete record or block after that; they are ignored.
    damage : str
        Record with an impossible length, as text; empty: none.

    Raises
    ------
    GenericFailureError
        If the file cannot be read, or there is not enough space to unpack it.
    InvalidParameterError
        If it is not a pcap file, a record has an impossible length and `allow_damage` is not set,
        or the compressed data are damaged.
    NotSupportedError
        If it is a pcapng file and libpcap is not installed.
    """

    def __init__(self, path: str | Path, *, allow_damage: bool = False) -> None:
        path = Path(path)
        self.path = path
        try:
            found = open_classic(path)
            self.wrapping = found.wrapping
            with found.file as file:
                mapped = _native.map_file(file.fileno(), shown_path(path))
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
        self.whole_bytes = mapped.data.size - self.torn_bytes
        if found.pcapng_end is not None:
            self.whole_bytes, self.torn_bytes = found.pcapng_end
        if self.damage and not allow_damage:
            raise InvalidParameterError(
                f"{path}: {self.damage}; the {len(self)} packets before it can be kept: "
                "daqiri-ophyd pcap repair --output OUT FILE"
            )

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes of the file, shape (size,), read-only; packets begin at `offsets`.

        For a compressed or pcapng file: the bytes of the classic pcap file that it was unpacked to.
        """
        if self._data is None:
            raise InvalidParameterError(f"{self.path} is closed; open it again")
        return self._data

    def close(self) -> None:
        """Close the file; it stays mapped while arrays use it. Idempotent."""
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


def write_pcap(
    path: str | Path,
    packets: NDArray[np.uint8],
    timestamps: NDArray[np.int64],
    link_type: int,
) -> None:
    """Write packets of equal length as a pcap file with timestamps in ns.

    Parameters
    ----------
    path : str or Path
        File to write; replaced if it exists.
    packets : ndarray of uint8
        Shape ``(n, length)``, as from `ethernet.udp_frames`.
    timestamps : ndarray of int
        ns, shape ``(n,)``.
    link_type : int
        1 Ethernet, 101 IP without a link layer.

    Raises
    ------
    InvalidParameterError
        If the packets are not rows of bytes, or their number differs from the timestamps.
    """
    if packets.ndim != 2 or packets.dtype != np.uint8 or timestamps.shape != packets.shape[:1]:
        raise InvalidParameterError(
            f"packets are {packets.dtype} of shape {packets.shape}, timestamps of shape "
            f"{timestamps.shape}; accepted are uint8 of shape (n, length) and (n,)."
        )
    length = packets.shape[1]
    fields = [(name, "<u4") for name in ("seconds", "ns", "stored", "on_wire")]
    records = np.empty(len(packets), [*fields, ("data", "u1", length)])
    records["seconds"], records["ns"] = np.divmod(timestamps, 1_000_000_000)
    records["stored"] = records["on_wire"] = length
    records["data"] = packets
    header = np.array((0xA1B23C4D, 2, 4, 0, 0, 262_144, link_type), _FILE_HEADER)
    Path(path).write_bytes(header.tobytes() + records.tobytes())
