import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from daqiri_ophyd.engine import InvalidParameterError, PcapFile, ethernet

ADDRESSES: dict[str, Any] = {
    "src_mac": "02:00:00:00:00:01",
    "dst_mac": "02:00:00:00:00:02",
    "src_ip": "192.0.2.1",
    "dst_ip": "198.51.100.7",
    "src_port": 4000,
    "dst_port": 5000,
}


def internet_checksum(data: bytes) -> int:
    """As RFC 1071 has it, one word after the other."""
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def write_pcap(path: Path, packets: list[bytes], link_type: int = 1) -> None:
    def number(*values: int) -> bytes:
        return b"".join(value.to_bytes(4, "little") for value in values)

    out = [number(0xA1B23C4D, 2 | 4 << 16, 0, 0, 262144, link_type)]
    for i, packet in enumerate(packets):
        out += [number(1_700_000_000, i, len(packet), len(packet)), packet]
    path.write_bytes(b"".join(out))


def payload_of(packet: bytes, link_type: int = 1) -> bytes | None:
    """The payload that `udp_payload` finds in a packet that stands alone."""
    row = np.frombuffer(packet, np.uint8).reshape(1, -1)
    (offset,), (length,) = ethernet.udp_payload(row, link_type=link_type)
    return None if length < 0 else packet[offset : offset + length]


@given(
    count=st.integers(1, 5),
    size=st.integers(0, 300),
    seed=st.integers(0, 2**32 - 1),
    ports=st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
    addresses=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
)
def test_headers_are_valid_and_payloads_found(
    count: int, size: int, seed: int, ports: tuple[int, int], addresses: tuple[int, int]
) -> None:
    payloads = np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)
    made = ethernet.udp_frames(
        payloads,
        src_mac=bytes(range(6)),
        dst_mac=np.arange(6, dtype=np.uint8),
        src_ip=addresses[0],
        dst_ip=addresses[1],
        src_port=ports[0],
        dst_port=ports[1],
    )
    assert made.shape == (count, size + ethernet.UDP_OVERHEAD)
    for i, row in enumerate(made):
        frame = row.tobytes()
        assert frame[12:14] == b"\x08\0"
        assert int.from_bytes(frame[16:18], "big") == 28 + size
        assert int.from_bytes(frame[18:20], "big") == i
        assert internet_checksum(frame[14:34]) == 0
        udp = frame[34:]
        assert int.from_bytes(udp[:2], "big") == ports[0]
        assert int.from_bytes(udp[2:4], "big") == ports[1]
        assert udp[6:8] != b"\0\0"
        pseudo = frame[26:34] + bytes([0, 17]) + (8 + size).to_bytes(2, "big")
        assert internet_checksum(pseudo + udp) == 0
    offsets, lengths = ethernet.udp_payload(made)
    flat = made.reshape(-1)
    assert (lengths == size).all()
    for i in range(count):
        assert np.array_equal(flat[offsets[i] : offsets[i] + size], payloads[i])


def test_tshark_finds_no_fault(tmp_path: Path) -> None:
    payloads = np.random.default_rng(1).integers(0, 256, (50, 101), dtype=np.uint8)
    ports = np.arange(50) + 3000
    made = ethernet.udp_frames(payloads, **{**ADDRESSES, "dst_port": ports})
    write_pcap(tmp_path / "frames.pcap", [row.tobytes() for row in made])
    fields = ("udp.dstport", "ip.checksum.status", "udp.checksum.status", "udp.payload", "ip.dst")
    arguments = ["tshark", "-r", str(tmp_path / "frames.pcap"), "-T", "json", "--no-duplicate-keys"]
    arguments += ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    arguments += itertools.chain.from_iterable(("-e", field) for field in fields)
    run = subprocess.run(arguments, capture_output=True, text=True, check=True)
    seen = [packet["_source"]["layers"] for packet in json.loads(run.stdout)]
    assert [int(s["udp.dstport"][0]) for s in seen] == ports.tolist()
    assert {s["ip.checksum.status"][0] for s in seen} == {"1"}
    assert {s["udp.checksum.status"][0] for s in seen} == {"1"}
    assert {s["ip.dst"][0] for s in seen} == {"198.51.100.7"}
    found = [bytes.fromhex(s["udp.payload"][0].replace(":", "")) for s in seen]
    assert found == [row.tobytes() for row in payloads]


