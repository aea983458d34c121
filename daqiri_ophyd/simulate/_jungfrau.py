"""JUNGFRAU detectors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._instrument import images
from ._psi_detector import PsiDetector

__all__ = ["Jungfrau"]

_ROWS, _COLUMNS = 512, 1024
_PACKETS = 128


class Jungfrau(PsiDetector):
    """A JUNGFRAU detector of modules with 512 x 1024 pixels.

    Each module sends 128 packets for a frame, with 8192 bytes of pixels each, to one port; or its
    upper and its lower half send 64 packets each, to a port of their own.

    Parameters
    ----------
    modules : int
        Number of modules, one above the other; from 8 on in two columns, of which the left one is
        first.
    ports : {1, 2}
        UDP streams of a module.

    Notes
    -----
    Format: that of `PsiDetector`, detector type 3; halves: ``numinterfaces 2`` in the documentation
    of slsDetectorPackage. The gaps between modules are not in `image`.
    """

    detector_type = 3
    pixels = "uint16"
    port = 50001

    def __init__(self, modules: int, ports: Literal[1, 2] = 1) -> None:
        self._columns = 1 if modules < 8 else 2
        self._rows = modules // self._columns
        self.stream_packets = _PACKETS // ports
        module, half = np.divmod(np.arange(modules * ports), ports)
        column, row = np.divmod(module, self._rows)
        self.modules = tuple(module.tolist())
        self.rows = tuple((row * ports + half).tolist())
        self.columns = tuple(column.tolist())
        self.needs_own_ports = ports > 1
        if ports == 1:
            name = "jungfrau" if modules == 1 else "jungfrau-stack"
            super().__init__(name, (modules * _ROWS, _COLUMNS))
        else:
            name = "jungfrau-500k" if modules == 1 else f"jungfrau-{modules // 2}m"
            stack = (modules,) if modules > 1 else ()
            super().__init__(name, (*stack, _ROWS, _COLUMNS))

    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[np.uint16]:
        """Return images, module by module."""
        made = images((self._rows * _ROWS, self._columns * _COLUMNS), first, count, rng)
        parts = made.reshape(count, self._rows, _ROWS, self._columns, _COLUMNS)
        return parts.transpose(0, 3, 1, 2, 4).reshape(count, *self.shape)

    def image(self, frame: NDArray[Any]) -> NDArray[Any]:
        """Return the image of all modules, without the gaps between them."""
        parts = frame.reshape(self._columns, self._rows, _ROWS, _COLUMNS).transpose(1, 2, 0, 3)
        return parts.reshape(self._rows * _ROWS, self._columns * _COLUMNS)
