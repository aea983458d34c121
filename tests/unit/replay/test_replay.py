"""Capture files as packets that are due with their gaps."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.engine import ethernet
from daqiri_ophyd.replay import Replay, ReplayError, schedule

ETHERNET, RAW_IP = 1, 101
START = 1_700_000_000_000_000_000


def write(path: Path, packets, times, *, link_type=ETHERNET, wire=None) -> Path:
    """A ns pcap file of these packets (bytes) at these times (ns)."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link_type))
        for packet, time in zip(packets, times, strict=True):
            seconds, rest = divmod(time, 10**9)
            length = len(packet) if wire is None else wire
            file.write(struct.pack("<IIII", seconds, rest, len(packet), length) + packet)
    return path


def sent(source) -> list[bytes]:
    found = []
    for chunk in source.chunks():
        for offset, length in zip(chunk.offsets, chunk.lengths, strict=True):
            found.append(chunk.data[offset : offset + length].tobytes())
    return found


def datagrams(*payloads: bytes) -> list[bytes]:
    """IPv4 packets with these payloads."""
    rows = [
        ethernet.udp_frames(
            np.frombuffer(payload, np.uint8)[np.newaxis],
            src_mac=b"\2" * 6,
            dst_mac=b"\2" * 6,
            src_ip="127.0.0.1",
            dst_ip="127.0.0.1",
            src_port=1,
            dst_port=2,
        )
        for payload in payloads
    ]
    return [row[0, 14:].tobytes() for row in rows]


def test_frames_go_as_they_are_with_their_gaps(tmp_path):
    packets = [bytes([i]) * (60 + i) for i in range(5)]
    times = [START + t for t in (0, 5, 1005, 1005, 9_000_000)]
    source = Replay([write(tmp_path / "a.pcap", packets, times)], link_type=ETHERNET)

    assert source.packets == 5
    assert source.duration_ns == 9_000_000
    assert sent(source) == packets
    assert sent(source) == packets  # again
    assert schedule(source).tolist() == [0, 5, 1005, 1005, 9_000_000]


def test_gaps_between_files_and_chunks_are_kept(tmp_path):
    times = [START + t for t in (0, 10, 30, 70, 150, 310, 630)]
    packets = [bytes([i]) * 60 for i in range(7)]
    files = [
        write(tmp_path / "a.pcap", packets[:3], times[:3]),
        write(tmp_path / "empty.pcap", [], []),
        write(tmp_path / "b.pcap", packets[3:], times[3:]),
    ]
    source = Replay(files, link_type=ETHERNET, chunk_packets=2)

    assert [len(chunk) for chunk in source.chunks()] == [2, 1, 2, 2]
    assert sent(source) == packets
    assert schedule(source).tolist() == [0, 10, 30, 70, 150, 310, 630]


def test_speed_and_longest_gap(tmp_path):
    times = [START + t for t in (0, 100, 10_000, 10_100)]
    file = write(tmp_path / "a.pcap", [b"x" * 60] * 4, times)

    assert schedule(Replay([file], link_type=1, speed=2.0)).tolist() == [0, 50, 5000, 5050]
    assert schedule(Replay([file], link_type=1, max_gap_ns=200)).tolist() == [0, 100, 300, 400]
    both = Replay([file], link_type=1, speed=0.5, max_gap_ns=200)
    assert schedule(both).tolist() == [0, 200, 600, 800]
    assert Replay([file], link_type=1, speed=2.0).duration_ns == 5050


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=30), st.integers(1, 7))
def test_a_schedule_never_goes_back(tmp_path_factory, stamps, chunk):
    """Stamps of several queues, or of a clock that was set, can be out of order."""
    folder = tmp_path_factory.mktemp("replay")
    file = write(folder / "a.pcap", [b"x" * 60] * len(stamps), stamps)
    due = schedule(Replay([file], link_type=1, chunk_packets=chunk))
    assert len(due) == len(stamps)
    assert due[0] == 0
    assert np.all(np.diff(due) >= 0)
    if stamps == sorted(stamps):
        assert due.tolist() == [stamp - stamps[0] for stamp in stamps]


N = np.arange(10_000)