def test_a_shape_stands_for_zeros() -> None:
    made = ethernet.udp_frames((3, 8), **ADDRESSES)
    assert made.shape == (3, 50)
    assert not made[:, 42:].any()
    assert made.flags.writeable


def test_a_checksum_of_zero_is_sent_as_all_ones() -> None:
    # Whatever the first word sums up to, the second makes it 0xFFFF.
    plain = ethernet.udp_frames(np.zeros((1, 2), np.uint8), **ADDRESSES)
    payload = plain[:, 40:42].copy()
    made = ethernet.udp_frames(payload, **ADDRESSES)
    assert made[0, 40:42].tolist() == [255, 255]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"src_mac": "02:00:00:00:00"}, "src_mac is '02:00:00:00:00'"),
        ({"dst_mac": "02:00:00:00:00:zz"}, "dst_mac"),
        ({"dst_mac": b"123"}, "dst_mac is b'123'"),
        ({"dst_mac": np.zeros((2, 6), np.uint8)}, "dst_mac is uint8 of shape"),
        ({"src_ip": "192.0.2"}, "src_ip is '192.0.2'"),
        ({"dst_ip": -1}, "dst_ip is -1"),
        ({"dst_ip": 2**32}, "dst_ip"),
        ({"src_port": 65536}, "src_port is 65536 to 65536; accepted is 0 to 65535"),
        ({"dst_port": [1, 2]}, r"dst_port is int64 of shape \(2,\)"),
        ({"dst_port": 1.0}, "dst_port is float64"),
        ({"payloads": np.zeros((3, 4), np.uint16)}, "payloads is uint16"),
        ({"payloads": np.zeros(3, np.uint8)}, r"payloads is uint8 of shape \(3,\)"),
        ({"payloads": (1, 65508)}, "up to 65507"),
        ({"payloads": (-1, 5)}, r"payloads is \(-1, 5\)"),
    ],
)
def test_what_is_refused(change: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"payloads": (3, 4), **ADDRESSES, **change}
    with pytest.raises(InvalidParameterError, match=text):
        ethernet.udp_frames(**arguments)


def udp(payload: bytes) -> bytes:
    return b"\x0f\xa0\x13\x88" + (8 + len(payload)).to_bytes(2, "big") + b"\0\0" + payload


