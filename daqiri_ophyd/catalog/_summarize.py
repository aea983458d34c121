"""Summary of a capture file, from its metadata file or else from the packets' headers."""

import mmap
import struct
from pathlib import Path

import numpy as np

from daqiri_ophyd.documents import FileSummary, read_sidecar

__all__ = ["NotPcapError", "summarize"]

_MAGICS = {  # first bytes: byte order, ns per unit of the second timestamp word
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_FILE_HEADER = 24
_RECORD_HEADER = 16
# tcpdump's and our own snap length; no record is longer, whatever the file header says.
_LONGEST = 262_144
# So many packets of one length are a hint that as many more follow.
_REPEATS = 8
_BLOCK = 65_536


class NotPcapError(ValueError):
    """A file that is not classic pcap, or is damaged before its end."""


def summarize(path: str | Path) -> FileSummary:
    """Return the summary of a pcap file.

    The metadata file beside it is the source if there is one; else the records are walked, and
    ``dropped`` is 0.

    Parameters
    ----------
    path : str or Path
        Classic pcap file of either byte order, in µs or ns. A torn last record is left out.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    NotPcapError
        If it is no classic pcap file.
    daqiri_ophyd.documents.SidecarError
        If the metadata file is not usable.

    Notes
    -----
    File format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-06.html.
    """
    path = Path(path)
    with path.open("rb") as file:  # first: metadata of a file that vanished would mislead
        sidecar = read_sidecar(path)
        if sidecar is not None:
            return sidecar.summary(path)
        header = file.read(_FILE_HEADER)
        order, unit = _byte_order(header, path)
        if file.read(1) == b"":
            return FileSummary(path, packets=0, bytes=0)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _walk(data, order, unit, path)


def _byte_order(header: bytes, path: Path) -> tuple[str, int]:
    if header[:4] == _PCAPNG:
        raise NotPcapError(
            f"{path} is pcapng; only classic pcap is read. "
            f"Convert it: editcap -F pcap {path.name} OUT.pcap"
        )
    if header[:4] not in _MAGICS:
        found = header[:4].hex() or "nothing"
        raise NotPcapError(
            f"{path} is not a pcap file: it begins with {found}, "
            "expected a1b2c3d4 or a1b23c4d in either byte order."
        )
    if len(header) < _FILE_HEADER:
        raise NotPcapError(
            f"{path} ends after {len(header)} bytes, inside the pcap file header ({_FILE_HEADER})."
        )
    return _MAGICS[header[:4]]


def _walk(data: mmap.mmap, order: str, unit: int, path: Path) -> FileSummary:
    """Follow the records; runs of equal length, usual in detector streams, go by the block."""
    size = len(data)
    record = struct.Struct(order + "IIII")
    dtype = np.dtype([(name, order + "u4") for name in ("sec", "frac", "captured", "wire")])
    longest = max(_LONGEST, struct.unpack_from(order + "I", data, 16)[0])
    offset = _FILE_HEADER
    packets = total = 0
    first = last = -1
    length, repeats = -1, 0
    while offset + _RECORD_HEADER <= size:
        sec, frac, captured, wire = record.unpack_from(data, offset)
        if captured > longest:
            raise NotPcapError(
                f"{path} is damaged: record {packets} at byte {offset} claims {captured} bytes, "
                f"the longest possible is {longest}."
            )
        step = _RECORD_HEADER + captured
        if offset + step > size:
            break  # torn
        if packets == 0:
            first = sec * 1_000_000_000 + frac * unit
        repeats = repeats if captured == length else 0
        length = captured
        count = 1
        if repeats >= _REPEATS:
            room = min(repeats, _BLOCK, (size - offset) // step)
            block = np.ndarray(room, dtype, data, offset, strides=(step,))
            other = block["captured"] != captured
            count = int(other.argmax()) if other.any() else len(block)
            total += int(block["wire"][:count].sum(dtype=np.uint64))
            sec, frac = int(block["sec"][count - 1]), int(block["frac"][count - 1])
            del block, other  # the map cannot be closed under a view
        else:
            total += wire
        last = sec * 1_000_000_000 + frac * unit
        packets += count
        repeats += count
        offset += count * step
    return FileSummary(path, packets, total, first, last)
