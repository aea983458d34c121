"""Other addresses and ports in frames, with dpkt as the reference for checksums."""

import socket
import struct
from pathlib import Path

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.replay import Replay, ReplayError

NEW = {
    "mac_src": "02:00:00:00:00:0a",
    "mac_dst": "02:00:00:00:00:0b",
    "ip_src": "192.0.2.7",
    "ip_dst": "192.0.2.8",
    "udp_src": 1234,
    "udp_dst": 4321,
}


def write(path: Path, frames: list[bytes]) -> Path:
    records = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)]
    records += [struct.pack("<IIII", 0, i, len(f), len(f)) + f for i, f in enumerate(frames)]
    path.write_bytes(b"".join(records))
    return path


def rewritten(path: Path, frames: list[bytes], rewrite: dict, **options) -> list[bytes]:
    source = Replay([write(path, frames)], link_type=1, rewrite=rewrite, **options)
    found = []
    for chunk in source.chunks():
        for offset, length in zip(chunk.offsets, chunk.lengths, strict=True):
            found.append(chunk.data[offset : offset + length].tobytes())
    assert len(found) == source.packets
    return found


def ethernet(header: bytes, payload, *, tags: int = 0) -> bytes:
    """Return a frame whose checksums dpkt has computed."""
    kind = 0x86DD if isinstance(payload, dpkt.ip6.IP6) else 0x0800
    vlan = b"".join(struct.pack(">HH", 0x8100, 7 + i) for i in range(tags))
    return header + vlan + struct.pack(">H", kind) + bytes(payload)


def ip(transport, src: bytes, dst: bytes, options: bytes = b"", **fields) -> dpkt.ip.IP:
    protocol = 17 if isinstance(transport, dpkt.udp.UDP) else 6
    packet = dpkt.ip.IP(src=src, dst=dst, p=protocol, data=transport, opts=options, **fields)
    packet.hl = 5 + len(options) // 4
    packet.len = len(packet)
    return packet


def udp(payload: bytes, sport: int = 1, dport: int = 2, **fields) -> dpkt.udp.UDP:
    return dpkt.udp.UDP(sport=sport, dport=dport, ulen=8 + len(payload), data=payload, **fields)


MACS = b"\2\0\0\0\0\1\2\0\0\0\0\2"
address = st.binary(min_size=4, max_size=4)
port = st.integers(0, 65535)


@given(
    payloads=st.lists(st.binary(max_size=90), min_size=1, max_size=6),
    ends=st.tuples(address, address, port, port),
    options=st.sampled_from([b"", b"\1" * 4, b"\1" * 12]),
    tags=st.integers(0, 2),
    names=st.sets(st.sampled_from(sorted(NEW)), min_size=1),
    values=st.tuples(address, address, port, port),
    chunk=st.integers(1, 4),
)
def test_rewritten_datagrams_are_those_that_dpkt_makes(
    tmp_path_factory, payloads, ends, options, tags, names, values, chunk
):
    """Lengths differ from frame to frame, and short frames are padded."""
    src, dst, sport, dport = ends
    frames = [
        ethernet(MACS, ip(udp(p, sport, dport), src, dst, options), tags=tags).ljust(60, b"\xff")
        for p in payloads
    ]
    new = {
        **NEW,
        "ip_src": socket.inet_ntoa(values[0]),
        "ip_dst": socket.inet_ntoa(values[1]),
        "udp_src": values[2],
        "udp_dst": values[3],
    }
    rewrite = {name: new[name] for name in names}
    src = values[0] if "ip_src" in names else src
    dst = values[1] if "ip_dst" in names else dst
    macs = bytes.fromhex(new["mac_dst"].replace(":", "")) if "mac_dst" in names else MACS[:6]
    macs += bytes.fromhex(new["mac_src"].replace(":", "")) if "mac_src" in names else MACS[6:]
    sport = rewrite.get("udp_src", sport)
    dport = rewrite.get("udp_dst", dport)
    expected = [
        ethernet(macs, ip(udp(p, sport, dport), src, dst, options), tags=tags).ljust(60, b"\xff")
        for p in payloads
    ]
    path = tmp_path_factory.mktemp("rewrite") / "a.pcap"
    assert rewritten(path, frames, rewrite, chunk_packets=chunk) == expected


@given(payload=st.binary(max_size=50), ends=st.tuples(address, address), new=address)
def test_checksums_of_tcp_follow_the_addresses(tmp_path_factory, payload, ends, new):
    def frame(src: bytes, dst: bytes) -> bytes:
        return ethernet(MACS, ip(dpkt.tcp.TCP(sport=5, dport=6, data=payload), src, dst))

    path = tmp_path_factory.mktemp("rewrite") / "a.pcap"
    found = rewritten(path, [frame(*ends)], {"ip_dst": socket.inet_ntoa(new)})
    assert found == [frame(ends[0], new)]


