"""Builds UDP frames and locates UDP payloads, for many packets at once."""

from __future__ import annotations

import ipaddress

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daqiri_ophyd import _native

from ._errors import InvalidParameterError
from ._packets import Packets

__all__ = ["UDP_OVERHEAD", "udp_frames", "udp_payload"]

UDP_OVERHEAD = 42
"""Bytes of Ethernet, IPv4 and UDP headers before a payload."""

_LONGEST_PAYLOAD = 65535 - 28
_ETHERNET = 1
_IPV4 = 0x0800
_UDP = 17


def udp_frames(
    payloads: NDArray[np.uint8] | tuple[int, int],
    *,
    src_mac: str | bytes | NDArray[np.uint8],
    dst_mac: str | bytes | NDArray[np.uint8],
    src_ip: str | ArrayLike,
    dst_ip: str | ArrayLike,
    src_port: ArrayLike,
    dst_port: ArrayLike,
) -> NDArray[np.uint8]:
    """Add Ethernet, IPv4 and UDP headers to payloads.

    Time to live is 64, "don't fragment" is set, identification counts up from 0, and checksums are
    valid.

    Parameters
    ----------
    payloads : ndarray of uint8, shape (n, size), or (n, size)
        One payload per row; a pair of numbers means zeros of that shape.
    src_mac, dst_mac : str, bytes or ndarray of uint8
        Ethernet addresses: ``02:00:00:00:00:01``, 6 bytes, or shape (n, 6).
    src_ip, dst_ip : str, int or array_like of int, shape (n,)
        IPv4 addresses; numbers are in host byte order.
    src_port, dst_port : int or array_like of int, shape (n,)
        UDP ports.

    Returns
    -------
    ndarray of uint8, shape (n, size + 42)
        One frame per row, without frame check sequence.

    Raises
    ------
    InvalidParameterError
        If a shape, address or port is not valid, or the payload is longer than 65507 bytes.

    Notes
    -----
    Formats: RFC 791 (IPv4), RFC 768 (UDP); checksum: RFC 1071.
    """
    payload = _payload_rows(payloads)
    count, size = payload.shape
    frames = np.zeros((count, UDP_OVERHEAD + size), np.uint8)
    frames[:, 0:6] = _mac("dst_mac", dst_mac, count)
    frames[:, 6:12] = _mac("src_mac", src_mac, count)
    # Version 4, 5 words of header; don't fragment; time to live and protocol.
    ip = _words(frames, 12, 11)
    ip[:, 0] = _IPV4
    ip[:, 1] = 0x4500
    ip[:, 2] = 28 + size
    ip[:, 3] = np.arange(count) & 0xFFFF
    ip[:, 4] = 0x4000
    ip[:, 5] = 64 << 8 | _UDP
    for at, name, address in ((7, "src_ip", src_ip), (9, "dst_ip", dst_ip)):
        number = _ipv4(name, address, count)
        ip[:, at], ip[:, at + 1] = number >> 16, number & 0xFFFF
    ip[:, 6] = _complement(ip[:, 1:].sum(axis=1, dtype=np.uint64))
    udp = _words(frames, 34, 4)
    udp[:, 0] = _port("src_port", src_port, count)
    udp[:, 1] = _port("dst_port", dst_port, count)
    udp[:, 2] = 8 + size
    pseudo = ip[:, 7:11].sum(axis=1, dtype=np.uint64) + np.uint64(_UDP + 8 + size)
    headers = udp[:, :3].sum(axis=1, dtype=np.uint64)
    checksum = _complement(pseudo + headers + _sum_of_words(payload))
    # A checksum of 0 would mean that there is no checksum.
    udp[:, 3] = np.where(checksum == 0, 0xFFFF, checksum)
    frames[:, 12:34] = ip.view(np.uint8)
    frames[:, 34:42] = udp.view(np.uint8)
    frames[:, UDP_OVERHEAD:] = payload
    return frames


