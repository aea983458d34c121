"""Pixels of the modules of an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["gap_mask", "module_pixels"]

# What is used of `ReorderFrameConfig`: simulated detectors have layouts of their own.


class _Position(Protocol):
    @property
    def origin(self) -> tuple[int, ...]: ...
    @property
    def flip(self) -> str: ...
    @property
    def rotate(self) -> int: ...


class _Modules(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def tile(self) -> tuple[int, ...]: ...
    @property
    def chip(self) -> tuple[int, ...]: ...
    @property
    def chip_gap(self) -> tuple[int, ...]: ...
    @property
    def positions(self) -> Sequence[_Position]: ...


class _Frame(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def modules(self) -> _Modules | None: ...


def module_pixels(frame: _Frame) -> NDArray[np.int64]:
    """Return the place of each pixel in the image, in the order in which packets have them.

    Parameters
    ----------
    frame : ReorderFrameConfig
        Frame of a reorder plan, or an object with its ``shape`` and ``modules``.

    Returns
    -------
    ndarray of int64, shape (pixels of all modules,)
        Indices of the image's pixels, row after row. Without modules, all in their order.
    """
    places = np.arange(np.prod(frame.shape, dtype=np.int64)).reshape(frame.shape)
    modules = frame.modules
    if modules is None:
        return places.reshape(-1)
    rows, columns = modules.shape
    tile, chip = modules.tile or modules.shape, modules.chip or modules.shape
    kept = [
        np.arange(size) + np.arange(size) // part * gap
        for size, part, gap in zip(modules.shape, chip, modules.chip_gap or (0, 0), strict=True)
    ]
    extent = [int(axis[-1]) + 1 for axis in kept]
    found = []
    for position in modules.positions:
        height, width = extent[::-1] if position.rotate % 180 else extent
        row, column = position.origin
        own = np.rot90(places[row : row + height, column : column + width], -position.rotate // 90)
        if position.flip in ("rows", "both"):
            own = own[::-1]
        if position.flip in ("columns", "both"):
            own = own[:, ::-1]
        tiles = own[np.ix_(*kept)].reshape(rows // tile[0], tile[0], columns // tile[1], tile[1])
        found.append(tiles.transpose(0, 2, 1, 3).reshape(-1))
    return np.concatenate(found)


def gap_mask(frame: _Frame) -> NDArray[np.bool_]:
    """Return which pixels of the image are of no module, or between chips.

    Parameters
    ----------
    frame : ReorderFrameConfig
        As of `module_pixels`.

    Returns
    -------
    ndarray of bool, with the shape of the frame
        True: frames have the fill value there.
    """
    mask = np.ones(np.prod(frame.shape, dtype=np.int64), np.bool_)
    mask[module_pixels(frame)] = False
    return mask.reshape(frame.shape)
