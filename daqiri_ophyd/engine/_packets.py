"""Packets in memory, such as those of a file: selections, copies, header fields."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daqiri_ophyd import _native

from ._errors import InvalidParameterError

__all__ = ["Packets"]

_TRANSPORTS = {"udp": 17, "tcp": 6}
_VERSIONS = {"ipv4": 4, "ipv6": 6}


class Packets:
    """Packets in a flat array of bytes: a file's, or a selection of them.

    ``packets[i]`` is packet ``i`` without a copy: a read-only uint8 array over the mapped file; a
    slice is a selection. Selections copy no packets and have the same methods as the file.

    Attributes
    ----------
    link_type : int
        Link type: 1 Ethernet, 101 IP without a link layer, others as registered.
    """

    def __init__(
        self,
        data: NDArray[np.uint8] | None,
        link_type: int,
        offsets: NDArray[np.int64],
        lengths: NDArray[np.uint32],
        wire_lengths: NDArray[np.uint32],
        timestamps: NDArray[np.int64],
        *,
        file: _native.MappedFile | None = None,
    ) -> None:
        self._data = data
        self._file = file
        self.link_type = link_type
        self._offsets = offsets
        self._lengths = lengths
        self._wire_lengths = wire_lengths
        self._timestamps = timestamps

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes of the file, shape (size,), read-only; packets begin at `offsets`.

        For a compressed or pcapng file: the bytes of the classic pcap file that it was unpacked to.
        """
        if self._data is None:
            raise InvalidParameterError("the file is closed; open it again")
        return self._data

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Offset of each packet in `data`, shape (n,)."""
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

    @cached_property
    def in_order(self) -> bool:
        """Whether no packet has an earlier time than the packet before it."""
        return bool((self._timestamps[1:] >= self._timestamps[:-1]).all())

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice) -> Packets: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | Packets:
        if isinstance(index, slice):
            return self._part(index)
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"packet {index} of {count}")
        return self._packet(index)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return map(self._packet, range(len(self)))

    def _packet(self, index: int) -> NDArray[np.uint8]:
        begin = self._offsets[index]
        return self.data[begin : begin + self._lengths[index]]

    def _part(self, which: slice | NDArray[np.bool_] | NDArray[np.int64]) -> Packets:
        return Packets(
            self.data,
            self.link_type,
            self._offsets[which],
            self._lengths[which],
            self._wire_lengths[which],
            self._timestamps[which],
            file=self._file,
        )

    def verify(self) -> None:
        """Raise if bytes of the file were removed since it was opened.

        Values read earlier through arrays over the file may then differ from the file's content.

        Raises
        ------
        GenericFailureError
            If the file was cut or could not be read; the message names it.
        """
        if self._file is not None:
            self._file.require_whole()

    def chunks(self, packets: int) -> Iterator[Packets]:
        """Yield the packets in parts, for files that are larger than memory.

        Parameters
        ----------
        packets : int
            Largest number of packets in a part, at least 1.

        Raises
        ------
        InvalidParameterError
            If `packets` is below 1.
        """
        if packets < 1:
            raise InvalidParameterError(f"packets is {packets}; accepted is 1 or more")
        for first in range(0, len(self), packets):
            yield self._part(slice(first, first + packets))

    def between(self, t0_ns: int, t1_ns: int) -> Packets:
        """Select packets by time.

        Parameters
        ----------
        t0_ns, t1_ns : int
            Times, from `t0_ns` to before `t1_ns`, ns since the epoch.

        Returns
        -------
        Packets
            The packets in that time, in the file's order.
        """
        if self.in_order:
            first, end = np.searchsorted(self._timestamps, (t0_ns, t1_ns))
            return self._part(slice(int(first), int(end)))
        return self._part((self._timestamps >= t0_ns) & (self._timestamps < t1_ns))

    def select(
        self, mask: NDArray[np.bool_] | None = None, **fields: int | str | Sequence[int | str]
    ) -> Packets:
        """Select packets by a mask or by header fields.

        Parameters
        ----------
        mask : ndarray of bool, shape (n,), optional
            True for the packets to select.
        **fields : int, str or sequence of these
            Values to match; a sequence matches any of its values. Names are columns of
            `to_columns`, or ``udp_src``, ``udp_dst``, ``tcp_src``, ``tcp_dst`` (the ports of one
            protocol). Addresses are ``"192.168.1.5"``, ``"fe80::1"``, ``"02:00:00:00:00:01"``, or
            numbers.

        Returns
        -------
        Packets
            The packets that match all fields, in the file's order.

        Raises
        ------
        InvalidParameterError
            If there is no such field, a value is not valid, or the mask has another shape or type.
        GenericFailureError
            If the file was cut while it was read.

        Examples
        --------
        >>> flow = pcap.select(udp_dst=5500, ipv4_src="10.0.0.1")  # doctest: +SKIP
        """
        keep = np.ones(len(self), np.bool_)
        if mask is not None:
            if mask.shape != keep.shape or mask.dtype != np.bool_:
                raise InvalidParameterError(
                    f"mask is {mask.dtype} of shape {mask.shape}; accepted is bool, {keep.shape}"
                )
            keep &= mask
        conditions: list[tuple[str, ArrayLike]] = []
        for name, value in fields.items():
            transport, _, end = name.partition("_")
            if transport in _TRANSPORTS and end in ("src", "dst"):
                conditions += [("transport", _TRANSPORTS[transport]), (f"{end}_port", value)]
            else:
                conditions += [("ip_version", v) for k, v in _VERSIONS.items() if transport == k]
                conditions.append((name, _numbers(name, value)))
        columns = self.to_columns(list({name for name, _ in conditions})) if conditions else {}
        for name, value in conditions:
            keep &= _is_one_of(columns[name], value)
        return self._part(keep)

    def to_columns(self, names: Sequence[str] = ()) -> dict[str, NDArray]:
        """Return header fields of all packets as columns, for example for `pandas.DataFrame`.

        A field that a packet does not have, or that was not captured, is 0. Numbers are in host
        byte order. Supported link types: 1 (Ethernet), 101, 228 and 229 (IP), 113 and 276 (Linux
        cooked).

        Parameters
        ----------
        names : sequence of str, optional
            The columns to return. Default: all.

        Returns
        -------
        dict of str to ndarray, shape (n,)
            ======================== ====== ======================================================
            timestamp                int64  ns since the epoch
            length, wire_length      uint32 bytes in the file, on the wire
            eth_src, eth_dst         uint64 addresses as 48-bit numbers
            eth_type                 uint16 after VLAN tags
            vlan                     uint16 VLAN id of the outermost tag
            ip_version               uint8  4, 6, or 0: not an IP packet
            ip_protocol              uint8  after IPv6 extension headers
            ip_ttl                   uint8  time to live, hop limit
            ip_length                uint32 bytes of the IP packet
            ipv4_src, ipv4_dst       uint32 addresses
            ipv6_src, ipv6_dst       uint8  addresses, shape (n, 16)
            transport                uint8  17 (UDP), 6 (TCP) if the next ones are set
            src_port, dst_port       uint16 UDP or TCP ports
            udp_length               uint16 with the UDP header; 0 in fragments
            tcp_seq                  uint32 sequence number
            tcp_flags                uint16 the low 12 bits of the flags word
            payload_offset           int64  end of the last known header in `data`
            payload_length           uint32 bytes captured from there on, without padding
            ======================== ====== ======================================================

        Raises
        ------
        InvalidParameterError
            If there is no such column, the link type is not supported, or the file was closed.
        GenericFailureError
            If the file was cut while it was read.

        Notes
        -----
        Formats: IEEE 802.3, IEEE 802.1Q, RFC 791, RFC 8200, RFC 768, RFC 9293,
        https://www.tcpdump.org/linktypes.html.
        """
        columns: dict[str, NDArray] = {
            "timestamp": self._timestamps,
            "length": self._lengths,
            "wire_length": self._wire_lengths,
        }
        if names and columns.keys() >= set(names):
            return {name: columns[name] for name in names}
        columns |= _native.packet_columns(
            self.data,
            self.link_type,
            np.ascontiguousarray(self._offsets),
            np.ascontiguousarray(self._lengths),
            [name for name in names if name not in columns],
        )
        self.verify()
        return {name: columns[name] for name in names} if names else columns

    def gather(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Copy the packets to the rows of one array, at memory speed.

        Parameters
        ----------
        out : ndarray of uint8, shape (n, width), optional
            Destination; C-contiguous, ``width`` at least the longest packet. None: a new array.

        Returns
        -------
        ndarray of uint8, shape (n, width)
            `out`, or a new array as wide as the longest packet; rows are padded with 0.

        Raises
        ------
        InvalidParameterError
            If `out` does not fit, or the file was closed.
        GenericFailureError
            If the file was cut while it was read.
        """
        rows = _native.gather(
            self.data,
            np.ascontiguousarray(self._offsets),
            np.ascontiguousarray(self._lengths),
            out,
        )
        self.verify()
        return rows


def _numbers(name: str, value: int | str | Sequence[int | str]) -> ArrayLike:
    """Return the values of a field, with addresses in the form of its column."""
    values = [value] if isinstance(value, int | str) else list(value)
    try:
        if name.startswith("ipv6_"):
            return [list(ipaddress.IPv6Address(v).packed) for v in values]
        if name.startswith("ipv4_"):
            return [int(ipaddress.IPv4Address(v)) for v in values]
        if name in ("eth_src", "eth_dst"):
            return [v if isinstance(v, int) else _mac(v) for v in values]
        return [int(v) for v in values]
    except ValueError as error:
        raise InvalidParameterError(f"{name} is {value!r}: {error}") from error


def _mac(text: str) -> int:
    address = bytes.fromhex(text.replace(":", " "))
    if len(address) != 6:
        raise ValueError("an Ethernet address looks like 02:00:00:00:00:01")
    return int.from_bytes(address, "big")


def _is_one_of(column: NDArray, values: ArrayLike) -> NDArray[np.bool_]:
    if column.ndim == 1:
        return np.isin(column, values)
    found = np.zeros(len(column), np.bool_)
    for row in np.asarray(values, column.dtype):
        found |= (column == row).all(axis=1)
    return found
