"""Packets that become frames of plans on a GPU, for programs that pytest does not run, too."""

from typing import Any

import numpy as np

from daqiri_ophyd.engine import Engine, ethernet

Array = np.ndarray[Any, Any]

SLOTS, PAYLOAD = 16, 1000
SHAPE = (SLOTS, PAYLOAD // 2)


def send(engine: Engine, number: int) -> Array:
    """Send the packets of a frame; return its content."""
    sent = np.random.default_rng(number).integers(0, 256, (SLOTS, PAYLOAD + 8), np.uint8)
    for at in range(4):
        sent[:, at] = number >> 8 * (3 - at) & 255
        sent[:, 4 + at] = np.arange(SLOTS) >> 8 * (3 - at)
    packets = ethernet.udp_frames(
        sent,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )
    assert engine.port("port").tx[0].send(packets, timeout=20) == len(packets)
    return np.ascontiguousarray(sent[:, 8:]).view(np.uint16).reshape(SHAPE)
