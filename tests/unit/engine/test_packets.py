"""Selections of packets, and their header fields as columns, against dpkt and tshark."""

import socket
import struct
import subprocess
from pathlib import Path

import dpkt
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daqiri_ophyd.engine import InvalidParameterError, Packets, PcapFile

MAC_A, MAC_B = b"\x02\0\0\0\0\x0a", b"\x02\0\0\0\0\x0b"
T0 = 1_700_000_000_000_000_000


def save(path: Path, packets: list[bytes], *, link_type: int = 1, times=None) -> PcapFile:
    out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link_type)]
    for i, packet in enumerate(packets):
        time = T0 + 1000 * i if times is None else times[i]
        out += [struct.pack("<IIII", *divmod(time, 10**9), len(packet), len(packet)), packet]
    path.write_bytes(b"".join(out))
    return PcapFile(path)


def transport(kind: str, src: int, dst: int, payload: bytes) -> tuple[int, bytes]:
    if kind == "udp":
        return 17, struct.pack(">HHHH", src, dst, 8 + len(payload), 0) + payload
    header = struct.pack(">HHIIHHHH", src, dst, 0xDEADBEEF, 1, 0x5018, 512, 0, 0)
    return 6, header + payload


def ipv4(kind: str, src: str, dst: str, sport: int, dport: int, payload: bytes) -> bytes:
    protocol, body = transport(kind, sport, dport, payload)
    addresses = socket.inet_aton(src) + socket.inet_aton(dst)
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 63, protocol, 0) + (
        addresses + body
    )


def ipv6(kind: str, src: str, dst: str, sport: int, dport: int, payload: bytes) -> bytes:
    protocol, body = transport(kind, sport, dport, payload)
    addresses = socket.inet_pton(socket.AF_INET6, src) + socket.inet_pton(socket.AF_INET6, dst)
    options = bytes([protocol, 0, 1, 4, 0, 0, 0, 0])  # one destination option
    return struct.pack(">IHBB", 6 << 28, 8 + len(body), 60, 62) + addresses + options + body


def ethernet(payload: bytes, *vlans: int) -> bytes:
    kind = 0x0800 if payload[0] >> 4 == 4 else 0x86DD
    tags = b"".join(struct.pack(">HH", 0x8100, 0xE000 | vlan) for vlan in vlans)
    return MAC_B + MAC_A + tags + struct.pack(">H", kind) + payload


MIXED = [
    ethernet(ipv4("udp", "10.0.0.1", "10.0.0.2", 1111, 5500, b"one")),
    ethernet(ipv4("tcp", "10.0.0.1", "10.0.0.3", 2222, 5500, b"twoo")),
    ethernet(ipv6("udp", "fe80::1", "fe80::2", 3333, 5501, b"three"), 7, 9),
    ethernet(ipv4("udp", "10.0.0.9", "10.0.0.2", 1111, 5501, b"pad")) + bytes(10),
    MAC_B + MAC_A + b"\x08\x06" + bytes(28),
    b"short",
]


def test_columns_of_all_kinds(tmp_path: Path) -> None:
    with save(tmp_path / "some.pcap", MIXED) as pcap:
        columns = pcap.to_columns()
        assert columns["timestamp"].tolist() == [T0 + 1000 * i for i in range(6)]
        assert columns["length"].tolist() == [len(p) for p in MIXED]
        mac = [int.from_bytes(MAC_A, "big")] * 5 + [0]
        assert columns["eth_src"].tolist() == mac
        assert columns["eth_type"].tolist() == [0x0800, 0x0800, 0x86DD, 0x0800, 0x0806, 0]
        assert columns["vlan"].tolist() == [0, 0, 7, 0, 0, 0]
        assert columns["ip_version"].tolist() == [4, 4, 6, 4, 0, 0]
        assert columns["ip_protocol"].tolist() == [17, 6, 17, 17, 0, 0]
        assert columns["ip_ttl"].tolist() == [63, 63, 62, 63, 0, 0]
        assert columns["ip_length"].tolist() == [31, 44, 61, 31, 0, 0]
        assert columns["transport"].tolist() == [17, 6, 17, 17, 0, 0]
        assert columns["dst_port"].tolist() == [5500, 5500, 5501, 5501, 0, 0]
        assert columns["tcp_seq"].tolist() == [0, 0xDEADBEEF, 0, 0, 0, 0]
        assert columns["tcp_flags"].tolist() == [0, 0x18, 0, 0, 0, 0]
        assert columns["ipv6_dst"][2].tobytes() == socket.inet_pton(socket.AF_INET6, "fe80::2")
        payloads = [
            pcap.data[at : at + n].tobytes()
            for at, n in zip(columns["payload_offset"], columns["payload_length"], strict=True)
        ]
        assert payloads == [b"one", b"twoo", b"three", b"pad", bytes(28), b"short"]
        flat = {name: column for name, column in columns.items() if column.ndim == 1}
        assert len(pd.DataFrame(flat)) == 6
        part = pcap[1::2].to_columns(["dst_port", "timestamp"])
        assert list(part) == ["dst_port", "timestamp"]
        assert part["dst_port"].tolist() == [5500, 5501, 0]


