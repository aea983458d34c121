"""Packets in memory, numbered packets, and gaps."""

import numpy as np
import pytest

from daqiri_ophyd.engine import ethernet
from daqiri_ophyd.replay import (
    NumberedPackets,
    PacketArray,
    PacketSource,
    gap_errors,
    schedule,
)


def rows(source) -> np.ndarray:
    return np.concatenate([chunk.data.reshape(len(chunk), -1) for chunk in source.chunks()])


def test_an_array_is_sent_as_it_is():
    packets = np.arange(60, dtype=np.uint8).reshape(6, 10)
    source = PacketArray(packets, [1000, 1005, 1005, 1100, 1101, 2000])

    assert isinstance(source, PacketSource)
    assert np.array_equal(rows(source), packets)
    assert schedule(source).tolist() == [0, 5, 5, 100, 101, 1000]
    assert (source.packets, source.duration_ns) == (6, 1000)


def test_arrays_without_a_schedule_or_packets():
    assert next(PacketArray(np.zeros((3, 5), np.uint8)).chunks()).times is None
    assert schedule(PacketArray(np.zeros((3, 5), np.uint8))).tolist() == [0, 0, 0]
    empty = PacketArray(np.zeros((0, 5), np.uint8), [])
    assert (list(empty.chunks()), empty.duration_ns, len(schedule(empty))) == ([], 0, 0)


def test_columns_of_an_array_are_copied_once():
    packets = np.arange(40, dtype=np.uint8).reshape(4, 10)[:, ::2]
    assert np.array_equal(rows(PacketArray(packets)), packets)


@pytest.mark.parametrize(
    ("packets", "times", "text"),
    [
        (np.zeros(5, np.uint8), None, r"shape \(5,\)"),
        (np.zeros((2, 5), np.int32), None, "int32"),
        (np.zeros((2, 5), np.uint8), [1], r"there are 2 packets"),
        (np.zeros((3, 5), np.uint8), [1, 3, 2], r"times\[2\] is earlier"),
    ],
)
def test_wrong_arrays(packets, times, text):
    with pytest.raises(ValueError, match=text):
        PacketArray(packets, times)


def test_numbered_packets_are_frames_with_running_numbers():
    source = NumberedPackets(1000, 64, 2000, udp_dst=5001)
    sent = rows(source)

    assert sent.shape == (1000, 64 + ethernet.UDP_OVERHEAD)
    offsets, lengths = ethernet.udp_payload(sent)
    assert set(lengths) == {64}
    payload = sent.reshape(-1)[offsets[:, np.newaxis] + np.arange(64)]
    assert payload[:, :8].copy().view(">i8").reshape(-1).tolist() == list(range(1000))
    assert payload[300, 8:12].tolist() == [(300 + 8 + i) % 256 for i in range(4)]
    assert sent[0, 36:38].tolist() == [5001 >> 8, 5001 & 255]
    assert schedule(source).tolist() == [2000 * i for i in range(1000)]
    assert source.duration_ns == 999 * 2000


def test_numbered_packets_come_in_chunks():
    source = NumberedPackets(30_000, 1458, 10, link_type=101)
    sizes = [len(chunk) for chunk in source.chunks()]
    assert sum(sizes) == 30_000
    assert max(sizes) * 1458 <= 8 << 20
    numbers = [
        int.from_bytes(chunk.data[chunk.offsets[0] :][:8].tobytes(), "big")
        for chunk in source.chunks()
    ]
    assert numbers == np.cumsum([0, *sizes[:-1]]).tolist()


def test_numbered_packets_as_fast_as_possible():
    assert next(NumberedPackets(10, 8).chunks()).times is None
    assert list(NumberedPackets(0, 8).chunks()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((-1, 8), "count is -1"), ((1, 7), "size is 7"), ((1, 8, -5), "interval_ns is -5")],
)
def test_wrong_numbered_packets(arguments, text):
    with pytest.raises(ValueError, match=text):
        NumberedPackets(*arguments)


def test_gap_errors():
    intended = [0, 1000, 2000, 3000, 4000]
    found = [500, 1500, 2510, 3510, 4470]
    errors = gap_errors(intended, found)
    assert (errors.count, errors.p50, errors.p99, errors.maximum) == (4, 10, 40, 40)
    assert errors.mean == pytest.approx((0 + 10 + 0 - 40) / 4)


def test_gaps_of_too_few_packets():
    assert gap_errors([], []).count == 0
    assert gap_errors([5], [9]).maximum == 0


def test_gaps_of_different_packets_cannot_be_compared():
    with pytest.raises(ValueError, match=r"\(3,\) intended and \(2,\) found"):
        gap_errors([1, 2, 3], [1, 2])
