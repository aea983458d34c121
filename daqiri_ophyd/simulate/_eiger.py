"""EIGER detectors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._instrument import scaled_images
from ._psi_detector import PsiDetector

__all__ = ["Eiger"]

# Of a quarter, which is what a port sends.
_ROWS, _COLUMNS = 256, 512
# Packets of 12 bits are shorter, so that they have whole pixels.
_PAYLOAD, _PAYLOAD_OF_12_BITS = 4096, 3072


class Eiger(PsiDetector):
    """A detector like an EIGER 500K: a module of two half modules with two ports each.

    The left and the right 256 x 512 pixels of the upper half module, then those of the lower one,
    are the four parts of a frame. The lower half module is upside down: its first row is the lowest
    one of the image.

    Parameters
    ----------
    bits : {4, 8, 12, 16, 32}
        Bits of a pixel. A packet has 4096 bytes of pixels or, of 12 bits, 3072: four rows.

    Notes
    -----
    Format: that of `PsiDetector`, detector type 1, over 10 Gb/s. An EIGER sends 4096 bytes of
    pixels of 12 bits, too, of which the last one goes on in the next packet: plans do not take
    these.
    """

    detector_type = 1
    port = 50041
    needs_own_ports = True
    modules = (0, 0, 1, 1)
    rows = (0, 0, 1, 1)
    columns = (0, 1, 0, 1)

    def __init__(self, bits: Literal[4, 8, 12, 16, 32]) -> None:
        self.pixels = f"uint{bits}"
        self._most = 2**bits - 1 if bits < 16 else None
        payload = _PAYLOAD_OF_12_BITS if bits == 12 else _PAYLOAD
        self.stream_packets = _ROWS * _COLUMNS * bits // 8 // payload
        super().__init__(f"eiger-{bits}bit", (4, _ROWS, _COLUMNS))

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return images, in four parts."""
        shape = (2 * _ROWS, 2 * _COLUMNS)
        made = scaled_images(shape, self.dtype, first, count, rng, self._most)
        parts = made.reshape(count, 2, _ROWS, 2, _COLUMNS).transpose(0, 1, 3, 2, 4).copy()
        parts[:, 1] = parts[:, 1, :, ::-1]
        return parts.reshape(count, *self.shape)

    def image(self, frame: NDArray[Any]) -> NDArray[Any]:
        """Return the image of the module, with the lower half the right way up."""
        parts = frame.reshape(2, 2, _ROWS, _COLUMNS).copy()
        parts[1] = parts[1, :, ::-1]
        return parts.transpose(0, 2, 1, 3).reshape(2 * _ROWS, 2 * _COLUMNS)