def ipv4(payload: bytes, options: bytes = b"", fragment: int = 0x4000, protocol: int = 17) -> bytes:
    header = bytes([0x45 + len(options) // 4, 0])
    header += (20 + len(options) + len(payload)).to_bytes(2, "big") + b"\0\0"
    header += fragment.to_bytes(2, "big") + bytes([64, protocol]) + bytes(10)
    return header + options + payload


def ipv6(payload: bytes, extensions: bytes = b"", following: int = 17) -> bytes:
    length = len(extensions) + len(payload)
    header = bytes([0x60, 0, 0, 0]) + length.to_bytes(2, "big") + bytes([following, 64])
    return header + bytes(32) + extensions + payload


def ethernet_frame(packet: bytes, ether_type: int, tags: bytes = b"") -> bytes:
    return bytes(12) + tags + ether_type.to_bytes(2, "big") + packet


FOUND = {
    "ipv4": ethernet_frame(ipv4(udp(b"hello")), 0x0800),
    "padded to 60": ethernet_frame(ipv4(udp(b"hello")), 0x0800).ljust(60, b"\0"),
    "options": ethernet_frame(ipv4(udp(b"hello"), options=b"\x01" * 8), 0x0800),
    "vlan": ethernet_frame(ipv4(udp(b"hello")), 0x0800, b"\x81\0\0\x05"),
    "two tags": ethernet_frame(ipv4(udp(b"hello")), 0x0800, b"\x88\xa8\0\x05\x81\0\0\x06"),
    "ipv6": ethernet_frame(ipv6(udp(b"hello")), 0x86DD),
    "hop by hop": ethernet_frame(ipv6(udp(b"hello"), b"\x11\0" + bytes(6), 0), 0x86DD),
    "two extensions": ethernet_frame(
        ipv6(udp(b"hello"), b"\x3c\0" + bytes(6) + b"\x11\x01" + bytes(14), 0), 0x86DD
    ),
    "atomic fragment": ethernet_frame(ipv6(udp(b"hello"), b"\x11\0\0\0" + bytes(4), 44), 0x86DD),
}
NOT_FOUND = {
    "tcp": ethernet_frame(ipv4(udp(b"hello"), protocol=6), 0x0800),
    "first fragment": ethernet_frame(ipv4(udp(b"hello"), fragment=0x2000), 0x0800),
    "last fragment": ethernet_frame(ipv4(udp(b"hello"), fragment=0x0003), 0x0800),
    "ipv6 fragment": ethernet_frame(ipv6(udp(b"hello"), b"\x11\0\0\1" + bytes(4), 44), 0x86DD),
    "arp": ethernet_frame(bytes(28), 0x0806),
    "cut": ethernet_frame(ipv4(udp(b"hello")), 0x0800)[:-1],
    "cut in the header": ethernet_frame(ipv4(udp(b"hello")), 0x0800)[:30],
    "longer than its ip packet": ethernet_frame(
        ipv4(udp(b"hello")[:4] + b"\0\x40\0\0" + b"x"), 0x0800
    ),
    "udp length below 8": ethernet_frame(ipv4(b"\0\1\0\2\0\7\0\0"), 0x0800),
    "wrong version": ethernet_frame(b"\x65" + ipv4(udp(b"hello"))[1:], 0x0800),
    "short header length": ethernet_frame(b"\x44" + ipv4(udp(b"hello"))[1:], 0x0800),
    "one byte": b"\0",
}


@pytest.mark.parametrize("frame", FOUND.values(), ids=FOUND.keys())
def test_payloads_in_all_wrappings(frame: bytes) -> None:
    assert payload_of(frame) == b"hello"


@pytest.mark.parametrize("frame", NOT_FOUND.values(), ids=NOT_FOUND.keys())
def test_what_is_no_datagram(frame: bytes) -> None:
    assert payload_of(frame) is None


@pytest.mark.parametrize("packet", [ipv4(udp(b"hello")), ipv6(udp(b"hello"))])
def test_payloads_of_raw_ip(packet: bytes) -> None:
    assert payload_of(packet, link_type=101) == b"hello"
    assert payload_of(b"\x15" + packet[1:], link_type=101) is None


def test_payloads_of_a_file(tmp_path: Path) -> None:
    packets = [*FOUND.values(), *NOT_FOUND.values()]
    write_pcap(tmp_path / "mixed.pcap", packets)
    with PcapFile(tmp_path / "mixed.pcap") as pcap:
        offsets, lengths = ethernet.udp_payload(pcap)
        assert (lengths >= 0).tolist() == [True] * len(FOUND) + [False] * len(NOT_FOUND)
        for offset, length in zip(offsets[: len(FOUND)], lengths, strict=False):
            assert pcap.data[offset : offset + length].tobytes() == b"hello"


@given(
    packets=st.lists(
        st.one_of(
            st.binary(max_size=80),
            st.tuples(
                st.sampled_from(list(FOUND.values())), st.integers(0, 79), st.binary(max_size=6)
            ).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + len(t[2]) :]),
        ),
        min_size=1,
        max_size=8,
    ),
    link_type=st.sampled_from([1, 101]),
)
def test_neighbours_and_noise_do_not_matter(packets: list[bytes], link_type: int) -> None:
    width = max(1, *map(len, packets))
    rows = np.zeros((len(packets), width), np.uint8)
    for row, packet in zip(rows, packets, strict=True):
        row[: len(packet)] = np.frombuffer(packet, np.uint8)
    together = ethernet.udp_payload(rows, link_type=link_type)
    for i, row in enumerate(rows):
        (offset,), (length,) = ethernet.udp_payload(row.reshape(1, -1), link_type=link_type)
        assert together[1][i] == length
        assert together[0][i] == offset + i * width
        assert length < 0 or 0 <= offset <= offset + length <= width


@pytest.mark.parametrize(
    ("packets", "link_type"),
    [
        (np.zeros((1, 60), np.int16), None),
        (np.zeros(60, np.uint8), None),
        (np.zeros((1, 60), np.uint8), 147),
    ],
)
def test_packets_that_are_refused(packets: NDArray[Any], link_type: int | None) -> None:
    with pytest.raises(InvalidParameterError):
        ethernet.udp_payload(packets, link_type=link_type)


def test_no_packets() -> None:
    for rows in (np.zeros((0, 60), np.uint8), np.zeros((0, 0), np.uint8)):
        offsets, lengths = ethernet.udp_payload(rows)
        assert offsets.shape == lengths.shape == (0,)
    _, lengths = ethernet.udp_payload(np.zeros((2, 0), np.uint8))
    assert lengths.tolist() == [-1, -1]
    assert ethernet.udp_frames((0, 10), **ADDRESSES).shape == (0, 52)
