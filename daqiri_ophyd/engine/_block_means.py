"""Frames as means of blocks of their pixels, for displays."""

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd._native import ReorderConfig

from ._errors import InvalidParameterError

__all__ = ["block_means", "require_binning", "values_of"]

# Wider blocks have so many pixels that a call of numpy for each takes longer than a running sum.
_WIDE = 64


def require_binning(config: ReorderConfig, binning: int) -> int:
    """Return the binning of a display of a plan's frames, as an int.

    Raises
    ------
    InvalidParameterError
        If frames have no blocks of that size.
    TypeError
        If it is not an integer.
    """
    number = operator.index(binning)
    shape = tuple(config.frame.shape) if config.frame else ()
    most = min(shape[-2:]) if len(shape) >= 2 else 1
    if 1 <= number <= most:
        return number
    found = f"reorder plan {config.name!r}: binning is {number}"
    if len(shape) < 2:
        raise InvalidParameterError(
            f"{found}; accepted is 1: its frames do not have two axes; give it a frame whose shape "
            "has rows and columns"
        )
    raise InvalidParameterError(
        f"{found}; accepted is 1 to {most}, the shorter of the last two axes of {shape}"
    )


def values_of(config: ReorderConfig, pixels: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers of a plan's pixels: those of bf16, which are stored as bits, as floats."""
    output = config.data_types.output_type if config.data_types else "same"
    if output == "bf16" and pixels.dtype == np.uint16:
        return (pixels.astype(np.uint32) << 16).view(np.float32)
    return pixels


def block_means(pixels: NDArray[Any], binning: int) -> NDArray[np.float32]:
    """Return the mean of each block of pixels of the last two axes.

    Sums of integers are exact. Floats are added as float64, in the order of rows. The sum is
    divided as float64 and rounded once.

    Parameters
    ----------
    pixels : ndarray of int or float, shape (..., rows, columns)
        Rows and columns at the end that fill no block are left out.
    binning : int
        Length of a block's sides, up to the shorter of the two axes.

    Returns
    -------
    ndarray of float32, shape (..., rows // binning, columns // binning)
        NaN where a pixel is NaN or the mean is undefined.
    """
    *images, rows, columns = pixels.shape
    rows, columns = rows // binning, columns // binning
    blocks = pixels[..., : rows * binning, : columns * binning]
    blocks = blocks.reshape(*images, rows, binning, columns, binning)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.asarray(_sums(blocks) / (float(binning) * binning), np.float32)
    # Results of operations have several patterns of bits.
    means[np.isnan(means)] = np.nan
    return means


def _sums(blocks: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sums of blocks, from their pixels of shape (..., rows, n, columns, n)."""
    if blocks.dtype.kind == "f":
        return _float_sums(blocks)
    if blocks.dtype.itemsize < 8:
        return _integer_sums(blocks).astype(np.float64)
    # A block has less than 2^32 bytes: sums of either half do not overflow.
    upper, lower = ((blocks >> 32).astype(np.int64), (blocks & 0xFFFFFFFF).astype(np.int64))
    return _integer_sums(upper) * 2.0**32 + _integer_sums(lower).astype(np.float64)


def _integer_sums(blocks: NDArray[Any]) -> NDArray[np.int64]:
    # Slices are added, because numpy is slow to sum over short axes.
    lines = blocks[..., 0, :, :].astype(np.int64)
    for y in range(1, blocks.shape[-3]):
        lines += blocks[..., y, :, :]
    sums = lines[..., 0].copy()
    for x in range(1, blocks.shape[-1]):
        sums += lines[..., x]
    return sums


def _float_sums(blocks: NDArray[Any]) -> NDArray[np.float64]:
    *shape, n = (*blocks.shape[:-3], *blocks.shape[-2:])
    sums = np.zeros(shape)
    if n <= _WIDE:
        for y in range(n):
            for x in range(n):
                sums += blocks[..., y, :, x]
        return sums
    line = np.empty((*shape, n + 1))
    for y in range(n):
        line[..., 0] = sums
        line[..., 1:] = blocks[..., y, :, :]
        sums = np.add.accumulate(line, axis=-1)[..., -1]
    return sums
