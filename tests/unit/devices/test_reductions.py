"""Reductions of packets against plain Python over the same packets."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daqiri_ophyd.devices import reductions
from daqiri_ophyd.engine import LINKTYPE_ETHERNET, Packets, ethernet

ADDRESSES = {
    "src_mac": "02:00:00:00:00:01",
    "dst_mac": "02:00:00:00:00:02",
    "src_ip": "192.0.2.1",
    "dst_ip": "192.0.2.2",
    "src_port": 4000,
    "dst_port": 5000,
}


def packets(payloads: list[bytes], times: list[int] | None = None) -> Packets:
    found = [
        ethernet.udp_frames(np.frombuffer(payload, np.uint8)[np.newaxis], **ADDRESSES)[0]
        for payload in payloads
    ]
    lengths = np.array([len(frame) for frame in found], np.uint32)
    stamps = np.array(range(len(payloads)) if times is None else times, np.int64)
    data = np.concatenate([*found, np.zeros(0, np.uint8)])
    offsets = np.cumsum(lengths, dtype=np.int64) - lengths
    return Packets(data, LINKTYPE_ETHERNET, offsets, lengths, lengths, stamps)


def value(reduction: reductions.Reduction, given: Packets) -> float:
    return reduction.function(given)


def test_rate_and_gaps():
    given = packets([bytes(20)] * 4, times=[0, 1000, 5000, 6000])
    assert value(reductions.mean_gap(), given) == 2000
    assert value(reductions.longest_gap(), given) == 4000
    assert value(reductions.rate(), given) == 500_000


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_packets_have_no_gaps(count):
    given = packets([bytes(20)] * count)
    for reduction in (reductions.rate(), reductions.mean_gap(), reductions.longest_gap()):
        assert math.isnan(value(reduction, given))
    assert math.isnan(value(reductions.lost_numbers(0, 4), packets([])))
    assert math.isnan(value(reductions.payload_mean(">u2"), packets([])))
    assert value(reductions.payload_sum(">u2"), packets([])) == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 65535), max_size=9), min_size=1, max_size=6))
def test_sums_and_means(payloads):
    given = packets([b"\xff" * 3 + np.array(words, ">u2").tobytes() for words in payloads])
    words = [word for payload in payloads for word in payload]
    assert value(reductions.payload_sum(">u2", 3), given) == sum(words)
    mean = value(reductions.payload_mean(">u2", 3), given)
    assert mean == sum(words) / len(words) if words else math.isnan(mean)


def test_floats():
    given = packets([np.array([0.5, -2.0], "<f4").tobytes(), np.array([4.0], "<f4").tobytes()])
    assert value(reductions.payload_sum("<f4"), given) == 2.5


@settings(deadline=None, max_examples=100)
@given(
    size=st.integers(1, 8),
    order=st.sampled_from(["big", "little"]),
    first=st.integers(0, 2**64 - 1),
    kept=st.lists(st.booleans(), min_size=2, max_size=40),
    swap=st.integers(0, 38),
)
def test_lost_numbers_across_a_wrap_around(size, order, first, kept, swap):
    numbers = [(first + i) % 256**size for i, keep in enumerate(kept) if keep]
    if not numbers:
        return
    if swap + 1 < len(numbers):
        numbers[swap], numbers[swap + 1] = numbers[swap + 1], numbers[swap]
    numbers.append(numbers[0])  # a duplicate
    given = packets([b"head" + number.to_bytes(size, order) + b"tail" for number in numbers])
    places = [i for i, keep in enumerate(kept) if keep]
    expected = places[-1] - places[0] + 1 - len(places)
    assert value(reductions.lost_numbers(4, size, order=order), given) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: reductions.lost_numbers(-1, 4),
        lambda: reductions.lost_numbers(0, 9),
        lambda: reductions.lost_numbers(0, 4, order="middle"),
        lambda: reductions.payload_sum("U4"),
        lambda: reductions.payload_mean(">u2", -1),
    ],
)
def test_refused(make):
    with pytest.raises(ValueError, match="accepted are"):
        make()


def test_files_are_read_in_parts():
    numbers = np.arange(70_000, dtype=">u4").view(np.uint8).reshape(-1, 4)
    rows = ethernet.udp_frames(numbers, **ADDRESSES)
    lengths = np.full(len(rows), rows.shape[1], np.uint32)
    offsets = np.arange(len(rows), dtype=np.int64) * rows.shape[1]
    many = Packets(rows.reshape(-1), LINKTYPE_ETHERNET, offsets, lengths, lengths, offsets)
    assert value(reductions.lost_numbers(0, 4), many) == 0
    assert value(reductions.payload_sum(">u4"), many) == 70_000 * 69_999 / 2
