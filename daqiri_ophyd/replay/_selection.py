"""A part of captured packets: by time, by number, by header fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from daqiri_ophyd.engine import Packets

from ._source import ReplayError

__all__ = ["Selection"]

_END = 2**63 - 1
# Timestamps are not always in order: those at the ends of a file are no strict limits.
_MARGIN_NS = 1_000_000_000


class Selection:
    """The packets of a capture to send; a packet must match all given criteria.

    Parameters
    ----------
    between_ns : pair of int, optional
        Times, from the first to before the second, ns after the first packet of the capture. The
        second may be None: to the end.
    packet_range : pair of int, optional
        Numbers of packets, from the first to before the second; the first packet of the capture is
        0. The second may be None: to the end.
    select : dict, optional
        Header fields, as for `Packets.select`: ``{"udp_dst": 5000, "ipv4_src": "10.0.0.1"}``.

    Raises
    ------
    ReplayError
        If a pair is not a pair, or is empty.
    """

    def __init__(
        self,
        between_ns: Sequence[int | None] | None = None,
        packet_range: Sequence[int | None] | None = None,
        select: Mapping[str, Any] | None = None,
    ) -> None:
        self._times = _pair("between", between_ns)
        self._numbers = _pair("packet_range", packet_range)
        self._fields = dict(select or {})
        if "mask" in self._fields:
            raise ReplayError("select has 'mask'; accepted are header fields, such as udp_dst.")
        given = {"between_ns": between_ns, "packet_range": packet_range, "select": select}
        self._text = ", ".join(f"{name}={value}" for name, value in given.items() if value)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __str__(self) -> str:
        return self._text

    def of(self, packets: Packets, first: int, start_ns: int) -> Packets:
        """Return the matching packets.

        Parameters
        ----------
        packets : Packets
            Consecutive packets of the capture.
        first : int
            Number of the first packet in the capture.
        start_ns : int
            Time stamp of the capture's first packet, ns.
        """
        begin, end = self._numbers
        part = packets[max(0, begin - first) : max(0, end - first)]
        if self._times != (0, _END):
            begin, end = self._times
            part = part.between(start_ns + begin, min(_END, start_ns + end))
        return part.select(**self._fields) if self._fields and len(part) else part

    def leaves_out(
        self, first: int, count: int, first_ns: int, last_ns: int, start_ns: int
    ) -> bool:
        """Return whether a file certainly has none of the packets.

        Parameters
        ----------
        first, count : int
            Number of its first packet in the capture, and its number of packets.
        first_ns, last_ns, start_ns : int
            Timestamps of its first and last packet, and of the first packet of the capture, ns.
        """
        begin, end = self._numbers
        if not count or first >= end or first + count <= begin:
            return True
        begin, end = self._times
        if self._times == (0, _END) or first_ns > last_ns:  # the clock was set
            return False
        return first_ns - _MARGIN_NS >= start_ns + end or last_ns + _MARGIN_NS < start_ns + begin


def _pair(name: str, values: Sequence[int | None] | None) -> tuple[int, int]:
    if values is None:
        return 0, _END
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != 2:
        raise ReplayError(f"{name} is {values!r}; accepted are two values: begin and end.")
    begin, end = values[0] or 0, _END if values[1] is None else values[1]
    if not 0 <= begin < end:
        raise ReplayError(
            f"{name} is {tuple(values)}; accepted is a begin of 0 or more, and a later end."
        )
    return begin, end
