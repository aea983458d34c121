"""Frames for the demonstration."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..engine import frames

PCAP_HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("zone", "<i4"),
        ("accuracy", "<u4"),
        ("snap_length", "<u4"),
        ("link_type", "<u4"),
    ]
)


def numbered_payloads(count: int, size: int) -> NDArray[np.uint8]:
    """Return payloads of shape ``(count, size)``: a big-endian 32-bit number, then noise."""
    payloads = np.random.default_rng(20_000).integers(0, 256, (count, size), dtype=np.uint8)
    payloads[:, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(count, 4)
    return payloads


def udp_stimulus(count: int, payload_size: int, udp_ports: list[int]) -> NDArray[np.uint8]:
    """Return frames of shape ``(count, 42 + payload_size)``, taking turns at the UDP ports."""
    turn = np.resize(np.asarray(udp_ports, np.uint16), count)
    return frames.udp_frames(
        numbered_payloads(count, payload_size),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=turn,
    )


def schedule(count: int, interval_ns: int, group: int) -> NDArray[np.int64]:
    """
    Return launch times from 0, shape ``(count,)``, ns: groups with a pause between them.

    Packets of a group are ``interval_ns`` apart; the pause is ten intervals. Two gap lengths make
    a schedule that a replay can be compared with.
    """
    gaps = np.full(count, interval_ns, np.int64)
    gaps[::group] += 10 * interval_ns
    gaps[0] = 0
    return np.cumsum(gaps)


def write_pcap(
    path: Path, packets: NDArray[np.uint8], timestamps: NDArray[np.int64], link_type: int
) -> None:
    """
    Write packets of equal length as a nanosecond pcap file (classic 2.4).

    Parameters
    ----------
    path
        File to write; replaced if it exists.
    packets
        Shape ``(n, length)``.
    timestamps
        ns, shape ``(n,)``.
    link_type
        1 Ethernet, 101 IP without a link layer.
    """
    count, length = packets.shape
    record = np.dtype(
        [
            ("seconds", "<u4"),
            ("ns", "<u4"),
            ("stored", "<u4"),
            ("on_wire", "<u4"),
            ("data", "u1", length),
        ]
    )
    records = np.empty(count, record)
    records["seconds"], records["ns"] = np.divmod(timestamps, 1_000_000_000)
    records["stored"] = records["on_wire"] = length
    records["data"] = packets
    header = np.array((0xA1B23C4D, 2, 4, 0, 0, 262_144, link_type), PCAP_HEADER)
    path.write_bytes(header.tobytes() + records.tobytes())
