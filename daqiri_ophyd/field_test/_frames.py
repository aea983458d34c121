"""Packets of lanes: each differs from all others, and ends in its number."""

from __future__ import annotations

import ipaddress

import numpy as np
from numpy.typing import NDArray

from ..engine import ethernet
from ._lanes import Header, Lane, UnmadeError, is_group

__all__ = ["MARK_BYTES", "make_packets", "marks_of", "size_of"]

Rows = NDArray[np.uint8]

MARK_BYTES = 4
"""Bytes at the end of a packet: a constant, the lane, the number of the packet (2)."""
_CONSTANT = 0xDA
_ECPRI_ETHERTYPE = 0xAEFE
_TAG = (0x81, 0x00, 0x00, 0x01)  # VLAN 1
_NO_ADDRESS = "00:00:00:00:00:00"
_LOCAL = ("02:00:00:00:00:01", "02:00:00:00:00:02")
_ECPRI_HEADER = 8


def size_of(lane: Lane, wanted: int) -> int:
    """Return the size of packets that is nearest to a wanted one, and that the lane can have.

    Raises
    ------
    UnmadeError
        If the headers of the flow allow another size only.
    """
    header = lane.header
    if header is not None and header.ip_length is not None:
        return 14 + header.ip_length
    words = lane.words if header is None else header.words
    head = 0 if header is None else 14 + _ECPRI_HEADER if header.ecpri else ethernet.UDP_OVERHEAD
    least = head + max((offset + 4 for offset, _ in words), default=0) + MARK_BYTES
    return max(wanted, least)


def make_packets(
    lane: Lane, number: int, size: int, count: int, macs: tuple[str, str]
) -> tuple[Rows, Rows]:
    """Return the packets of a lane: as they are sent, and as they have to arrive.

    Parameters
    ----------
    lane : Lane
        The lane.
    number : int
        Its number, below 256.
    size : int
        Bytes of each packet as it arrives.
    count : int
        Number of packets, up to 65536.
    macs : tuple of str
        Ethernet addresses of the sending and of the receiving port.

    Raises
    ------
    UnmadeError
        If the flow's packets cannot have this size.
    """
    if size != size_of(lane, size):
        raise UnmadeError(f"packets of {lane.name} cannot have {size} bytes")
    header = lane.header
    if header is None:
        rows = _payloads(count, size, number, lane.words)
        return rows, rows
    source = _LOCAL[0] if macs[0] == _NO_ADDRESS else macs[0]
    target = _LOCAL[1] if macs[1] == _NO_ADDRESS else macs[1]
    if header.ecpri is not None:
        rows = _ecpri(header.ecpri, count, size, number, source, target)
    else:
        payloads = _payloads(count, size - ethernet.UDP_OVERHEAD, number, header.words)
        spread = np.arange(count) % 64 if header.spreads else 0
        rows = ethernet.udp_frames(
            payloads,
            src_mac=source,
            dst_mac=_group_mac(header.dst_ip) if is_group(header.dst_ip) else target,
            src_ip=header.src_ip,
            dst_ip=header.dst_ip,
            src_port=header.src_port + spread,
            dst_port=header.dst_port,
        )
    return _tagged(rows, header), rows


def marks_of(rows: Rows, lanes: int, count: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which packets have a mark, and their positions among the packets of all lanes."""
    ends = rows[:, -MARK_BYTES:].astype(np.int64)
    number = ends[:, 2] << 8 | ends[:, 3]
    known = (ends[:, 0] == _CONSTANT) & (ends[:, 1] < lanes) & (number < count)
    return known, np.where(known, ends[:, 1] * count + number, 0)


def _payloads(count: int, size: int, number: int, words: tuple[tuple[int, int], ...]) -> Rows:
    packet = np.arange(count, dtype=np.uint32)[:, np.newaxis]
    place = np.arange(size, dtype=np.uint32)[np.newaxis]
    rows = (packet * 167 + place * 13 + (packet * place >> 5) + number * 31).astype(np.uint8)
    for offset, value in words:
        rows[:, offset : offset + 4] = np.frombuffer(value.to_bytes(4, "big"), np.uint8)
    rows[:, -4], rows[:, -3] = _CONSTANT, number
    rows[:, -2], rows[:, -1] = (packet[:, 0] >> 8).astype(np.uint8), packet[:, 0].astype(np.uint8)
    return rows


def _ecpri(
    message: tuple[int, int], count: int, size: int, number: int, source: str, target: str
) -> Rows:
    rows = _payloads(count, size, number, ())
    kind, message_id = message
    length = size - 14 - 4
    head = bytes.fromhex((target + source).replace(":", ""))
    head += _ECPRI_ETHERTYPE.to_bytes(2, "big") + bytes([0x10, kind])
    head += length.to_bytes(2, "big") + message_id.to_bytes(2, "big") + bytes(2)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    return rows


def _tagged(rows: Rows, header: Header) -> Rows:
    if not header.tags:
        return rows
    tags = np.tile(np.array(_TAG * header.tags, np.uint8), (len(rows), 1))
    return np.hstack([rows[:, :12], tags, rows[:, 12:]])


def _group_mac(address: str) -> str:
    low = int(ipaddress.IPv4Address(address)) & 0x7FFFFF
    return ":".join(f"{byte:02x}" for byte in (0x01005E << 24 | low).to_bytes(6, "big"))
