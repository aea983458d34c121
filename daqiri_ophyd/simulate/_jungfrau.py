"""JUNGFRAU detectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument, images

__all__ = ["Jungfrau"]

_ROWS, _COLUMNS = 512, 1024
_PACKETS = 128
_DETECTOR_TYPE = 3
_HEADER_VERSION = 2

_PACKET = np.dtype(
    [
        ("frame_number", "<u8"),
        ("exposure_length", "<u4"),  # 100 ns
        ("packet_number", "<u4"),
        ("specific_1", "<u8"),
        ("timestamp", "<u8"),  # 100 ns
        ("module_id", "<u2"),
        ("row", "<u2"),
        ("column", "<u2"),
        ("specific_2", "<u2"),
        ("specific_3", "<u4"),
        ("specific_4", "<u2"),
        ("detector_type", "u1"),
        ("header_version", "u1"),
        ("data", "<u2", (_ROWS * _COLUMNS // _PACKETS,)),
    ]
)


class Jungfrau(Instrument):
    """A JUNGFRAU detector of modules with 512 x 1024 pixels, one above the other.

    Each module sends 128 packets for a frame: a header of 48 bytes, little-endian, and 8192 bytes
    of pixels. Frames are numbered from 1, the packets of a module from 0.

    Parameters
    ----------
    modules : int
        Number of modules; each is a UDP stream.

    Notes
    -----
    Format: "UDP Header" in the documentation of slsDetectorPackage, Paul Scherrer Institut
    (version 2 of the header, detector type 3). Fields that are specific to the detector are 0.
    """

    port = 50001
    dtype = np.dtype(np.uint16)
    packet_size = _PACKET.itemsize

    def __init__(self, modules: int) -> None:
        self.name = "jungfrau" if modules == 1 else "jungfrau-stack"
        self.streams = modules
        self.shape = (modules * _ROWS, _COLUMNS)
        self.packets_per_frame = modules * _PACKETS

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[np.uint16]:
        """Return images."""
        return images((self.shape[0], self.shape[1]), first, count, rng)

    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return the packets, alternating between modules."""
        count = len(frames)
        made = np.zeros((count, _PACKETS, self.streams), _PACKET)
        number = np.arange(first, first + count)[:, None, None]
        made["frame_number"] = number + 1
        made["exposure_length"] = 100
        made["packet_number"] = np.arange(_PACKETS)[None, :, None]
        made["timestamp"] = number * 10_000
        made["module_id"] = made["row"] = np.arange(self.streams)
        made["detector_type"] = _DETECTOR_TYPE
        made["header_version"] = _HEADER_VERSION
        parts = frames.reshape(count, self.streams, _PACKETS, -1)
        made["data"] = parts.transpose(0, 2, 1, 3)
        return made.reshape(-1).view(np.uint8).reshape(-1, self.packet_size)
