"""EIGER detectors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._frame_layout import FrameLayout, ModuleLayout, ModulePosition
from ._instrument import scaled_images
from ._psi_detector import PsiDetector

__all__ = ["Eiger"]

# Of a quarter, which is what a port sends.
_ROWS, _COLUMNS = 256, 512
_PAYLOAD = 4096


class Eiger(PsiDetector):
    """A detector like an EIGER 500K: a module of two half modules with two ports each.

    The left and the right 256 x 512 pixels of the upper half module, then those of the lower one,
    go to ports of their own. The lower half module is upside down: it begins with the lowest row
    of the image. Frames are images, of 514 x 1030 pixels with the gaps between chips.

    Parameters
    ----------
    bits : {4, 8, 12, 16, 32}
        Bits of a pixel. A packet has 4096 bytes of pixels; of 12 bits, the last one goes on in the
        next packet.

    Notes
    -----
    Format: that of `PsiDetector`, detector type 1, over 10 Gb/s. The first UDP port of the upper
    half module (``udp_dstport``) has its left part, that of the lower one its right part.
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
        self.stream_packets = _ROWS * _COLUMNS * bits // 8 // _PAYLOAD
        row, column = _ROWS + self.CHIP_GAP[0], _COLUMNS + 2 * self.CHIP_GAP[1]
        self.layout = FrameLayout(
            shape=(row + _ROWS, column + _COLUMNS + self.CHIP_GAP[1]),
            modules=ModuleLayout(
                shape=(_ROWS, _COLUMNS),
                chip=self.CHIP,
                chip_gap=self.CHIP_GAP,
                positions=(
                    ModulePosition(origin=(0, 0)),
                    ModulePosition(origin=(0, column)),
                    ModulePosition(origin=(row, 0), flip="rows"),
                    ModulePosition(origin=(row, column), flip="rows"),
                ),
            ),
        )
        super().__init__(f"eiger-{bits}bit", self.layout.shape)

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return images, with 0 in the gaps."""
        return self.with_gaps(scaled_images(self.shape, self.dtype, first, count, rng, self._most))