@pytest.mark.parametrize(
    ("link_type", "prefix"),
    [(101, b""), (228, b""), (113, bytes(14) + b"\x08\0"), (276, b"\x08\0" + bytes(18))],
)
def test_other_link_types(tmp_path: Path, link_type: int, prefix: bytes) -> None:
    packet = prefix + ipv4("udp", "10.0.0.1", "10.0.0.2", 1111, 5500, b"one")
    with save(tmp_path / "some.pcap", [packet], link_type=link_type) as pcap:
        columns = pcap.to_columns(["eth_type", "dst_port", "payload_length"])
        assert [int(c[0]) for c in columns.values()] == [0x0800, 5500, 3]


def test_columns_that_there_are_not(tmp_path: Path) -> None:
    with save(tmp_path / "some.pcap", MIXED) as pcap:
        with pytest.raises(InvalidParameterError, match="no column 'port'; there are eth_src"):
            pcap.to_columns(["port"])
    with save(tmp_path / "usb.pcap", MIXED, link_type=189) as pcap:
        with pytest.raises(InvalidParameterError, match="link type 189 .* accepted are 1"):
            pcap.to_columns()
        assert pcap.to_columns(["length"])["length"][0] == len(MIXED[0])


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"udp_dst": 5500}, [0]),
        ({"tcp_dst": 5500}, [1]),
        ({"dst_port": 5500}, [0, 1]),
        ({"udp_dst": [5500, 5501], "ipv4_dst": "10.0.0.2"}, [0, 3]),
        ({"ipv4_src": ["10.0.0.1", 0x0A000009]}, [0, 1, 3]),
        ({"ipv4_src": 0}, []),
        ({"ipv6_src": "fe80::1"}, [2]),
        ({"ipv6_src": ["fe80::1", "::"]}, [2]),
        ({"eth_src": "02:00:00:00:00:0a", "eth_type": 0x0806}, [4]),
        ({"vlan": 7}, [2]),
    ],
)
def test_select_by_fields(tmp_path: Path, fields: dict, found: list[int]) -> None:
    with save(tmp_path / "some.pcap", MIXED) as pcap:
        flow = pcap.select(**fields)
        assert [view.tobytes() for view in flow] == [MIXED[i] for i in found]
        assert flow.timestamps.tolist() == [T0 + 1000 * i for i in found]
        mask = np.arange(6) > 0
        assert len(pcap.select(mask, **fields)) == len([i for i in found if i > 0])


def test_what_cannot_be_selected(tmp_path: Path) -> None:
    with save(tmp_path / "some.pcap", MIXED) as pcap:
        with pytest.raises(InvalidParameterError, match="ipv4_src is 'here'"):
            pcap.select(ipv4_src="here")
        with pytest.raises(InvalidParameterError, match="eth_src is '02:00'"):
            pcap.select(eth_src="02:00")
        with pytest.raises(InvalidParameterError, match="no column 'port'"):
            pcap.select(port=5)
        with pytest.raises(InvalidParameterError, match=r"mask is int64 of shape \(6,\)"):
            pcap.select(np.arange(6))
        with pytest.raises(InvalidParameterError, match="packets is 0"):
            next(pcap.chunks(0))


def test_a_selection_is_as_the_file(tmp_path: Path) -> None:
    with save(tmp_path / "some.pcap", MIXED) as pcap:
        part = pcap[1:4]
        assert isinstance(part, Packets)
        assert part.gather().shape == (3, len(MIXED[2]))
        assert part.gather()[0, : len(MIXED[1])].tobytes() == MIXED[1]
        assert np.shares_memory(part[0], pcap.data)
        assert np.shares_memory(part.offsets, pcap.offsets)
        assert [len(p) for p in pcap.chunks(4)] == [4, 2]
        assert [v.tobytes() for p in pcap.chunks(4) for v in p] == MIXED
        nested = pcap[::-1].select(udp_dst=5501)[:1]
        assert [v.tobytes() for v in nested] == [MIXED[3]]
    assert part[0].tobytes() == MIXED[1]
    with pytest.raises(InvalidParameterError, match="is closed"):
        pcap[1:2]


