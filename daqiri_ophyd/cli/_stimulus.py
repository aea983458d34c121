"""Frames for the demonstration."""

import numpy as np
from numpy.typing import NDArray

from ..engine import ethernet


def numbered_payloads(count: int, size: int) -> NDArray[np.uint8]:
    """Return payloads of shape ``(count, size)``: a big-endian 32-bit number, then noise."""
    payloads = np.random.default_rng(20_000).integers(0, 256, (count, size), dtype=np.uint8)
    payloads[:, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(count, 4)
    return payloads


def udp_stimulus(count: int, payload_size: int, udp_ports: list[int]) -> NDArray[np.uint8]:
    """Return frames of shape ``(count, 42 + payload_size)``, alternating between the UDP ports."""
    turn = np.resize(np.asarray(udp_ports, np.uint16), count)
    return ethernet.udp_frames(
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

    Packets of a group are ``interval_ns`` apart; the pause is ten intervals. With two lengths of
    gaps, the schedule can be compared with that of a replay.
    """
    gaps = np.full(count, interval_ns, np.int64)
    gaps[::group] += 10 * interval_ns
    gaps[0] = 0
    return np.cumsum(gaps)
