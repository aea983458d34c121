"""Descriptions of packets to send."""

from collections.abc import Mapping, Sequence
from typing import Any

from daqiri_ophyd.replay import NumberedPackets, PacketSource, Replay

__all__ = ["Packets", "packet_source"]

Packets = PacketSource | Mapping[str, Any] | str | Sequence[str]
"""Packets to send: a source, a description of numbered packets, or pcap files."""

_NUMBERED = {"count", "size"}
_ADDRESSES = {"udp_dst", "udp_src", "ip_dst", "ip_src", "mac_dst", "mac_src"}
_FILES = {"files", "speed", "max_gap"}


def packet_source(packets: Packets, link_type: int) -> PacketSource:
    """Create a packet source from a description, which may come from a queue server.

    Parameters
    ----------
    packets : PacketSource, dict, str or sequence of str
        A source is returned unchanged. A string, or several, are pcap files. A dict has either
        ``count``, ``size`` (payload bytes), ``interval`` (s) or ``rate`` (packets/s; without both:
        as fast as possible) and addresses (``udp_dst``, ``udp_src``, ``ip_dst``,
        ``ip_src``, ``mac_dst``, ``mac_src``), or ``files``, ``speed`` and ``max_gap`` (s).
    link_type : int
        Link type of the port that sends: 1 Ethernet, 101 sockets.

    Raises
    ------
    ValueError
        If a key is missing, unknown or contradicts another.
    daqiri_ophyd.replay.ReplayError
        If the files cannot be sent on such a port.
    """
    if isinstance(packets, PacketSource):
        return packets
    if isinstance(packets, str):
        return Replay([packets], link_type=link_type)
    if not isinstance(packets, Mapping):
        return Replay(list(packets), link_type=link_type)
    return _files(packets, link_type) if "files" in packets else _numbered(packets, link_type)


def _files(packets: Mapping[str, Any], link_type: int) -> Replay:
    _require_known(packets, _FILES)
    files = packets["files"]
    gap = packets.get("max_gap")
    return Replay(
        [files] if isinstance(files, str) else files,
        link_type=link_type,
        speed=packets.get("speed", 1.0),
        max_gap_ns=None if gap is None else round(gap * 1e9),
    )


def _numbered(packets: Mapping[str, Any], link_type: int) -> NumberedPackets:
    _require_known(packets, _NUMBERED | {"interval", "rate"} | _ADDRESSES)
    if missing := sorted(_NUMBERED - packets.keys()):
        raise ValueError(
            f"packets lacks {' and '.join(missing)}; give count and size, or files to replay."
        )
    if {"interval", "rate"} <= packets.keys():
        raise ValueError("packets has both interval and rate; give one of them.")
    interval = packets.get("interval", 0.0)
    if "rate" in packets:
        if not packets["rate"] > 0:
            raise ValueError(
                f"rate is {packets['rate']}; accepted is a positive number, packets/s."
            )
        interval = 1.0 / packets["rate"]
    return NumberedPackets(
        packets["count"],
        packets["size"],
        round(interval * 1e9),
        link_type=link_type,
        **{key: packets[key] for key in _ADDRESSES & packets.keys()},
    )


def _require_known(packets: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(packets.keys() - known):
        raise ValueError(
            f"packets has unknown keys {', '.join(unknown)}; known are {', '.join(sorted(known))}."
        )
