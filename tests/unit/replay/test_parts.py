"""Parts of captures, by time, number and header fields, and loops."""

from collections.abc import Callable
from pathlib import Path

import pytest

from daqiri_ophyd.engine import InvalidParameterError, PcapFile
from daqiri_ophyd.replay import PacketSource, Replay, ReplayError, schedule

START = 1_700_000_000_000_000_000
MS = 1_000_000


def sent(source: PacketSource) -> list[bytes]:
    return [
        chunk.data[offset : offset + length].tobytes()
        for chunk in source.chunks()
        for offset, length in zip(chunk.offsets, chunk.lengths, strict=True)
    ]


@pytest.fixture
def packets(udp_frame: Callable[..., bytes]) -> list[bytes]:
    """Ten frames, in turns of two flows."""
    return [udp_frame(bytes([i]) * 20, f"10.0.0.{1 + i % 2}", 5000 + i % 2) for i in range(10)]


@pytest.fixture
def files(packets: list[bytes], write_pcap: Callable[..., Path]) -> list[Path]:
    """The frames in three files, 1 ms apart, and an empty file."""
    times = [START + i * MS for i in range(10)]
    return [
        write_pcap([], [], name="empty.pcap"),
        write_pcap(packets[:4], times[:4], name="a.pcap"),
        write_pcap(packets[4:7], times[4:7], name="b.pcap"),
        write_pcap(packets[7:], times[7:], name="c.pcap"),
    ]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"packet_range": (2, 8)}, range(2, 8)),
        ({"packet_range": (8, None)}, range(8, 10)),
        ({"packet_range": (0, 1)}, range(1)),
        ({"between_ns": (3 * MS, 8 * MS)}, range(3, 8)),
        ({"between_ns": (0, 1)}, range(1)),
        ({"between_ns": (9 * MS, None)}, range(9, 10)),
        ({"select": {"udp_dst": 5001}}, range(1, 10, 2)),
        ({"select": {"ipv4_src": ["10.0.0.1", "10.0.0.9"]}}, range(0, 10, 2)),
        (
            {"select": {"udp_dst": 5000}, "packet_range": (1, 9), "between_ns": (3 * MS, None)},
            range(4, 9, 2),
        ),
    ],
)
def test_a_part_is_sent_with_its_gaps(files, packets, options, expected, chunk):
    source = Replay(files, link_type=1, chunk_packets=chunk, **options)
    assert source.packets == len(expected)
    assert sent(source) == [packets[i] for i in expected]
    assert schedule(source).tolist() == [(i - expected[0]) * MS for i in expected]
    assert source.duration_ns == (expected[-1] - expected[0]) * MS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"packet_range": (10, 20)}, r"packet_range=\(10, 20\): none of the 10 packets of .*empty"),
        ({"between_ns": (20 * MS, None)}, r"between_ns=\(20000000, None\): none of the 10 packets"),
        ({"select": {"udp_dst": 7}}, r"select=\{'udp_dst': 7\}: none of the 10 packets .* 3 more"),
        ({"packet_range": (3, 3)}, r"packet_range is \(3, 3\); accepted is a begin of 0 or more"),
        ({"packet_range": (-3, 3)}, r"packet_range is \(-3, 3\)"),
        ({"packet_range": 5}, "packet_range is 5; accepted are two values"),
        ({"between_ns": "03"}, "between is '03'; accepted are two values"),
        ({"select": {"mask": [True]}}, "select has 'mask'"),
        ({"loops": 0}, "loops is 0; accepted is a whole number, 1 or more"),
        ({"loops": 1.5}, "loops is 1.5"),
        ({"loop_gap_ns": -1}, "loop_gap_ns is -1"),
    ],
)
def test_a_part_that_is_nothing_is_refused(files, options, text):
    with pytest.raises(ReplayError, match=text):
        Replay(files, link_type=1, **options)


def test_an_unknown_field_is_named(files):
    with pytest.raises(InvalidParameterError, match="colour"):
        Replay(files, link_type=1, select={"colour": 3})


def test_files_outside_of_the_part_are_not_read(files, packets, tmp_path):
    for name, first, count in (("a", 0, 4), ("b", 4, 3), ("c", 7, 3)):
        times = START + first * 10**10, START + (first + count - 1) * 10**10
        (tmp_path / f"{name}.pcap.json").write_text(
            f'{{"packets": {count}, "bytes": 100, "dropped": 0, "link_type": 1, '
            f'"t_first_ns": {times[0]}, "t_last_ns": {times[1]}}}'
        )
    (tmp_path / "c.pcap").write_bytes(b"no pcap file")
    assert sent(Replay(files, link_type=1, packet_range=(2, 6))) == packets[2:6]
    with pytest.raises(ReplayError, match="none of the 10 packets"):
        Replay(files, link_type=1, between_ns=(200 * 10**9, None))


def test_packets_of_a_file_are_replayed(files, packets):
    with PcapFile(files[1]) as pcap:
        assert sent(Replay([pcap], link_type=1)) == packets[:4]
        source = Replay([pcap.select(udp_dst=5001), files[2]], link_type=1)
        assert sent(source) == [packets[i] for i in (1, 3, 4, 5, 6)]
        assert schedule(source).tolist() == [i * MS for i in (0, 2, 3, 4, 5)]
        with pytest.raises(ReplayError, match="a selection of packets holds Ethernet frames"):
            Replay([pcap[:2]], link_type=101)
    with pytest.raises(InvalidParameterError, match="closed"):
        sent(Replay([pcap], link_type=1))


def test_loops_follow_each_other_at_the_mean_gap(files, packets):
    source = Replay(files, link_type=1, loops=3, packet_range=(0, 4))
    assert source.packets == 12
    assert sent(source) == packets[:4] * 3
    assert schedule(source).tolist() == [i * MS for i in range(12)]
    assert source.duration_ns == 11 * MS


def test_the_gap_between_loops_can_be_set_and_is_scaled_with_the_others(files):
    source = Replay(files, link_type=1, loops=2, loop_gap_ns=9 * MS, packet_range=(0, 3), speed=2.0)
    assert schedule(source).tolist() == [i * MS // 2 for i in (0, 1, 2, 11, 12, 13)]
    assert source.duration_ns == 13 * MS // 2


def test_one_packet_is_repeated_at_the_gap_between_loops(files):
    alone = {"link_type": 1, "packet_range": (5, 6), "loops": 3}
    assert schedule(Replay(files, **alone)).tolist() == [0, 0, 0]
    assert schedule(Replay(files, loop_gap_ns=MS, **alone)).tolist() == [0, MS, 2 * MS]


def test_shortened_gaps_shorten_the_gap_between_loops(write_pcap, packets):
    file = write_pcap(packets[:3], [0, 100, 10_000])
    source = Replay([file], link_type=1, loops=2, max_gap_ns=100)
    assert schedule(source).tolist() == [0, 100, 200, 300, 400, 500]
