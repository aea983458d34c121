"""Detectors with a packet format."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument, scaled_images
from ._packet_format import PacketField, PacketFormat
from ._pixel_bytes import pixel_bits, pixel_bytes

__all__ = ["DescribedDetector"]


class DescribedDetector(Instrument):
    """A detector that sends test images in packets of a format.

    The images have rings and a bright spot that moves, scaled to the type of the pixels. Fields
    with a role count, fields with a value have it, and others are 0. Frame numbers with ``step:
    any`` grow by about 1000, or a sixteenth of the numbers of their field. With a
    ``payload_offset``, the pixels of a frame's first packet begin one unit later than those of
    others. Leaders and trailers have another value in fields that are required.

    Parameters
    ----------
    form : PacketFormat
        The packets.
    """

    def __init__(self, form: PacketFormat) -> None:
        self.form = form
        self.name = form.name
        self.shape = form.shape
        self.dtype = form.dtype
        self.streams = form.modules
        self.layout = form.layout
        self.leaders = form.leaders * form.modules
        self.trailers = form.trailers * form.modules
        self.packets_per_frame = self.leaders + form.modules * form.packets + self.trailers
        # Bytes between the header and the pixels of a frame's first packet.
        self._behind = 0
        if (offset := form.field("payload_offset")) and offset.first + 1 < 2**offset.width:
            self._behind = offset.unit
        self.packet_size = form.header_bytes + self._behind + form.payload_bytes
        self.port = form.ports[0]
        self.own_ports = self.needs_own_ports = len(form.ports) > 1
        if form.source_ports:
            self.source_port = form.source_ports[0]

    def sizes(self) -> NDArray[np.intp]:
        """Return the bytes of each UDP payload of a frame."""
        form = self.form
        made = np.full((form.leaders + form.packets + form.trailers, form.modules), 0, np.intp)
        data = made[form.leaders : form.leaders + form.packets]
        data[:] = form.payload_bytes
        data[-1] = form.last_bytes
        data[0] += self._behind
        return made.reshape(-1) + form.header_bytes

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return test images."""
        bits = pixel_bits(self.form.pixels)
        most = None
        if bits < 16:
            most = 2 ** (bits - (self.dtype.kind == "i")) - 1
        return self.with_gaps(scaled_images(self.shape, self.dtype, first, count, rng, most))

    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return the packets, alternating between modules."""
        form, count = self.form, len(frames)
        each = form.leaders + form.packets + form.trailers
        made = np.zeros((count, each, form.modules, self.packet_size), np.uint8)
        data = made[:, form.leaders : form.leaders + form.packets]
        frame = np.arange(first, first + count, dtype=np.uint64)[:, None, None]
        packet = np.arange(form.packets, dtype=np.uint64)[None, :, None]
        numbers = {
            "frame_number": frame,
            "packet_number": packet,
            "sequence_number": frame * np.uint64(form.packets) + packet,
            "byte_offset": packet * np.uint64(form.payload_bytes),
            "module": np.arange(form.modules, dtype=np.uint64)[None, None, :],
            "payload_offset": (packet == 0).astype(np.uint64) * np.uint64(self._behind),
        }
        for field in form.header:
            if field.role is not None:
                number = numbers[field.role] // np.uint64(field.unit) * np.uint64(field.step)
                if not field.step:
                    about = np.uint64(max(1, min(1000, 2**field.most_bits >> 4)))
                    number = frame * about + frame * np.uint64(7919) % about
                number = number + np.uint64(field.first)
                _put(data, field, number)
                if field.role in ("frame_number", "module"):
                    _put(made[:, : form.leaders], field, number)
                    _put(made[:, form.leaders + form.packets :], field, number)
                continue
            if field.value:
                _put(data, field, np.uint64(field.value))
            if field.required:
                other = np.uint64(0 if field.value else 1)
                _put(made[:, : form.leaders], field, other)
                _put(made[:, form.leaders + form.packets :], field, other)
        parts = np.zeros((count, form.modules, form.packets * form.payload_bytes), np.uint8)
        pixels = self._bytes(self.in_packets(frames)).reshape(count, form.modules, -1)
        parts[..., : pixels.shape[-1]] = pixels
        parts = parts.reshape(count, form.modules, form.packets, -1).transpose(0, 2, 1, 3)
        behind = form.header_bytes + self._behind
        data[:, :1, :, behind:] = parts[:, :1]
        data[:, 1:, :, form.header_bytes : form.header_bytes + form.payload_bytes] = parts[:, 1:]
        return made.reshape(-1, self.packet_size)

    def _bytes(self, frames: NDArray[Any]) -> NDArray[np.uint8]:
        form = self.form
        return pixel_bytes(frames, form.pixels, byte_order=form.byte_order, packing=form.packing)


def _put(packets: NDArray[np.uint8], field: PacketField, number: Any) -> None:
    """Write the lowest bits of numbers into a field of packets whose bits there are 0.

    Parameters
    ----------
    packets : ndarray of uint8, shape (..., bytes)
        Packets.
    field : PacketField
        The field; of more than 64 bits, the upper ones stay 0.
    number : numpy.uint64 or ndarray of uint64
        Numbers that broadcast to the packets.
    """
    width = min(field.width, 64)
    number = number & np.uint64(2**width - 1)
    if field.byte_order == "little":
        for index in range(width // 8):
            packets[..., field.offset // 8 + index] = number >> np.uint64(8 * index) & np.uint64(
                255
            )
        return
    end = field.offset + field.width
    for index in range((end - width) // 8, math.ceil(end / 8)):
        # The lowest bit of this byte, counted in the number; negative: it ends within the byte.
        low = end - 8 * (index + 1)
        part = number >> np.uint64(low) if low >= 0 else number << np.uint64(-low)
        packets[..., index] |= (part & np.uint64(255)).astype(np.uint8)
