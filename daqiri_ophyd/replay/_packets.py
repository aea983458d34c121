"""Descriptions of packets to send."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import engine
from daqiri_ophyd.ship import StoredObject

from ._arrays import NumberedPackets, PacketArray
from ._frame_replay import FrameReplay
from ._replay import Replay
from ._source import PacketSource

__all__ = ["File", "Packets", "Span", "frame_source", "packet_source", "replay_source"]

File = str | os.PathLike[str] | engine.Packets | StoredObject
_FILES = (str, os.PathLike, engine.Packets, StoredObject)
Packets = PacketSource | NDArray[np.uint8] | Mapping[str, Any] | File | Sequence[File]
"""Packets to send: a source, an array, pcap files, packets of a file, or a description."""

Span = Sequence[float | None]
"""First value and end; the end may be None."""

_NUMBERED = {"count", "size"}
_ADDRESSES = {"udp_dst", "udp_src", "ip_dst", "ip_src", "mac_dst", "mac_src"}
_PORTS = {"udp_dst", "udp_src"}
_REPLAY = {
    *("speed", "max_gap", "between", "packet_range", "select", "loops", "loop_gap", "rewrite"),
}


def packet_source(
    packets: Packets, link_type: int, segment_size: int | None = None
) -> PacketSource:
    """Create a packet source from a description, which may come from a queue server.

    Parameters
    ----------
    packets : PacketSource, ndarray, engine.Packets, dict, path or sequence of these two
        A source is returned unchanged. An array of uint8, shape (n, length), has one packet per
        row, sent as fast as possible. A string or path, or a sequence of them, names pcap files;
        packets of a `PcapFile` can replace a file. A dict has either ``count``, ``size`` (payload
        bytes), ``interval`` (s) or ``rate`` (packets/s; without either: as fast as possible) and
        addresses (``udp_dst``, ``udp_src``, ``ip_dst``, ``ip_src``, ``mac_dst``, ``mac_src``), or
        ``files`` and the parameters of `replay`: ``speed``, ``max_gap``, ``between``,
        ``packet_range``, ``select``, ``loops``, ``loop_gap``, ``rewrite``.
    link_type, segment_size : int, int or None
        Values of the port that sends: `TxQueue.link_type`, `TxQueue.segment_size`.

    Raises
    ------
    TypeError
        If ``packets`` is not one of these types.
    ValueError
        If a key is missing, unknown or in conflict with another, or a value is not a number.
    daqiri_ophyd.replay.ReplayError
        If the files cannot be sent on such a port.
    """
    if isinstance(packets, PacketSource):
        return packets
    if isinstance(packets, np.ndarray):
        return PacketArray(packets)
    if isinstance(packets, Mapping):
        if "files" not in packets:
            return _numbered(packets, link_type)
        _require_known(packets, {"files"} | _REPLAY)
        options = {key: packets[key] for key in _REPLAY & packets.keys()}
        return replay_source(_files(packets["files"]), link_type, segment_size, **options)
    return replay_source(_files(packets), link_type, segment_size)


def replay_source(
    files: Iterable[File],
    link_type: int,
    segment_size: int | None = None,
    *,
    speed: float = 1.0,
    max_gap: float | None = None,
    between: Span | None = None,
    packet_range: Span | None = None,
    select: Mapping[str, Any] | None = None,
    loops: int = 1,
    loop_gap: float | None = None,
    rewrite: Mapping[str, Any] | None = None,
) -> Replay:
    """Create a replay from plain values, with times in s; the parameters are those of `replay`."""
    return Replay(
        files,
        link_type=link_type,
        segment_size=segment_size,
        speed=_number("speed", speed),
        max_gap_ns=_ns("max_gap", max_gap),
        between_ns=_span("between", between, _ns),
        packet_range=_span("packet_range", packet_range, _whole),
        select=select,
        loops=_whole("loops", loops),
        loop_gap_ns=_ns("loop_gap", loop_gap),
        rewrite=rewrite,
    )


def frame_source(
    files: Iterable[str | os.PathLike[str] | StoredObject],
    config: engine.ConfigSource,
    link_type: int,
    *,
    speed: float = 1.0,
    max_gap: float | None = None,
    loops: int = 1,
    loop_gap: float | None = None,
) -> FrameReplay:
    """Create a `FrameReplay` from plain values, with times in s."""
    return FrameReplay(
        files,
        config,
        link_type=link_type,
        speed=_number("speed", speed),
        max_gap_ns=_ns("max_gap", max_gap),
        loops=_whole("loops", loops),
        loop_gap_ns=_ns("loop_gap", loop_gap),
    )


def _files(packets: Any) -> list[File]:
    one = isinstance(packets, _FILES)
    files: list[Any] = [packets] if one else list(packets) if isinstance(packets, Sequence) else []
    if not one and not isinstance(packets, Sequence):
        raise TypeError(
            f"packets is a {type(packets).__name__}; accepted are pcap files, packets of a "
            "PcapFile, an array of uint8, a packet source, or a dict that describes packets."
        )
    for file in files:
        if not isinstance(file, _FILES):
            raise TypeError(
                f"packets has a {type(file).__name__}; accepted are paths of pcap files, and "
                "packets of a PcapFile. Packets in memory are an array of uint8, (n, length)."
            )
    return files


def _numbered(packets: Mapping[str, Any], link_type: int) -> NumberedPackets:
    _require_known(packets, _NUMBERED | {"interval", "rate"} | _ADDRESSES)
    if missing := sorted(_NUMBERED - packets.keys()):
        raise ValueError(
            f"packets lacks {' and '.join(missing)}; give count and size, or files to replay."
        )
    if {"interval", "rate"} <= packets.keys():
        raise ValueError("packets has both interval and rate; give one of them.")
    interval = _number("interval", packets.get("interval", 0.0))
    if "rate" in packets:
        rate = _number("rate", packets["rate"])
        if not rate > 0:
            raise ValueError(f"rate is {rate}; accepted is a positive number, packets/s.")
        interval = 1.0 / rate
    addresses = {key: packets[key] for key in _ADDRESSES & packets.keys()}
    addresses |= {key: _whole(key, addresses[key]) for key in _PORTS & addresses.keys()}
    return NumberedPackets(
        _whole("count", packets["count"]),
        _whole("size", packets["size"]),
        round(interval * 1e9),
        link_type=link_type,
        **addresses,
    )


def _number(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ValueError(f"{name} is {value!r}; accepted is a number.")
    return value


def _whole(name: str, value: Any) -> int:
    """Return a whole number; JSON and forms may write 1000 as 1e3."""
    if _number(name, value) != value // 1:
        raise ValueError(f"{name} is {value!r}; accepted is a whole number.")
    return int(value)


def _ns(name: str, seconds: Any) -> int | None:
    return None if seconds is None else round(_number(name, seconds) * 1e9)


def _span(name: str, values: Any, convert: Any) -> Any:
    if values is None or isinstance(values, str) or not isinstance(values, Sequence):
        return values
    return [None if value is None else convert(name, value) for value in values]


def _require_known(packets: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(packets.keys() - known):
        raise ValueError(
            f"packets has unknown keys {', '.join(unknown)}; known are {', '.join(sorted(known))}."
        )
