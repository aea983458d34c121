"""Replaces addresses and ports in captured Ethernet frames."""

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import Packets

from ._source import ReplayError

__all__ = ["Rewrite"]

_UDP, _TCP = 17, 6
_VLAN_TAGS = (0x8100, 0x88A8, 0x9100)
# Position of the field in its header.
_MAC = {"mac_dst": 0, "mac_src": 6}
_IP = {"ip_src": 12, "ip_dst": 16}
_PORT = {"udp_src": 0, "udp_dst": 2}

Rows = NDArray[np.uint8]
Places = NDArray[np.int64]


class Rewrite:
    """Replaces addresses and ports in Ethernet frames, and updates their checksums.

    Checksums are updated by the difference, also those of fragments: a correct checksum stays
    correct, and one that is wrong or absent stays so.

    Parameters
    ----------
    fields : dict
        ``mac_src``, ``mac_dst`` (``"02:00:00:00:00:01"``), ``ip_src``, ``ip_dst`` (IPv4
        addresses), ``udp_src``, ``udp_dst`` (ports).

    Raises
    ------
    ReplayError
        If there is no such field, or a value is not valid.

    Notes
    -----
    Formats: RFC 791 (IPv4), RFC 768 (UDP), RFC 9293 (TCP), IEEE 802.1Q (VLAN); checksums: RFC 1624.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        known = [*_MAC, *_IP, *_PORT]
        if unknown := sorted(fields.keys() - set(known)):
            raise ReplayError(
                f"rewrite has unknown fields {', '.join(unknown)}; known are {', '.join(known)}."
            )
        self._macs = {_MAC[name]: _mac(name, fields[name]) for name in _MAC if name in fields}
        self._ips = {_IP[name]: _ipv4(name, fields[name]) for name in _IP if name in fields}
        self._ports = {_PORT[name]: _port(name, fields[name]) for name in _PORT if name in fields}

    def check(self, packets: Packets, describe: Callable[[int], str]) -> None:
        """Check that frames have the fields.

        Parameters
        ----------
        packets : Packets
            Ethernet frames.
        describe : callable
            Returns the packet number and the file of a frame, for errors.

        Raises
        ------
        ReplayError
            If a frame does not have them.
        """
        columns = packets.to_columns(["ip_version", "transport"])
        _require(packets.lengths >= 14, describe, "an Ethernet frame", "mac", "")
        if self._ips:
            _require(
                columns["ip_version"] == 4, describe, "an IPv4 packet", "ip", "'ip_version': 4"
            )
        if self._ports:
            is_udp = columns["transport"] == _UDP
            _require(is_udp, describe, "a UDP datagram", "udp", f"'transport': {_UDP}")

    def rows(self, packets: Packets) -> Rows:
        """Return copies of checked frames with the fields changed.

        Parameters
        ----------
        packets : Packets
            Ethernet frames.

        Returns
        -------
        ndarray of uint8, shape (n, longest)
            One frame per row, padded with 0.
        """
        rows = packets.gather()
        for at, address in self._macs.items():
            rows[:, at : at + 6] = np.frombuffer(address, np.uint8)
        if not self._ips and not self._ports:
            return rows
        columns = packets.to_columns(["transport", "payload_offset"])
        transport = columns["transport"]
        udp = columns["payload_offset"] - packets.offsets - 8
        # Changes of the sums of addresses and of ports.
        addresses = ports = np.zeros(len(rows), np.int64)
        for at, port in self._ports.items():
            ports = ports + _replace(rows, udp + at, port)
        if self._ips:
            ip = _ip_places(rows)
            for at, address in self._ips.items():
                addresses = addresses + _replace(rows, ip + at, address)
            _correct(rows, ip + 10, addresses)
            is_tcp = np.flatnonzero(transport == _TCP)
            tcp = ip[is_tcp] + 4 * (rows[is_tcp, ip[is_tcp]] & 15).astype(np.int64)
            _correct(rows, tcp + 16, addresses[is_tcp], is_tcp)
        is_udp = np.flatnonzero(transport == _UDP)
        _correct(rows, udp[is_udp] + 6, (addresses + ports)[is_udp], is_udp, may_lack=True)
        return rows


def _require(
    having: NDArray[np.bool_],
    describe: Callable[[int], str],
    kind: str,
    fields: str,
    select: str,
) -> None:
    if having.all():
        return
    fix = f"; leave such packets out: select={{{select}}}" if select else ""
    raise ReplayError(
        f"{describe(int(np.argmin(having)))} is not {kind}, so {fields}_src and {fields}_dst "
        f"cannot be rewritten{fix}."
    )


def _ip_places(rows: Rows) -> Places:
    """Return the position of the IPv4 header of each frame, after VLAN tags."""
    places = np.full(len(rows), 14, np.int64)
    for _ in range(4):
        tagged = np.isin(_word(rows, places - 2), _VLAN_TAGS)
        if not tagged.any():
            break
        places[tagged] += 4
    return places


def _word(rows: Rows, places: Places, index: Places | None = None) -> NDArray[np.int64]:
    index = np.arange(len(rows)) if index is None else index
    return rows[index, places].astype(np.int64) << 8 | rows[index, places + 1]


def _replace(rows: Rows, places: Places, value: bytes) -> NDArray[np.int64]:
    """Write a value into each row; return the change of the ones' complement sum."""
    change = np.zeros(len(rows), np.int64)
    index = np.arange(len(rows))
    for at in range(0, len(value), 2):
        new = int.from_bytes(value[at : at + 2], "big")
        change += (0xFFFF ^ _word(rows, places + at)) + new
        rows[index, places + at], rows[index, places + at + 1] = value[at], value[at + 1]
    return change


def _correct(
    rows: Rows,
    places: Places,
    change: NDArray[np.int64],
    index: Places | None = None,
    *,
    may_lack: bool = False,
) -> None:
    """Update the checksums of some rows; with ``may_lack``, 0 means none, as in UDP."""
    index = np.arange(len(rows)) if index is None else index
    before = _word(rows, places, index)
    total = (0xFFFF ^ before) + change
    for _ in range(3):
        total = (total & 0xFFFF) + (total >> 16)
    after = 0xFFFF ^ total
    if may_lack:
        after = np.where(before == 0, 0, np.where(after == 0, 0xFFFF, after))
    rows[index, places], rows[index, places + 1] = after >> 8, after & 0xFF


def _mac(name: str, value: Any) -> bytes:
    pairs = value.split(":") if isinstance(value, str) else []
    try:
        if len(pairs) == 6 and {len(pair) for pair in pairs} == {2}:
            return bytes.fromhex("".join(pairs))
    except ValueError:
        pass
    raise ReplayError(f"{name} is {value!r}; accepted is an address such as 02:00:00:00:00:01.")


def _ipv4(name: str, value: Any) -> bytes:
    try:
        return ipaddress.IPv4Address(str(value)).packed
    except ValueError as error:
        raise ReplayError(f"{name} is {value!r}; accepted is an IPv4 address.") from error


def _port(name: str, value: Any) -> bytes:
    if type(value) is not int or not 0 <= value <= 0xFFFF:
        raise ReplayError(f"{name} is {value!r}; accepted is a port, 0 to 65535.")
    return value.to_bytes(2, "big")