def test_ports_of_ipv6_datagrams(tmp_path):
    def frame(port: int) -> bytes:
        packet = dpkt.ip6.IP6(
            src=b"\xfe\x80" + bytes(14), dst=b"\xff\2" + bytes(14), nxt=17, hlim=1,
            data=udp(b"payload", dport=port),
        )  # fmt: skip
        packet.plen = 15
        return ethernet(MACS, packet)

    assert rewritten(tmp_path / "a.pcap", [frame(2)], {"udp_dst": 999}) == [frame(999)]
    with pytest.raises(ReplayError, match=r"Packet 0 of .*a\.pcap is not an IPv4 packet"):
        rewritten(tmp_path / "a.pcap", [frame(2)], {"ip_dst": "10.0.0.1"})


def test_a_datagram_without_checksum_stays_without(tmp_path):
    frame = bytearray(ethernet(MACS, ip(udp(b"data"), b"\1\1\1\1", b"\2\2\2\2")))
    frame[40:42] = b"\0\0"
    (found,) = rewritten(tmp_path / "a.pcap", [bytes(frame)], NEW)
    assert found[40:42] == b"\0\0"
    assert found[46:] == frame[46:]


def test_a_wrong_checksum_stays_wrong(tmp_path):
    frame = bytearray(ethernet(MACS, ip(udp(b"data"), b"\1\1\1\1", b"\2\2\2\2")))
    frame[41] ^= 1
    (found,) = rewritten(tmp_path / "a.pcap", [bytes(frame)], NEW)
    right = ethernet(MACS, ip(udp(b"data", 1234, 4321), b"\xc0\0\2\7", b"\xc0\0\2\x08"))
    assert found[40:42] != right[40:42]
    assert found[14:40] == right[14:40]


def test_fragments_keep_right_checksums(tmp_path):
    """The checksum in the first fragment is over the payload of all."""
    whole = bytes(udp(b"x" * 64))
    src, dst, new = b"\1\1\1\1", b"\2\2\2\2", b"\xc0\0\2\x08"

    def fragments(to: bytes) -> list[bytes]:
        made = bytes(ip(udp(b"x" * 64), src, to))[20:]
        assert len(made) == len(whole)
        parts = []
        for at, more in ((0, 0x2000), (40, 0)):
            data = made[at : at + 40]
            packet = dpkt.ip.IP(src=src, dst=to, p=17, len=20 + len(data), data=data)
            packet._flags_offset = more | at // 8
            parts.append(ethernet(MACS, packet))
        return parts

    found = rewritten(tmp_path / "a.pcap", fragments(dst), {"ip_dst": "192.0.2.8"})
    assert found == fragments(new)


@pytest.mark.parametrize(
    ("rewrite", "text"),
    [
        ({"udp_dst": 5}, r"Packet 1 of .*a\.pcap is not a UDP.*select=\{'transport': 17\}"),
        ({"ip_dst": "10.0.0.1"}, r"Packet 2 of .*a\.pcap is not an IPv4 packet.*'ip_version': 4"),
        ({"ip_dst": "fe80::1"}, "ip_dst is 'fe80::1'; accepted is an IPv4 address"),
        ({"mac_src": "02:00"}, "mac_src is '02:00'; accepted is an address such as 02:"),
        ({"udp_src": 70000}, "udp_src is 70000; accepted is a port"),
        ({"vlan": 3}, "unknown fields vlan; known are mac_dst, mac_src, ip_src"),
    ],
)
def test_what_cannot_be_rewritten_is_refused_before_anything_is_sent(tmp_path, rewrite, text):
    frames = [
        ethernet(MACS, ip(udp(b"data"), b"\1\1\1\1", b"\2\2\2\2")),
        ethernet(MACS, ip(dpkt.tcp.TCP(sport=5, dport=6), b"\1\1\1\1", b"\2\2\2\2")),
        MACS + b"\x08\x06" + bytes(46),
    ]
    with pytest.raises(ReplayError, match=text):
        Replay([write(tmp_path / "a.pcap", frames)], link_type=1, rewrite=rewrite)


def test_sockets_have_addresses_of_their_own(tmp_path):
    with pytest.raises(ReplayError, match="on a socket port, packets have the addresses of its"):
        Replay([write(tmp_path / "a.pcap", [])], link_type=101, rewrite={"udp_dst": 5})
