"""Comparison of sent packets with captured packets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import LINKTYPE_RAW, Packets

from ._gaps import GapErrors, GapStatistics
from ._replay import Replay
from ._source import PacketSource

__all__ = ["Comparison", "compare"]

_BLOCK_BYTES = 4 << 20

_Block = TypeVar("_Block", bound=Any)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of a comparison of sent packets with captured packets.

    Parameters
    ----------
    unit : str
        Unit of the counts: ``packets``, or ``bytes`` of a TCP stream.
    sent, captured : int
        Number of packets or bytes sent and captured.
    identical : int
        Number of identical packets or bytes, counted from the first one.
    difference : str
        Description of the first difference; empty if there is none.
    gaps : GapErrors
        Deviations of the gaps between identical packets; zeros for a TCP stream, whose captured
        records differ from the packets sent.
    """

    unit: str
    sent: int
    captured: int
    identical: int
    difference: str
    gaps: GapErrors


def compare(sent: PacketSource, captured: Replay) -> Comparison:
    """Compare sent packets with captured packets, in order, a few MiB at a time.

    Parameters
    ----------
    sent : PacketSource
        Packets sent, with their due times.
    captured : Replay
        Packets captured. With a ``segment_size``, the bytes of the streams are compared,
        independent of their division into packets.

    Returns
    -------
    Comparison
        Counts, first difference and gaps.
    """
    if captured.stream_bytes is not None:
        return _compare_streams(sent, captured)
    gaps = GapStatistics()
    identical, difference = 0, ""
    for a, b in _paired(_blocks(sent), _blocks(captured)):
        count, difference = _first_difference(a, b, identical)
        gaps.add(a.timestamps[:count], b.timestamps[:count])
        identical += count
        if difference:
            break
    return _result("packets", sent.packets, captured.packets, identical, difference, gaps)


def _compare_streams(sent: PacketSource, captured: Replay) -> Comparison:
    identical, difference = 0, ""
    for a, b in _paired(_stream(sent), _stream(captured)):
        differ = a != b
        if differ.any():
            at = int(np.argmax(differ))
            identical += at
            difference = f"byte {identical} of the stream is {b[at]:#04x} instead of {a[at]:#04x}"
            break
        identical += len(a)
    size, found = (sum(int(c.lengths.sum()) for c in s.chunks()) for s in (sent, captured))
    return _result("bytes", size, found, identical, difference, GapStatistics())


def _result(
    unit: str, sent: int, captured: int, identical: int, difference: str, gaps: GapStatistics
) -> Comparison:
    if not difference and captured < sent:
        difference = f"{unit} {captured} to {sent - 1} were not captured"
    if not difference and captured > sent:
        difference = f"{captured - sent} {unit} more were captured than sent"
    return Comparison(unit, sent, captured, identical, difference, gaps.result())


def _first_difference(sent: Packets, captured: Packets, first: int) -> tuple[int, str]:
    """Return the number of identical packets, and a description of the next difference."""
    same = sent.lengths == captured.lengths
    alike = len(sent) if same.all() else int(np.argmin(same))
    differ = sent[:alike].gather() != captured[:alike].gather()
    if differ.any():
        at = int(np.argmax(differ.any(axis=1)))
        byte = int(np.argmax(differ[at]))
        return at, (
            f"packet {first + at} differs: byte {byte} is {captured[at][byte]:#04x} instead of "
            f"{sent[at][byte]:#04x}"
        )
    if alike < len(sent):
        return alike, (
            f"packet {first + alike} has {captured.lengths[alike]} bytes instead of "
            f"{sent.lengths[alike]}"
        )
    return alike, ""


def _paired(first: Iterator[_Block], second: Iterator[_Block]) -> Iterator[tuple[_Block, _Block]]:
    """Cut two sequences of blocks into pairs of the same length, until one of them ends."""
    a = b = None
    while True:
        a = next(first, None) if a is None or not len(a) else a
        b = next(second, None) if b is None or not len(b) else b
        if a is None or b is None:
            return
        size = min(len(a), len(b))
        yield a[:size], b[:size]
        a, b = a[size:], b[size:]


def _blocks(source: PacketSource) -> Iterator[Packets]:
    """Yield the packets of a source, in parts of at most some MiB."""
    for chunk in source.chunks():
        lengths = chunk.lengths.astype(np.uint32)
        times = np.zeros(len(chunk), np.int64) if chunk.times is None else chunk.times
        whole = Packets(chunk.data, LINKTYPE_RAW, chunk.offsets, lengths, lengths, times)
        yield from whole.chunks(max(1, _BLOCK_BYTES // max(1, int(lengths.max(initial=0)))))


def _stream(source: PacketSource) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of the packets of a source."""
    for block in _blocks(source):
        rows = block.gather()
        yield rows[np.arange(rows.shape[1]) < block.lengths[:, np.newaxis]]
