"""Schedules made of capture files."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from daqiri_ophyd.engine import GenericFailureError
from daqiri_ophyd.replay import GapErrors, NumberedPackets, Replay, ReplayError, gap_errors

SECOND = 1_000_000_000


def write_pcap(
    path: Path, times: Sequence[int], packets: Sequence[bytes], link_type: int = 1, cut: int = 0
) -> Path:
    """Write a nanosecond pcap file by the format's definition; ``cut`` bytes are left out."""
    records = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, link_type)]
    for time, packet in zip(times, packets, strict=True):
        stored = packet[: len(packet) - cut]
        records.append(struct.pack("<IIII", *divmod(time, SECOND), len(stored), len(packet)))
        records.append(stored)
    path.write_bytes(b"".join(records))
    return path


def ipv4_udp(payload: bytes) -> bytes:
    """Return a raw IPv4 packet with a UDP datagram."""
    udp = struct.pack(">HHHH", 4000, 5000, 8 + len(payload), 0)
    length = 20 + len(udp) + len(payload)
    addresses = bytes([127, 0, 0, 1]) * 2
    return struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0, 64, 17, 0) + addresses + udp + payload


def times_of(replay: Replay) -> list[int]:
    return [int(t) for chunk in replay.chunks() for t in chunk.times]


def packets_of(replay: Replay) -> list[bytes]:
    return [
        chunk.data[offset : offset + length].tobytes()
        for chunk in replay.chunks()
        for offset, length in zip(chunk.offsets, chunk.lengths, strict=True)
    ]


def test_gaps_within_and_between_files_are_kept(tmp_path: Path) -> None:
    first = write_pcap(tmp_path / "a.pcap", [10 * SECOND, 10 * SECOND + 7], [b"a" * 60, b"b" * 61])
    second = write_pcap(tmp_path / "b.pcap", [11 * SECOND], [b"c" * 62])
    replay = Replay([first, second], link_type=1)
    assert replay.packets == 3
    assert replay.duration_ns == SECOND
    assert times_of(replay) == [0, 7, SECOND]
    assert packets_of(replay) == [b"a" * 60, b"b" * 61, b"c" * 62]


def test_speed_and_longest_gap(tmp_path: Path) -> None:
    file = write_pcap(tmp_path / "a.pcap", [0, 100, 5 * SECOND], [b"x" * 60] * 3)
    assert times_of(Replay([file], link_type=1, speed=2.0)) == [0, 50, 5 * SECOND // 2]
    assert times_of(Replay([file], link_type=1, max_gap_ns=1000)) == [0, 100, 1100]


@pytest.mark.parametrize("chunk_packets", [1, 3, 1000])
def test_chunks_do_not_change_the_schedule(tmp_path: Path, chunk_packets: int) -> None:
    times = np.cumsum(np.random.default_rng(1).integers(0, 1000, 50)).tolist()
    file = write_pcap(tmp_path / "a.pcap", times, [bytes([i]) * (60 + i) for i in range(50)])
    replay = Replay([file], link_type=1, chunk_packets=chunk_packets)
    assert times_of(replay) == [t - times[0] for t in times]
    assert packets_of(replay) == [bytes([i]) * (60 + i) for i in range(50)]


def test_timestamps_out_of_order_leave_no_negative_gap(tmp_path: Path) -> None:
    file = write_pcap(tmp_path / "a.pcap", [100, 50, 70], [b"x" * 60] * 3)
    assert times_of(Replay([file], link_type=1)) == [0, 0, 0]


@pytest.mark.parametrize("chunk_packets", [1, 2, 100])
def test_socket_captures_are_sent_as_their_payload(tmp_path: Path, chunk_packets: int) -> None:
    payloads = [b"one", b"second", b"3"]
    file = write_pcap(tmp_path / "a.pcap", [0, 1, 2], list(map(ipv4_udp, payloads)), link_type=101)
    assert packets_of(Replay([file], link_type=101, chunk_packets=chunk_packets)) == payloads


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    frames = write_pcap(tmp_path / "frames.pcap", [0], [b"x" * 60])
    with pytest.raises(ReplayError, match=r"frames\.pcap holds Ethernet frames"):
        Replay([frames], link_type=101)
    cut = write_pcap(tmp_path / "cut.pcap", [0], [b"x" * 60], cut=1)
    with pytest.raises(ReplayError, match="were cut"):
        list(Replay([cut], link_type=1).chunks())
    alien = write_pcap(tmp_path / "alien.pcap", [0], [b"x" * 60], link_type=101)
    with pytest.raises(ReplayError, match="not a UDP datagram"):
        list(Replay([alien], link_type=101).chunks())
    with pytest.raises(ReplayError, match="no file"):
        Replay([], link_type=1)
    with pytest.raises(FileNotFoundError):
        Replay([tmp_path / "gone.pcap"], link_type=1)
    for speed in (0.0, -1.0, float("inf")):
        with pytest.raises(ReplayError, match="speed"):
            Replay([frames], link_type=1, speed=speed)
    with pytest.raises(ReplayError, match="max_gap_ns"):
        Replay([frames], link_type=1, max_gap_ns=-1)


def test_numbered_packets_are_what_they_say() -> None:
    source = NumberedPackets(1000, 32, 50_000, link_type=101)
    assert source.packets == 1000
    assert source.duration_ns == 999 * 50_000
    (chunk,) = source.chunks()
    rows = chunk.data.reshape(1000, 32)
    assert rows[:, :8].copy().view(">u8").ravel().tolist() == list(range(1000))
    assert chunk.times.tolist() == [i * 50_000 for i in range(1000)]
    (frame,) = NumberedPackets(1, 32).chunks()
    assert frame.lengths.tolist() == [32 + 42]
    for bad in ({"count": -1, "size": 32}, {"count": 1, "size": 7}):
        with pytest.raises(ValueError, match="accepted"):
            NumberedPackets(**bad)


def test_gap_errors() -> None:
    assert gap_errors([0, 10, 20], [5, 15, 25]) == GapErrors(2, 0, 0, 0, 0.0)
    found = gap_errors([0, 10, 20, 30], [0, 12, 20, 30])
    assert (found.count, found.maximum) == (3, 2)
    assert gap_errors([1], [2]).count == 0
    with pytest.raises(ValueError, match="compared"):
        gap_errors([0, 1], [0])


def test_a_file_that_is_cut_while_it_is_replayed(tmp_path: Path) -> None:
    file = write_pcap(tmp_path / "a.pcap", range(20_000), [b"x" * 60] * 20_000)
    chunks = Replay([file], link_type=1, chunk_packets=1000).chunks()
    first = next(chunks)
    assert first.verify is not None
    first.verify()
    os.truncate(file, 5000)
    with pytest.raises(GenericFailureError, match=r"a\.pcap was cut from 1520024 to 5000 bytes"):
        first.verify()


def test_files_of_frames_are_not_replayed(tmp_path: Path) -> None:
    file = tmp_path / "frames_000000.h5"
    file.write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(ReplayError, match="it has frames, without the headers of their packets"):
        Replay([file], link_type=1)