@given(
    times=st.lists(st.integers(0, 50), max_size=20),
    begin=st.integers(-5, 60),
    end=st.integers(-5, 60),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_between(tmp_path: Path, times: list[int], begin: int, end: int) -> None:
    for stamps in (times, sorted(times)):
        with save(
            tmp_path / "some.pcap", [b"x"] * len(times), times=[T0 + t for t in stamps]
        ) as pcap:
            assert pcap.in_order is (stamps == sorted(stamps))
            found = pcap.between(T0 + begin, T0 + end).timestamps - T0
            assert found.tolist() == [t for t in stamps if begin <= t < end]


addresses4 = st.binary(min_size=4, max_size=4).map(socket.inet_ntoa)
addresses6 = st.binary(min_size=16, max_size=16).map(lambda b: socket.inet_ntop(socket.AF_INET6, b))
ports = st.integers(0, 65535)
kinds = st.sampled_from(["udp", "tcp"])
payloads = st.binary(max_size=40)
ip_packets = st.one_of(
    st.builds(ipv4, kinds, addresses4, addresses4, ports, ports, payloads),
    st.builds(ipv6, kinds, addresses6, addresses6, ports, ports, payloads),
)


@given(packets=st.lists(st.tuples(ip_packets, st.lists(st.integers(0, 4095), max_size=2))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_as_dpkt_sees_it(tmp_path: Path, packets: list[tuple[bytes, list[int]]]) -> None:
    made = [ethernet(packet, *vlans) for packet, vlans in packets]
    with save(tmp_path / "some.pcap", made) as pcap:
        columns = pcap.to_columns()
        for i, frame in enumerate(made):
            eth = dpkt.ethernet.Ethernet(frame)
            ip = eth.data
            seen = {name: column[i] for name, column in columns.items()}
            assert seen["eth_type"] == (0x0800 if isinstance(ip, dpkt.ip.IP) else 0x86DD)
            if isinstance(ip, dpkt.ip.IP):
                assert seen["ipv4_src"] == int.from_bytes(ip.src, "big")
                assert seen["ipv4_dst"] == int.from_bytes(ip.dst, "big")
                assert (seen["ip_ttl"], seen["ip_length"]) == (ip.ttl, ip.len)
            else:
                assert seen["ipv6_src"].tobytes() == ip.src
                assert seen["ipv6_dst"].tobytes() == ip.dst
                assert (seen["ip_ttl"], seen["ip_length"]) == (ip.hlim, ip.plen + 40)
            layer = ip.data
            assert seen["ip_protocol"] == seen["transport"] == ip.p
            assert (seen["src_port"], seen["dst_port"]) == (layer.sport, layer.dport)
            if isinstance(layer, dpkt.tcp.TCP):
                assert (seen["tcp_seq"], seen["tcp_flags"]) == (layer.seq, layer.flags)
                assert seen["udp_length"] == 0
            else:
                assert seen["udp_length"] == layer.ulen
            begin = seen["payload_offset"]
            payload = pcap.data[begin : begin + seen["payload_length"]].tobytes()
            assert payload == bytes(layer.data)


@given(packets=st.lists(st.binary(max_size=80), max_size=30), mutate=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_have_columns(
    tmp_path: Path, packets: list[bytes], mutate: st.DataObject
) -> None:
    for packet in mutate.draw(st.lists(st.sampled_from(MIXED), max_size=10)):
        at = mutate.draw(st.integers(0, len(packet) - 1))
        cut = mutate.draw(st.integers(0, len(packet)))
        changed = packet[:at] + mutate.draw(st.binary(min_size=1, max_size=1)) + packet[at + 1 :]
        packets.append(changed[:cut])
    with save(tmp_path / "some.pcap", packets) as pcap:
        columns = pcap.to_columns()
        ends = columns["payload_offset"] + columns["payload_length"]
        assert (columns["payload_offset"] >= pcap.offsets).all()
        assert (ends <= pcap.offsets + pcap.lengths).all()


def test_as_tshark_sees_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    made = []
    for i in range(200):
        kind = "udp" if i % 3 else "tcp"
        sport, dport = (int(p) for p in rng.integers(20_000, 60_000, 2))
        payload = rng.bytes(int(rng.integers(0, 300)))
        if i % 2:
            made.append(ethernet(ipv4(kind, "10.1.2.3", "10.4.5.6", sport, dport, payload)))
        else:
            made.append(ethernet(ipv6(kind, "fd00::1", "fd00::2", sport, dport, payload), 42))
    with save(tmp_path / "some.pcap", made) as pcap:
        names = ["vlan", "ip_ttl", "src_port", "dst_port", "tcp_seq", "payload_length"]
        ours = np.stack([pcap.to_columns(names)[n].astype(np.int64) for n in names], axis=1)
    fields = [
        *("vlan.id", "ip.ttl", "ipv6.hlim", "udp.srcport", "tcp.srcport", "udp.dstport"),
        *("tcp.dstport", "tcp.seq_raw", "udp.length", "tcp.len"),
    ]
    run = subprocess.run(
        ["tshark", "-n", "-r", tmp_path / "some.pcap", "-T", "fields", "-E", "separator=,"]
        + [a for f in fields for a in ("-e", f)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 200
    for line, row in zip(lines, ours.tolist(), strict=True):
        vlan, ttl4, ttl6, usrc, tsrc, udst, tdst, seq, ulen, tlen = line.split(",")
        length = int(ulen) - 8 if ulen else int(tlen)
        assert row == [
            *(int(vlan or 0), int(ttl4 or ttl6), int(usrc or tsrc), int(udst or tdst)),
            *(int(seq or 0), length),
        ]
