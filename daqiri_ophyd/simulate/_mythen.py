"""MYTHEN detectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._instrument import scaled_images
from ._psi_detector import PsiDetector

__all__ = ["Mythen"]

_STRIPS, _COUNTERS = 1280, 3


class Mythen(PsiDetector):
    """A strip detector like a MYTHEN III module: 1280 strips with three counters of 24 bits.

    A frame is a row of 3840 counts, in 15 packets of 768 bytes.

    Notes
    -----
    Format: that of `PsiDetector`, detector type 6, over 1 Gb/s. Counters have 24 bits, and are sent
    as such here, the least significant byte first; a MYTHEN III fills them up to 32.
    """

    detector_type = 6
    pixels = "uint24"
    stream_packets = 15
    port = 50051
    modules = rows = columns = (0,)

    def __init__(self) -> None:
        super().__init__("mythen", (_STRIPS * _COUNTERS,))

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[np.uint32]:
        """Return counts with peaks, up to the largest number of 24 bits."""
        return scaled_images(self.shape, self.dtype, first, count, rng, 2**24 - 1)
