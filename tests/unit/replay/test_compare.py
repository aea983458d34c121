"""Sent packets against captured ones."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import dpkt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.replay import (
    Comparison,
    GapErrors,
    NumberedPackets,
    Replay,
    compare,
    gap_errors,
)
from daqiri_ophyd.replay._gaps import GapStatistics

NO_GAPS = GapErrors(0, 0, 0, 0, 0.0)


@pytest.fixture
def difference(write_pcap: Callable[..., Path]) -> Callable[..., Comparison]:
    """Compare two lists of frames, read in parts of different length."""

    def compare_frames(sent: list[bytes], captured: list[bytes]) -> Comparison:
        first = write_pcap(sent, range(0, 1000 * len(sent), 1000), name="sent.pcap")
        second = write_pcap(captured, range(5, 1000 * len(captured), 1000), name="captured.pcap")
        return compare(
            Replay([first], link_type=1, chunk_packets=3),
            Replay([second], link_type=1, chunk_packets=4),
        )

    return compare_frames


FRAMES = [bytes([i]) * (60 + i % 3) for i in range(10)]


def test_identical_packets(difference):
    assert difference(FRAMES, FRAMES) == Comparison(
        "packets", 10, 10, 10, "", GapErrors(9, 0, 0, 0, 0.0)
    )
    assert difference([], []) == Comparison("packets", 0, 0, 0, "", NO_GAPS)


def test_the_first_difference_is_named(difference):
    changed = [*FRAMES[:7], FRAMES[7][:40] + b"\xff" + FRAMES[7][41:], FRAMES[8], b"z" * 60]
    found = difference(FRAMES, changed)
    assert found.difference == "packet 7 differs: byte 40 is 0xff instead of 0x07"
    assert (found.sent, found.captured, found.identical) == (10, 10, 7)
    assert found.gaps.count == 6

    longer = [*FRAMES[:2], FRAMES[2] + b"x", *FRAMES[3:]]
    assert difference(FRAMES, longer).difference == "packet 2 has 63 bytes instead of 62"
    assert difference(FRAMES[::-1], FRAMES).difference.startswith("packet 0 differs: byte 0 is")


def test_packets_that_are_missing_or_too_many(difference):
    assert difference(FRAMES, FRAMES[:8]).difference == "packets 8 to 9 were not captured"
    assert difference(FRAMES, []).difference == "packets 0 to 9 were not captured"
    more = difference(FRAMES[:8], FRAMES)
    assert more.difference == "2 packets more were captured than sent"
    assert (more.sent, more.captured, more.identical) == (8, 10, 8)


@pytest.fixture
def stream(write_pcap: Callable[..., Path]) -> Callable[..., Replay]:
    """Return a replay of a TCP capture with these records."""

    def make(*records: bytes, name: str, size: int = 7) -> Replay:
        packets, at = [], 1
        for record in records:
            tcp = dpkt.tcp.TCP(sport=1, dport=2, seq=at, data=record)
            packet = dpkt.ip.IP(src=b"\1" * 4, dst=b"\2" * 4, p=6, data=tcp)
            packet.len = len(packet)
            packets.append(bytes(packet))
            at += len(record)
        file = write_pcap(packets, range(len(packets)), 101, name=name)
        return Replay([file], link_type=101, segment_size=size, chunk_packets=2)

    return make


def test_streams_are_compared_by_their_bytes(stream):
    sent = stream(b"one", b"two" * 5, b"three", name="sent.pcap")
    same = stream(b"on", b"etwotwotwotwotwoth", b"ree", name="same.pcap", size=4)
    assert compare(sent, same) == Comparison("bytes", 23, 23, 23, "", NO_GAPS)

    other = stream(b"onetwotwotwoTwotwothree", name="other.pcap")
    found = compare(sent, other)
    assert found.difference == "byte 12 of the stream is 0x54 instead of 0x74"
    assert (found.sent, found.captured, found.identical) == (23, 23, 12)

    short = stream(b"onetwo", name="short.pcap")
    assert compare(sent, short).difference == "bytes 6 to 22 were not captured"
    assert compare(short, sent).difference == "17 bytes more were captured than sent"


def test_memory_does_not_grow_with_the_capture(write_pcap):
    """64 MB, in chunks of 8 MiB."""
    source = NumberedPackets(64_000, 958)
    rows = [chunk.data.reshape(len(chunk), -1) for chunk in source.chunks()]
    frames = [row.tobytes() for block in rows for row in block]
    file = write_pcap(frames, range(len(frames)))
    del rows, frames
    tracemalloc.start()
    try:
        result = compare(source, Replay([file], link_type=1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result.difference, result.identical) == ("", 64_000)
    assert peak < 40 << 20


@given(
    st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=40),
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
)
def test_gap_statistics_are_those_of_gap_errors(found, steps):
    """Quantiles up to 1.6 % above."""
    found_ns = np.asarray(found)
    intended = np.arange(len(found)) * 1000
    statistics = GapStatistics()
    at = 0
    while at < len(found):
        step = steps[at % len(steps)]
        statistics.add(intended[at : at + step], found_ns[at : at + step])
        at += step
    exact, result = gap_errors(intended, found_ns), statistics.result()
    assert (result.count, result.maximum) == (exact.count, exact.maximum)
    assert result.mean == pytest.approx(exact.mean)
    for name in ("p50", "p99"):
        value = getattr(exact, name)
        assert value <= getattr(result, name) <= min(exact.maximum, value * 1.016 + 1)
