"""GigE Vision cameras."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument, scaled_images
from ._pixel_bytes import pixel_bits, pixel_bytes

__all__ = ["GigeVision"]

_LEADER, _TRAILER, _PAYLOAD = 1, 2, 3
_EXTENDED_IDS = 0x80
_IMAGE = 1
# Of IPv4 and UDP.
_HEADERS = 28

_HEADER = np.dtype([("status", ">u2"), ("block_id", ">u2"), ("format_packet_id", ">u4")])
_EXTENDED_HEADER = np.dtype(
    [
        ("status", ">u2"),
        ("flags", ">u2"),
        ("format", "u1"),
        ("reserved", "V3"),
        ("block_id", ">u8"),
        ("packet_id", ">u4"),
    ]
)
_IMAGE_LEADER = np.dtype(
    [
        ("fields", ">u2"),
        ("payload_type", ">u2"),
        ("timestamp", ">u8"),
        ("pixel_format", ">u4"),
        ("size_x", ">u4"),
        ("size_y", ">u4"),
        ("offset_x", ">u4"),
        ("offset_y", ">u4"),
        ("padding_x", ">u2"),
        ("padding_y", ">u2"),
    ]
)
_IMAGE_TRAILER = np.dtype([("reserved", ">u2"), ("payload_type", ">u2"), ("size_y", ">u4")])

# Type of the pixels in a plan, PFNC value, rows and columns, bytes of an IP packet, extended IDs.
_FORMATS = {
    "Mono8": ("uint8", 0x01080001, (480, 640), 1500, False),
    "Mono12p": ("uint12", 0x010C0047, (1024, 1280), 9000, True),
}


class GigeVision(Instrument):
    """A camera that sends images with the GigE Vision stream protocol (GVSP).

    A block is an image: a leader with its size and pixel format, payload packets, of which the last
    is shorter, and a trailer. Blocks are numbered from 1; packets from 0, which is the leader.

    Parameters
    ----------
    pixels : {"Mono8", "Mono12p"}
        Pixel format. ``Mono8``: 480 x 640 pixels of 8 bits in IP packets of 1500 bytes, with block
        numbers of 16 bits, which go from 65535 to 1. ``Mono12p``: 1024 x 1280 pixels of 12 bits
        without gaps, the least significant bits first, in IP packets of 9000 bytes, with extended
        IDs: block numbers of 64 bits and packet numbers of 32 bits.

    Notes
    -----
    Format: GVSP as Wireshark's dissector and the library Aravis describe it publicly; pixels:
    EMVA's Pixel Format Naming Convention (PFNC). There is no control protocol (GVCP): packets that
    are lost are not sent again.
    """

    port = 50030
    leaders = trailers = 1

    def __init__(self, pixels: Literal["Mono8", "Mono12p"]) -> None:
        self._type, self._pixel_format, self.shape, mtu, self._extended = _FORMATS[pixels]
        self.name = "gige-vision" if pixels == "Mono8" else f"gige-vision-{pixels.lower()}"
        self.dtype = np.dtype(np.uint8 if self._type == "uint8" else np.uint16)
        self._header = _EXTENDED_HEADER if self._extended else _HEADER
        self._payload = mtu - _HEADERS - self._header.itemsize
        self._image_bytes = math.prod(self.shape) * pixel_bits(self._type) // 8
        self.packets_per_frame = 2 + math.ceil(self._image_bytes / self._payload)
        self.packet_size = self._header.itemsize + self._payload

    def sizes(self) -> NDArray[np.intp]:
        """Return the bytes of each UDP payload of a frame."""
        made = np.full(self.packets_per_frame, self._payload)
        made[0], made[-1] = _IMAGE_LEADER.itemsize, _IMAGE_TRAILER.itemsize
        made[-2] = self._image_bytes - self._payload * (len(made) - 3)
        return made + self._header.itemsize

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return images."""
        most = 2 ** pixel_bits(self._type) - 1
        return scaled_images(self.shape, self.dtype, first, count, rng, most)

    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return the packets in order."""
        count, each, header = len(frames), self.packets_per_frame, self._header.itemsize
        made = np.zeros((count, each, self.packet_size), np.uint8)
        number = np.arange(first, first + count)
        kinds = np.full(each, _PAYLOAD, np.uint32)
        kinds[0], kinds[-1] = _LEADER, _TRAILER
        heads = np.zeros((count, each), self._header)
        if self._extended:
            heads["format"] = kinds | _EXTENDED_IDS
            heads["block_id"] = number[:, None] + 1
            heads["packet_id"] = np.arange(each)
        else:
            heads["block_id"] = number[:, None] % 65535 + 1
            heads["format_packet_id"] = kinds << 24 | np.arange(each, dtype=np.uint32)
        made[..., :header] = heads.view(np.uint8).reshape(count, each, header)
        leader, trailer = np.zeros(count, _IMAGE_LEADER), np.zeros(count, _IMAGE_TRAILER)
        leader["payload_type"] = trailer["payload_type"] = _IMAGE
        leader["timestamp"] = number * 1_000_000
        leader["pixel_format"] = self._pixel_format
        leader["size_y"], leader["size_x"] = self.shape
        trailer["size_y"] = self.shape[0]
        for at, part in ((0, leader), (-1, trailer)):
            end = header + part.itemsize
            made[:, at, header:end] = part.view(np.uint8).reshape(count, -1)
        pixels = np.zeros((count, (each - 2) * self._payload), np.uint8)
        pixels[:, : self._image_bytes] = pixel_bytes(
            frames.reshape(count, -1), self._type, packing="lsb"
        )
        made[:, 1:-1, header:] = pixels.reshape(count, each - 2, self._payload)
        return made.reshape(-1, self.packet_size)
