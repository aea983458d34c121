"""Capture files made by the formats' definitions."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import dpkt
import pytest

WritePcap = Callable[..., Path]


@pytest.fixture
def write_pcap(tmp_path: Path) -> WritePcap:
    """Write a nanosecond pcap file of packets (bytes) at times (ns)."""

    def write(
        packets: Sequence[bytes], times: Sequence[int], link_type: int = 1, name: str = "a.pcap"
    ) -> Path:
        records = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, link_type)]
        for packet, time in zip(packets, times, strict=True):
            records.append(struct.pack("<IIII", *divmod(time, 10**9), len(packet), len(packet)))
            records.append(packet)
        (tmp_path / name).write_bytes(b"".join(records))
        return tmp_path / name

    return write


@pytest.fixture
def udp_frame() -> Callable[..., bytes]:
    """Return an Ethernet frame with a UDP datagram."""

    def frame(payload: bytes, source: str = "10.0.0.1", port: int = 5000) -> bytes:
        udp = dpkt.udp.UDP(sport=4000, dport=port, data=payload)
        udp.ulen = len(udp)
        ip = dpkt.ip.IP(
            src=bytes(map(int, source.split("."))), dst=bytes([10, 0, 0, 2]), p=17, data=udp
        )
        ip.len = len(ip)
        return bytes(dpkt.ethernet.Ethernet(src=b"\2" * 6, dst=b"\4" * 6, data=ip))

    return frame
