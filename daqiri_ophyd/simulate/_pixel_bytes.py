"""Pixels as the bytes of packets, of which a reorder plan makes them."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["pixel_bits", "pixel_bytes", "pixel_dtype"]

_TYPE = re.compile(r"(u?int)(4|8|10|12|14|16|24|32|64)|(?:fp|float)(16|32|64)")


def _parts(name: str) -> tuple[str, int]:
    found = _TYPE.fullmatch(name)
    if found is None:
        raise ValueError(
            f"pixels: found {name!r}; accepts int and uint with 4, 8, 10, 12, 14, 16, 24, 32 or 64 "
            "bits, and fp (or float) with 16, 32 or 64"
        )
    return (found[1], int(found[2])) if found[1] else ("float", int(found[3]))


def pixel_bits(name: str) -> int:
    """Return the bits of a pixel in packets.

    Parameters
    ----------
    name : str
        An ``input_type`` of a plan, or NumPy's name of it: ``uint12``, ``fp32``, ``float32``.

    Raises
    ------
    ValueError
        If plans have no such type.
    """
    return _parts(name)[1]


def pixel_dtype(name: str) -> np.dtype[Any]:
    """Return the smallest type of NumPy that holds these pixels; parameters as of `pixel_bits`."""
    kind, bits = _parts(name)
    return np.dtype(f"{kind}{next(wide for wide in (8, 16, 32, 64) if wide >= bits)}")


def pixel_bytes(
    pixels: NDArray[Any], name: str, *, byte_order: str = "little", packing: str = "msb"
) -> NDArray[np.uint8]:
    """Return the bytes of packets in which a plan finds these pixels.

    Parameters
    ----------
    pixels : ndarray, shape (..., n)
        Values that the type holds. The `n` pixels fill whole bytes.
    name : str
        As for `pixel_bits`.
    byte_order : {"little", "big"}
        Of pixels of several whole bytes.
    packing : {"msb", "lsb"}
        Of pixels of 4, 10, 12 or 14 bits, as in ``data_types`` of a plan.

    Returns
    -------
    ndarray of uint8, shape (..., n * bits / 8)

    Raises
    ------
    ValueError
        If plans have no such type, or the pixels do not fill whole bytes.
    """
    bits, wide = pixel_bits(name), pixel_dtype(name)
    if pixels.shape[-1] * bits % 8:
        raise ValueError(
            f"pixels: found {pixels.shape[-1]} of {name}, {pixels.shape[-1] * bits} bits; accepts "
            "whole bytes"
        )
    big = packing == "msb" if bits % 8 else byte_order == "big"
    order = wide.newbyteorder(">" if big else "<")
    parts = np.ascontiguousarray(pixels.astype(order)).view(np.uint8)
    unused = 8 * wide.itemsize - bits
    if not unused:
        return parts
    shape = (*pixels.shape, wide.itemsize)
    if bits % 8 == 0:
        kept = slice(unused // 8, None) if big else slice(bits // 8)
        return parts.reshape(shape)[..., kept].reshape(*pixels.shape[:-1], -1)
    bit_order = "big" if big else "little"
    each = np.unpackbits(parts.reshape(shape), axis=-1, bitorder=bit_order)
    each = each[..., unused:] if big else each[..., :bits]
    return np.packbits(each.reshape(*pixels.shape[:-1], -1), axis=-1, bitorder=bit_order)
