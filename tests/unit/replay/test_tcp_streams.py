"""Byte streams in captures of TCP ports."""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import dpkt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import load_config
from daqiri_ophyd.replay import Chunk, Replay, ReplayError, _tcp, schedule, segment_size

RAW_IP = 101


def records(*payloads: bytes, port: int = 40_000, first: int = 1, ipv6: bool = False):
    """Return IP packets of one connection, as a receive queue writes them."""
    made = []
    for payload in payloads:
        tcp = dpkt.tcp.TCP(sport=port, dport=47_200, seq=first % 2**32, data=payload)
        if ipv6:
            packet = dpkt.ip6.IP6(src=bytes(15) + b"\1", dst=bytes(15) + b"\1", nxt=6, data=tcp)
            packet.plen = len(tcp)
        else:
            header = bytes(dpkt.ip.IP(src=b"\x7f\0\0\1", dst=b"\x7f\0\0\1", p=6, data=b""))
            length = 40 + len(payload) if len(payload) < 65_000 else 0
            packet = header[:2] + length.to_bytes(2, "big") + header[4:] + bytes(tcp)
        made.append(bytes(packet))
        first += len(payload)
    return made


def pieces(source: Replay) -> list[bytes]:
    def of(chunk: Chunk) -> list[bytes]:
        return [
            chunk.data[o : o + n].tobytes()
            for o, n in zip(chunk.offsets, chunk.lengths, strict=True)
        ]

    return [piece for chunk in source.chunks() for piece in of(chunk)]


@pytest.mark.parametrize("ipv6", [False, True])
def test_records_are_sent_with_their_gaps(write_pcap, ipv6):
    payloads = [b"one", b"", b"three" * 50, b"4"]
    file = write_pcap(records(*payloads, ipv6=ipv6), [10, 20, 40, 45], RAW_IP)
    source = Replay([file], link_type=RAW_IP, segment_size=1000)
    assert pieces(source) == [b"one", b"three" * 50, b"4"]
    assert schedule(source).tolist() == [0, 30, 35]
    assert (source.packets, source.stream_bytes) == (3, 254)


def test_a_record_longer_than_the_queue_sends_is_sent_in_pieces(write_pcap):
    """Longer than the IP length field allows."""
    long = np.random.default_rng(1).bytes(70_000)
    file = write_pcap(records(b"a" * 10, long, b"b" * 4), [0, 7, 9], RAW_IP)
    source = Replay([file], link_type=RAW_IP, segment_size=8192)
    assert [len(piece) for piece in pieces(source)] == [10, *[8192] * 8, 70_000 - 8 * 8192, 4]
    assert b"".join(pieces(source)) == b"a" * 10 + long + b"b" * 4
    assert schedule(source).tolist() == [0, *[7] * 9, 9]
    assert source.packets == 11


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.integers(1, 20),
    st.integers(1, 3), st.integers(1, 3), st.integers(2**32 - 60, 2**32 - 1),
)  # fmt: skip
def test_the_stream_is_whole_whatever_the_pieces(
    tmp_path_factory, payloads, size, chunk, loops, first
):
    """Sequence numbers may wrap."""
    path = tmp_path_factory.mktemp("tcp") / "a.pcap"
    with path.open("wb") as file:
        writer = dpkt.pcap.Writer(file, linktype=RAW_IP)
        for i, packet in enumerate(records(*payloads, first=first)):
            writer.writepkt(packet, float(i))
    source = Replay([path], link_type=RAW_IP, segment_size=size, chunk_packets=chunk, loops=loops)
    assert b"".join(pieces(source)) == b"".join(payloads) * loops
    assert len(pieces(source)) == source.packets
    assert source.stream_bytes == sum(map(len, payloads)) * loops
    assert all(0 < len(piece) <= size for piece in pieces(source))


def test_one_of_several_connections_can_be_selected(write_pcap):
    a, b = records(b"aa", b"aaa"), records(b"bbbb", b"b", port=40_001)
    file = write_pcap([a[0], b[0], b[1], a[1]], [0, 1, 2, 5], RAW_IP)
    port = {"link_type": RAW_IP, "segment_size": 100}
    with pytest.raises(
        ReplayError,
        match=r"Packet 1 of .* belongs to the TCP connection 127\.0\.0\.1:40001 to "
        r"127\.0\.0\.1:47200, those before it to 127\.0\.0\.1:40000.*select=\{'tcp_src': 40001\}",
    ):
        Replay([file], **port)
    source = Replay([file], select={"tcp_src": 40_000}, **port)
    assert pieces(source) == [b"aa", b"aaa"]
    assert schedule(source).tolist() == [0, 5]


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "text"),
    [
        ("192.0.2.1", "::", "192.0.2.1:7"),
        ("0.0.0.0", "2001:db8::1", "[2001:db8::1]:7"),
        ("0.0.0.0", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:7"),
    ],
)
def test_addresses_are_written_as_the_kernel_writes_them(ipv4, ipv6, text):
    columns = {}
    for end in ("src", "dst"):
        columns[f"ipv4_{end}"] = np.array([int(IPv4Address(ipv4))], np.uint32)
        columns[f"ipv6_{end}"] = np.array([list(IPv6Address(ipv6).packed)], np.uint8)
        columns[f"{end}_port"] = np.array([7], np.uint16)
    assert _tcp._ends_text(columns, 0) == f"{text} to {text}"


def test_a_gap_in_the_stream_is_no_error(write_pcap):
    """A queue that was flushed left bytes out."""
    file = write_pcap([*records(b"aa"), *records(b"bb", first=1000)], [0, 1], RAW_IP)
    assert pieces(Replay([file], link_type=RAW_IP, segment_size=9)) == [b"aa", b"bb"]


def test_what_is_no_stream_of_a_tcp_port_is_refused(write_pcap, udp_frame: Callable[..., bytes]):
    def replay(*packets: bytes, size: int | None = 100) -> Replay:
        return Replay(
            [write_pcap(packets, range(len(packets)), RAW_IP)], link_type=RAW_IP, segment_size=size
        )

    one, two = records(b"one", b"two")
    datagram = udp_frame(b"datagram")[14:]
    with pytest.raises(ReplayError, match=r"Packet 2 of .* repeats bytes of the stream"):
        replay(one, two, one)
    with pytest.raises(ReplayError, match=r"Packet 1 of .* is not a TCP segment; a TCP port sends"):
        replay(one, datagram)
    with pytest.raises(ReplayError, match=r"Packet 0 of .* is not a UDP datagram; a UDP"):
        replay(one, size=None)


def test_only_tcp_ports_have_segments(tmp_path: Path):
    tcp, udp = (load_config(profiles.path(name)) for name in ("tcp", "udp"))
    assert segment_size(tcp, "sender", "tx_q0") == 8192
    assert segment_size(udp, "sender", "tx_q0") is None
    assert segment_size(load_config(profiles.path("loopback")), "port0", "tx_q0") is None
    document = tcp.to_dict()
    document["daqiri"]["cfg"]["interfaces"][1]["socket_config"]["max_payload_size"] = 1000
    assert segment_size(load_config(document), "sender", "tx_q0") == 1000
