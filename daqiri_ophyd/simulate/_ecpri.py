"""Radio units that use eCPRI."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument, waves

__all__ = ["Ecpri"]

_SAMPLES = 1024
_MESSAGES = 16
_REVISION = 1 << 4
_IQ_DATA = 0
_ANTENNA = 1

_PACKET = np.dtype(
    [
        ("revision", "u1"),  # and a bit that another message follows: 0
        ("type", "u1"),
        ("size", ">u2"),  # bytes after the common header
        ("pc_id", ">u2"),
        ("seq_id", ">u2"),
        ("samples", ">i2", (_SAMPLES, 2)),
    ]
)
_COMMON_HEADER = 4


class Ecpri(Instrument):
    """A radio unit that sends eCPRI IQ data messages (type 0), one in each UDP packet.

    A message has 1024 samples: I and Q as int16, big-endian. SEQ_ID counts messages, modulo 65536;
    PC_ID is 1. A frame is the content of 16 messages.

    Notes
    -----
    Format: eCPRI Specification V2.0, common header and message type 0. The specification leaves the
    coding of samples and the UDP port to the vendor.
    """

    name = "ecpri"
    port = 50020
    shape = (_MESSAGES, _SAMPLES, 2)
    dtype = np.dtype(np.int16)
    packets_per_frame = _MESSAGES
    packet_size = _PACKET.itemsize

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[np.int16]:
        """Return samples of a noisy sine."""
        return waves(self.shape, first, count, rng)

    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return the packets in order."""
        made = np.zeros(len(frames) * _MESSAGES, _PACKET)
        made["revision"] = _REVISION
        made["type"] = _IQ_DATA
        made["size"] = _PACKET.itemsize - _COMMON_HEADER
        made["pc_id"] = _ANTENNA
        made["seq_id"] = np.arange(first * _MESSAGES, first * _MESSAGES + len(made)) % 65536
        made["samples"] = frames.reshape(-1, _SAMPLES, 2)
        return made.view(np.uint8).reshape(-1, self.packet_size)