@pytest.mark.parametrize(
    "stamps",
    [
        pytest.param(N * 10_000 - (N % 2) * 500_000, id="queues 0.5 ms apart"),
        pytest.param((N // 64 * 64 + N % 32 * 2 + N // 32 % 2) * 10_000, id="blocks of 32"),
        pytest.param(N * 2_000 + (3000 * np.sin(N * 1.7)).astype(np.int64), id="jitter"),
        pytest.param(N * 10_000 - (N % 100 == 7) * 900_000_000, id="late packets"),
    ],
)
@pytest.mark.parametrize("metadata", [False, True])
def test_stamps_out_of_order_do_not_make_a_replay_longer(tmp_path, caplog, stamps, metadata):
    stamps = START + stamps
    file = write(tmp_path / "a.pcap", [b"x" * 60] * len(stamps), stamps.tolist())
    if metadata:
        ends = f'"t_first_ns": {stamps[0]}, "t_last_ns": {stamps[-1]}'
        (tmp_path / "a.pcap.json").write_text(
            f'{{"packets": {len(stamps)}, "bytes": 0, {ends}, "dropped": 0, "link_type": 1}}'
        )
    source = Replay([file], link_type=ETHERNET, chunk_packets=999)
    due = schedule(source)
    assert due.tolist() == (np.maximum.accumulate(stamps) - stamps[0]).tolist()
    if metadata:  # the file is not read before it is sent
        assert source.duration_ns == max(0, stamps[-1] - stamps[0])
    else:
        assert source.duration_ns == due[-1]
    faster = Replay([file], link_type=ETHERNET, speed=2.0, loops=2, loop_gap_ns=10)
    assert schedule(faster)[-1] == round((2 * due[-1] + 10) / 2)
    assert not caplog.records


def test_times_start_anew_after_a_large_step_back(tmp_path, caplog):
    """A clock was set: twice, once between two files."""
    hour = 3600 * 10**9
    first = write(
        tmp_path / "a.pcap", [b"x" * 60] * 4, [START + t for t in (0, 100, 300 - hour, 350 - hour)]
    )
    second = write(tmp_path / "b.pcap", [b"x" * 60] * 2, [START - 2 * hour + t for t in (0, 7)])
    source = Replay([first, second], link_type=ETHERNET, chunk_packets=3)
    assert source.duration_ns == 157
    assert schedule(source).tolist() == [0, 100, 100, 150, 150, 157]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        f"Packet 2 of {first} has a time stamp 3600.0 s before that of an earlier packet",
        f"Packet 0 of {second} has a time stamp 3600.0 s before that of an earlier packet",
    ]
    schedule(source)
    assert len(caplog.records) == 2  # told once


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=30),
    st.integers(1, 7),
    st.none() | st.integers(0, 10**9),
)
def test_a_schedule_is_the_latest_stamp_so_far(tmp_path_factory, stamps, chunk, max_gap):
    folder = tmp_path_factory.mktemp("replay")
    file = write(folder / "a.pcap", [b"x" * 60] * len(stamps), stamps)
    source = Replay([file], link_type=1, chunk_packets=chunk, max_gap_ns=max_gap)
    gaps = np.diff(np.maximum.accumulate(stamps), prepend=stamps[0])
    longest = 10**9 if max_gap is None else max_gap
    assert schedule(source).tolist() == np.cumsum(np.minimum(gaps, longest)).tolist()
    assert source.duration_ns == max(stamps) - stamps[0]


def test_socket_ports_get_payloads(tmp_path):
    payloads = [b"one", b"", b"three" * 100]
    file = write(tmp_path / "a.pcap", datagrams(*payloads), [START] * 3, link_type=RAW_IP)
    assert sent(Replay([file], link_type=RAW_IP, chunk_packets=2)) == payloads


def test_what_is_no_datagram_is_named(tmp_path):
    packets = [*datagrams(b"one", b"two"), b"\x45" + b"\0" * 30]
    file = write(tmp_path / "a.pcap", packets, [START] * 3, link_type=RAW_IP)
    with pytest.raises(ReplayError, match=r"Packet 2 of .*a.pcap is not a UDP datagram"):
        sent(Replay([file], link_type=RAW_IP, chunk_packets=2))


@pytest.mark.parametrize(
    ("found", "port", "text"),
    [
        (ETHERNET, RAW_IP, "holds Ethernet frames, and this port sends raw IP packets"),
        (RAW_IP, ETHERNET, "holds raw IP packets, and this port sends Ethernet frames"),
        (113, ETHERNET, "holds packets of link type 113"),
    ],
)
def test_captures_of_another_kind_are_refused(tmp_path, found, port, text):
    file = write(tmp_path / "a.pcap", datagrams(b"one"), [START], link_type=found)
    with pytest.raises(ReplayError, match=text):
        Replay([file], link_type=port)


def test_cut_packets_are_refused(tmp_path):
    file = write(tmp_path / "a.pcap", [b"x" * 60] * 2, [START, START], wire=1500)
    with pytest.raises(ReplayError, match="2 of 2 packets .* were cut"):
        sent(Replay([file], link_type=ETHERNET))


def test_metadata_beside_a_file_spares_reading_it(tmp_path):
    file = write(tmp_path / "a.pcap", [b"x" * 60] * 2, [START, START + 7])
    (tmp_path / "a.pcap.json").write_text(
        '{"packets": 2, "bytes": 120, "t_first_ns": 0, "t_last_ns": 7, "dropped": 0,'
        ' "link_type": 101}'
    )
    with pytest.raises(ReplayError, match="raw IP"):
        Replay([file], link_type=ETHERNET)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"speed": 0.0}, "speed is 0"),
        ({"speed": float("nan")}, "speed"),
        ({"max_gap_ns": -1}, "-1"),
    ],
)
def test_wrong_options(tmp_path, options, text):
    file = write(tmp_path / "a.pcap", [b"x" * 60], [START])
    with pytest.raises(ReplayError, match=text):
        Replay([file], link_type=ETHERNET, **options)
    with pytest.raises(ReplayError, match="no file"):
        Replay([], link_type=ETHERNET)
