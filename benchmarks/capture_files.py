"""pcap files of UDP frames, for readers and replay tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine.ethernet import udp_frames

FILE_HEADER = np.array([0xA1B23C4D, 0x00040002, 0, 0, 262144, 1], np.uint32)
HEADERS = 42
MOST_IN_MEMORY = 4096


def frames(payloads: NDArray[np.uint8], port: int) -> NDArray[np.uint8]:
    """Return payloads as frames from and to this machine."""
    return udp_frames(
        payloads,
        src_mac="00:00:00:00:00:00",
        dst_mac="00:00:00:00:00:00",
        src_ip="127.0.0.1",
        dst_ip="127.0.0.1",
        src_port=4000,
        dst_port=port,
    )


def write_capture(path: Path, size: int, count: int, gap_ns: int, port: int = 4096) -> None:
    """Write `count` frames of `size` bytes, `gap_ns` apart, with nanosecond time stamps."""
    block = np.empty((min(count, MOST_IN_MEMORY), 16 + size), np.uint8)
    payloads = np.random.default_rng(1).integers(0, 256, (len(block), size - HEADERS), np.uint8)
    block[:, 16:] = frames(payloads, port)
    headers = np.empty((len(block), 4), np.uint32)
    headers[:, 2:] = size
    with path.open("wb") as file:
        file.write(FILE_HEADER.tobytes())
        for first in range(0, count, len(block)):
            times = np.arange(first, first + len(block)) * gap_ns
            headers[:, 0] = 1_700_000_000 + times // 1_000_000_000
            headers[:, 1] = times % 1_000_000_000
            block[:, :16] = headers.view(np.uint8)
            file.write(block[: count - first].tobytes())
