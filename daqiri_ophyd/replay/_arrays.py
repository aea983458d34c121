"""Packet sources: packets in memory, and generated, numbered packets."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daqiri_ophyd.engine import LINKTYPE_ETHERNET, ethernet

from ._source import Chunk

__all__ = ["NumberedPackets", "PacketArray"]

_CHUNK_BYTES = 8 << 20
# Locally administered, and reserved for benchmarks (RFC 2544): no host uses them.
_SRC_MAC, _DST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
_SRC_IP, _DST_IP = "198.18.0.1", "198.18.0.2"


class PacketArray:
    """Packets of one length in memory.

    Parameters
    ----------
    packets : ndarray of uint8, shape (n, length)
        One packet per row.
    times : array_like of int, shape (n,), optional
        Time when each packet is due, ns; only differences matter. None: as fast as possible.

    Raises
    ------
    ValueError
        If a shape is not accepted, or times decrease.
    """

    def __init__(self, packets: NDArray[np.uint8], times: ArrayLike | None = None) -> None:
        rows = np.ascontiguousarray(packets)
        if rows.ndim != 2 or rows.dtype != np.uint8:
            raise ValueError(
                f"packets is {rows.dtype} of shape {rows.shape}; accepted is uint8, (n, length)."
            )
        self._rows = rows
        self._times: NDArray[np.int64] | None = None
        if times is not None:
            due = np.asarray(times, np.int64)
            if due.shape != rows.shape[:1]:
                raise ValueError(f"times has shape {due.shape}; there are {len(rows)} packets.")
            if np.any(np.diff(due) < 0):
                first = int(np.argmax(np.diff(due) < 0)) + 1
                raise ValueError(f"times[{first}] is earlier than its predecessor; sort them.")
            self._times = due - due[0] if len(due) else due

    @property
    def packets(self) -> int:
        """Number of packets."""
        return len(self._rows)

    @property
    def duration_ns(self) -> int:
        """Time between the first and the last packet, ns."""
        return int(self._times[-1]) if self._times is not None and self.packets else 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets in one chunk."""
        if not self.packets:
            return
        count, length = self._rows.shape
        offsets = np.arange(count, dtype=np.int64) * length
        yield Chunk(self._rows.reshape(-1), offsets, np.full(count, length, np.int64), self._times)


class NumberedPackets:
    """Packets with a sequence number and a fixed pattern, evenly spaced.

    The payload is the packet's number (64 bits, big-endian), then bytes that count up from it.

    Parameters
    ----------
    count : int
        Number of packets.
    size : int
        Payload bytes, 8 or more.
    interval_ns : int
        Time from packet to packet; 0: as fast as possible.
    link_type : int
        1: Ethernet/IPv4/UDP frames around the payload, 42 bytes longer. 101: the payload alone,
        for ports that are UDP sockets.
    udp_dst, udp_src : int
        UDP ports of the frames.
    ip_dst, ip_src, mac_dst, mac_src : str
        Addresses of the frames. Default: addresses that no host uses.

    Raises
    ------
    ValueError
        If the count is negative, the size below 8 or the interval negative.
    """

    def __init__(
        self,
        count: int,
        size: int,
        interval_ns: int = 0,
        *,
        link_type: int = LINKTYPE_ETHERNET,
        udp_dst: int = 5000,
        udp_src: int = 4000,
        ip_dst: str = _DST_IP,
        ip_src: str = _SRC_IP,
        mac_dst: str = _DST_MAC,
        mac_src: str = _SRC_MAC,
    ) -> None:
        for name, value, least in (
            ("count", count, 0),
            ("size", size, 8),
            ("interval_ns", interval_ns, 0),
        ):
            if value < least:
                raise ValueError(f"{name} is {value}; accepted is {least} or more.")
        self._count = count
        self._size = size
        self._interval_ns = interval_ns
        self._link_type = link_type
        self._addresses = {
            "dst_port": udp_dst,
            "src_port": udp_src,
            "dst_ip": ip_dst,
            "src_ip": ip_src,
            "dst_mac": mac_dst,
            "src_mac": mac_src,
        }

    @property
    def packets(self) -> int:
        """Number of packets."""
        return self._count

    @property
    def duration_ns(self) -> int:
        """Time between the first and the last packet, ns."""
        return max(0, self._count - 1) * self._interval_ns

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets, a few MiB at a time."""
        step = max(1, _CHUNK_BYTES // (self._size + 42))
        for first in range(0, self._count, step):
            numbers = np.arange(first, min(first + step, self._count), dtype=np.int64)
            rows = self._rows(numbers)
            times = numbers * self._interval_ns if self._interval_ns else None
            length = rows.shape[1]
            offsets = np.arange(len(rows), dtype=np.int64) * length
            lengths = np.full(len(rows), length, np.int64)
            yield Chunk(rows.reshape(-1), offsets, lengths, times)

    def _rows(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        pattern = np.arange(self._size, dtype=np.uint8)
        payloads = pattern + (numbers[:, np.newaxis] & 0xFF).astype(np.uint8)
        payloads[:, :8] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
        if self._link_type != LINKTYPE_ETHERNET:
            return payloads
        return ethernet.udp_frames(payloads, **self._addresses)
