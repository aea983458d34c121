"""Base class of detectors of the Paul Scherrer Institut."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument
from ._pixel_bytes import pixel_bits, pixel_bytes, pixel_dtype

__all__ = ["PsiDetector"]

_HEADER_VERSION = 2

_HEADER = np.dtype(
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
    ]
)


class PsiDetector(Instrument):
    """A detector with the UDP header of slsDetectorPackage.

    A packet is a header of 48 bytes, little-endian, and pixels, little-endian, of which those of 4
    and 12 bits are without gaps, the least significant bits first. Frames are numbered from 1, the
    packets of a stream from 0 in each frame.

    Attributes
    ----------
    detector_type : int
        Its number in the header.
    pixels : str
        Type of the pixels in packets, as in `pixel_bits`.
    stream_packets : int
        Packets of a stream in a frame.
    CHIP, CHIP_GAP, MODULE_GAP : tuple of int
        Rows and columns of a chip, and between the chips of a module and between modules: in pixels
        of the image that are not sent.
    modules, rows, columns : tuple of int
        Of each stream: number of its module, and place in the detector, counted in streams.

    Notes
    -----
    Format: "UDP Header" in the documentation of slsDetectorPackage, Paul Scherrer Institut
    (version 2 of the header). Fields that are specific to the detector are 0. Chips and their gaps:
    "Data Format" there. Gaps between modules differ from detector to detector; those here are
    assumed, after images of 514 rows every 550 and of 1030 columns every 1038 in public software of
    the institute.
    """

    CHIP = (256, 256)
    CHIP_GAP = (2, 2)
    MODULE_GAP = (36, 8)

    detector_type: int
    pixels: str
    stream_packets: int
    modules: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        self.dtype = pixel_dtype(self.pixels)
        self.streams = len(self.modules)
        self.packets_per_frame = self.streams * self.stream_packets
        pixels = math.prod(shape) if self.layout is None else len(self.layout.pixels)
        frame_bytes = pixels * pixel_bits(self.pixels) // 8
        self.packet_size = _HEADER.itemsize + frame_bytes // self.packets_per_frame

    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return the packets, alternating between streams."""
        count, header = len(frames), _HEADER.itemsize
        heads = np.zeros((count, self.stream_packets, self.streams), _HEADER)
        number = np.arange(first, first + count)[:, None, None]
        heads["frame_number"] = number + 1
        heads["exposure_length"] = 100
        heads["packet_number"] = np.arange(self.stream_packets)[None, :, None]
        heads["timestamp"] = number * 10_000
        heads["module_id"] = self.modules
        heads["row"], heads["column"] = self.rows, self.columns
        heads["detector_type"] = self.detector_type
        heads["header_version"] = _HEADER_VERSION
        made = np.empty((*heads.shape, self.packet_size), np.uint8)
        made[..., :header] = heads.view(np.uint8).reshape(*heads.shape, header)
        parts = pixel_bytes(self.in_packets(frames), self.pixels, packing="lsb")
        parts = parts.reshape(count, self.streams, self.stream_packets, -1)
        made[..., header:] = parts.transpose(0, 2, 1, 3)
        return made.reshape(-1, self.packet_size)