def udp_payload(
    packets: Packets | NDArray[np.uint8], *, link_type: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Locate the UDP payload of each packet.

    VLAN tags, IPv4 options and IPv6 extension headers are skipped. Fragments, and packets whose
    payload was not captured completely, do not count as UDP datagrams.

    Parameters
    ----------
    packets : Packets or ndarray of uint8, shape (n, width)
        Packets to search.
    link_type : int, optional
        A link type that `Packets.to_columns` supports, such as 1: Ethernet frames, 101: IP
        packets.
        Default: that of the packets; 1 for an array.

    Returns
    -------
    offsets : ndarray of int64, shape (n,)
        Offset of each payload in `Packets.data`, or in the array's bytes in C order
        (``packets.reshape(-1)``), as `TxQueue.send` accepts it.
    lengths : ndarray of int64, shape (n,)
        Bytes of each payload; -1 if a packet is not a UDP datagram.

    Raises
    ------
    InvalidParameterError
        If the link type is not supported, or the array has another shape or type.

    Notes
    -----
    Formats: RFC 791 (IPv4), RFC 8200 (IPv6), RFC 768 (UDP), IEEE 802.1Q (VLAN).
    """
    if isinstance(packets, Packets):
        data, begin, size = packets.data, packets.offsets, packets.lengths
        kind = packets.link_type if link_type is None else link_type
    else:
        data, begin, size = _flat_rows(packets)
        kind = _ETHERNET if link_type is None else link_type
    columns = _native.packet_columns(
        data,
        kind,
        np.ascontiguousarray(begin),
        np.ascontiguousarray(size),
        ["payload_offset", "payload_length", "udp_length"],
    )
    if isinstance(packets, Packets):
        packets.verify()
    length = columns["payload_length"].astype(np.int64)
    whole = (columns["udp_length"] >= 8) & (length + 8 == columns["udp_length"])
    return np.where(whole, columns["payload_offset"], begin), np.where(whole, length, -1)


def _payload_rows(payloads: NDArray[np.uint8] | tuple[int, int]) -> NDArray[np.uint8]:
    if isinstance(payloads, tuple):
        count, size = payloads
        if count < 0 or size < 0:
            raise InvalidParameterError(f"payloads is {payloads}; accepted is (n, size) from 0 on")
        payloads = np.zeros((count, size), np.uint8)
    if payloads.ndim != 2 or payloads.dtype != np.uint8:
        raise InvalidParameterError(
            f"payloads is {payloads.dtype} of shape {payloads.shape}; accepted is uint8, (n, size)"
        )
    if payloads.shape[1] > _LONGEST_PAYLOAD:
        raise InvalidParameterError(
            f"payloads have {payloads.shape[1]} bytes; UDP over IPv4 takes up to {_LONGEST_PAYLOAD}"
        )
    return payloads


def _flat_rows(
    frames: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint32]]:
    if frames.ndim != 2 or frames.dtype != np.uint8:
        raise InvalidParameterError(
            f"packets is {frames.dtype} of shape {frames.shape}; accepted is uint8, (n, width)"
        )
    count, width = frames.shape
    begin = np.arange(count, dtype=np.int64) * width
    return frames.reshape(-1), begin, np.full(count, width, np.uint32)


def _words(frames: NDArray[np.uint8], at: int, count: int) -> NDArray[np.uint16]:
    """Return big-endian words copied from the frames."""
    return np.ascontiguousarray(frames[:, at : at + 2 * count]).view(">u2")


def _sum_of_words(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the ones' complement sum of each row's big-endian words."""
    size = rows.shape[1]
    even = np.ascontiguousarray(rows[:, : size & ~1])
    # In the other byte order the folded sum is byte-swapped (RFC 1071); little-endian is fast.
    folded = _fold(even.view("<u2").sum(axis=1, dtype=np.uint64)).astype(np.uint16).byteswap()
    sums = folded.astype(np.uint64)
    if size & 1:
        sums += rows[:, -1].astype(np.uint64) << np.uint64(8)
    return sums


def _fold(sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for _ in range(4):
        sums = (sums & np.uint64(0xFFFF)) + (sums >> np.uint64(16))
    return sums


def _complement(sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _fold(sums) ^ np.uint64(0xFFFF)


def _mac(name: str, mac: str | bytes | NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    if isinstance(mac, str):
        try:
            pairs = mac.split(":")
            octets = bytes.fromhex("".join(pairs)) if {len(p) for p in pairs} == {2} else b""
        except ValueError:
            octets = b""
    elif isinstance(mac, bytes):
        octets = mac
    elif mac.dtype == np.uint8 and mac.shape in ((6,), (count, 6)):
        return mac
    else:
        raise InvalidParameterError(
            f"{name} is {mac.dtype} of shape {mac.shape}; accepted is uint8, (6,) or ({count}, 6)"
        )
    if len(octets) != 6:
        raise InvalidParameterError(
            f"{name} is {mac!r}; accepted is an address such as 02:00:00:00:00:01"
        )
    return np.frombuffer(octets, np.uint8)


def _ipv4(name: str, address: str | ArrayLike, count: int) -> NDArray[np.int64]:
    if isinstance(address, str):
        try:
            address = int(ipaddress.IPv4Address(address))
        except ValueError as error:
            raise InvalidParameterError(f"{name} is {address!r}: {error}") from error
    return _numbers(name, address, 0xFFFFFFFF, count)


def _port(name: str, port: ArrayLike, count: int) -> NDArray[np.int64]:
    return _numbers(name, port, 0xFFFF, count)


def _numbers(name: str, values: ArrayLike, limit: int, count: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.shape not in ((), (count,)):
        raise InvalidParameterError(
            f"{name} is {array.dtype} of shape {array.shape}; accepted are an int or ints of "
            f"shape ({count},)"
        )
    if array.size and not 0 <= array.min() <= array.max() <= limit:
        raise InvalidParameterError(
            f"{name} is {array.min()} to {array.max()}; accepted is 0 to {limit}"
        )
    return array.astype(np.int64)
