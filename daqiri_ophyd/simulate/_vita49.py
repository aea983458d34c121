"""VITA-49 digitizers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument, waves

__all__ = ["Vita49"]

_SAMPLES = 512
_PACKETS = 64
# IF data with a stream identifier; no class identifier, trailer or integer-seconds timestamp; the
# fractional-seconds timestamp is a free-running count.
_TYPE = 0b0001 << 28
_FREE_RUNNING_COUNT = 0b11 << 20
_STREAM = 1

_PACKET = np.dtype(
    [("header", ">u4"), ("stream", ">u4"), ("count", ">u8"), ("samples", ">i2", (_SAMPLES,))]
)


class Vita49(Instrument):
    """A digitizer that sends VRT IF data packets of 512 int16 samples, big-endian.

    The fractional-seconds timestamp of a packet is the number of its first sample. The packet count
    of the header has 4 bits, too few to order packets. A trace is the content of 64 packets.

    Notes
    -----
    Format: ANSI/VITA 49.0-2015, VITA Radio Transport (VRT), IF data packet.
    """

    name = "vita49"
    port = 4991
    shape = (_PACKETS * _SAMPLES,)
    dtype = np.dtype(np.int16)
    packets_per_frame = _PACKETS
    packet_size = _PACKET.itemsize

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[np.int16]:
        """Return traces of a noisy sine."""
        return waves(self.shape, first, count, rng)

    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return the packets in order."""
        made = np.zeros(len(frames) * _PACKETS, _PACKET)
        number = np.arange(first * _PACKETS, first * _PACKETS + len(made))
        words = _PACKET.itemsize // 4
        made["header"] = _TYPE | _FREE_RUNNING_COUNT | (number & 15) << 16 | words
        made["stream"] = _STREAM
        made["count"] = number * _SAMPLES
        made["samples"] = frames.reshape(-1, _SAMPLES)
        return made.view(np.uint8).reshape(-1, self.packet_size)
