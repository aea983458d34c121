"""SPEAD streams."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument

__all__ = ["Spead"]

_PAYLOAD = 4096
# Magic, version 4, 2 bytes of mode and id and 6 of value or address in an item, items.
_HEADER = 0x53_04_02_06_0000_0005
_IMMEDIATE = 1 << 63
_HEAP_COUNTER, _HEAP_SIZE, _HEAP_OFFSET, _PAYLOAD_LENGTH = (
    _IMMEDIATE | number << 48 for number in (1, 2, 3, 4)
)
_DATA = 0x1000 << 48

_PACKET = np.dtype(
    [
        ("header", ">u8"),
        ("heap_counter", ">u8"),
        ("heap_size", ">u8"),
        ("heap_offset", ">u8"),
        ("payload_length", ">u8"),
        ("data", ">u8"),
        ("payload", "u1", (_PAYLOAD,)),
    ]
)


class Spead(Instrument):
    """A radio telescope that sends SPEAD-64-48 heaps.

    A heap is 64 channels x 512 spectra of complex int8 (real, imaginary) from a channeliser, in 16
    packets. Each has the items heap counter (from 1), heap size, heap offset, payload length and
    the pointer to the data, item 0x1000.

    Notes
    -----
    Format: "SPEAD: Streaming Protocol for Exchanging Astronomical Data" by J. Manley, M. Welz,
    A. Parsons, S. Ratcliffe and R. van Rooyen (version 4), flavour 64-48.
    """

    name = "spead"
    port = 7148
    shape = (64, 512, 2)
    dtype = np.dtype(np.int8)
    packets_per_frame = 16
    packet_size = _PACKET.itemsize

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[np.int8]:
        """Return noise, and a signal in one channel that changes with each heap."""
        made = rng.integers(-10, 11, (count, *self.shape), dtype=np.int8)
        channel = np.arange(first, first + count) % self.shape[0]
        made[np.arange(count), channel] += np.int8(100)
        return made

    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return the packets, heap by heap."""
        count = len(frames)
        made = np.zeros((count, self.packets_per_frame), _PACKET)
        number = np.arange(first, first + count, dtype=np.uint64)[:, None]
        offset = np.arange(self.packets_per_frame, dtype=np.uint64) * np.uint64(_PAYLOAD)
        made["header"] = _HEADER
        made["heap_counter"] = number + np.uint64(_HEAP_COUNTER + 1)
        made["heap_size"] = _HEAP_SIZE | self.packets_per_frame * _PAYLOAD
        made["heap_offset"] = offset + np.uint64(_HEAP_OFFSET)
        made["payload_length"] = _PAYLOAD_LENGTH | _PAYLOAD
        made["data"] = _DATA
        made["payload"] = frames.view(np.uint8).reshape(count, self.packets_per_frame, _PAYLOAD)
        return made.reshape(-1).view(np.uint8).reshape(-1, self.packet_size)
