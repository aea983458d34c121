"""Where the pixels of simulated packets are in a frame."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from daqiri_ophyd.engine import gap_mask, module_pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FrameLayout", "ModuleLayout", "ModulePosition"]


@dataclass(frozen=True, kw_only=True)
class ModulePosition:
    """Where a module is in the image.

    Attributes
    ----------
    origin : tuple of int
        Row and column of its upper left pixel in the image.
    flip : {"none", "rows", "columns", "both"}
        ``rows``: it begins with its last row.
    rotate : {0, 90, 180, 270}
        Degrees counterclockwise, after the flip.
    """

    origin: tuple[int, int]
    flip: Literal["none", "rows", "columns", "both"] = "none"
    rotate: int = 0


@dataclass(frozen=True, kw_only=True)
class ModuleLayout:
    """The modules of an image, as ``modules`` of a plan's ``frame``.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of a module, as it is sent.
    positions : tuple of ModulePosition
        Of each module.
    tile, chip, chip_gap : tuple of int
        Rows and columns of the parts in which a module is sent, of its chips, and between two
        chips; empty: none.
    """

    shape: tuple[int, int]
    positions: tuple[ModulePosition, ...]
    tile: tuple[int, ...] = ()
    chip: tuple[int, ...] = ()
    chip_gap: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FrameLayout:
    """An image of modules.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of the image.
    modules : ModuleLayout
        Its modules.
    """

    shape: tuple[int, int]
    modules: ModuleLayout

    @cached_property
    def pixels(self) -> NDArray[np.int64]:
        """Index in the image of each pixel, in the order in which packets have them."""
        return module_pixels(self)

    @cached_property
    def gaps(self) -> NDArray[np.bool_]:
        """Pixels of the image that no packet has."""
        return gap_mask(self)
