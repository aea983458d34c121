"""JUNGFRAU detectors."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ._frame_layout import FrameLayout, ModuleLayout, ModulePosition
from ._instrument import images
from ._psi_detector import PsiDetector

__all__ = ["Jungfrau"]

_ROWS, _COLUMNS = 512, 1024
_PACKETS = 128


class Jungfrau(PsiDetector):
    """A JUNGFRAU detector of modules with 512 x 1024 pixels.

    Each module sends 128 packets for a frame, with 8192 bytes of pixels each, to one port; or its
    upper and its lower half send 64 packets each, to a port of their own. With one port, frames are
    the modules one above the other, without gaps. With two, frames are images of the detector, with
    gaps between chips and modules.

    Parameters
    ----------
    modules : int
        Number of modules, one above the other; with two ports, from 8 on in two columns, of which
        the left one is first.
    ports : {1, 2}
        UDP streams of a module.

    Notes
    -----
    Format: that of `PsiDetector`, detector type 3; halves: ``numinterfaces 2`` in the documentation
    of slsDetectorPackage. There, the outer interface (``udp_dstport``) has the lower half of a
    module, and the inner one (``udp_dstport2``) the upper half.
    """

    detector_type = 3
    pixels = "uint16"
    port = 50001

    def __init__(self, modules: int, ports: Literal[1, 2] = 1) -> None:
        columns = 2 if modules >= 8 and ports == 2 else 1
        rows = modules // columns
        self.stream_packets = _PACKETS // ports
        module, half = np.divmod(np.arange(modules * ports), ports)
        column, row = np.divmod(module, rows)
        self.modules = tuple(module.tolist())
        self.rows = tuple((row * ports + half).tolist())
        self.columns = tuple(column.tolist())
        self.needs_own_ports = ports > 1
        if ports == 1:
            name = "jungfrau" if modules == 1 else "jungfrau-stack"
            super().__init__(name, (modules * _ROWS, _COLUMNS))
            return
        self.layout = self._layout(rows, columns)
        name = "jungfrau-500k" if modules == 1 else f"jungfrau-{modules // 2}m"
        super().__init__(name, self.layout.shape)

    def _layout(self, rows: int, columns: int) -> FrameLayout:
        """Return the layout of a grid of modules: column after column, from the top down."""
        height, width = (
            size + (size // chip - 1) * gap
            for size, chip, gap in zip((_ROWS, _COLUMNS), self.CHIP, self.CHIP_GAP, strict=True)
        )
        down, right = height + self.MODULE_GAP[0], width + self.MODULE_GAP[1]
        return FrameLayout(
            shape=(rows * down - self.MODULE_GAP[0], columns * right - self.MODULE_GAP[1]),
            modules=ModuleLayout(
                shape=(_ROWS, _COLUMNS),
                chip=self.CHIP,
                chip_gap=self.CHIP_GAP,
                positions=tuple(
                    ModulePosition(origin=(row * down, column * right))
                    for column in range(columns)
                    for row in range(rows)
                ),
            ),
        )

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[np.uint16]:
        """Return images, with 0 in the gaps."""
        return self.with_gaps(images((self.shape[0], self.shape[1]), first, count, rng))
