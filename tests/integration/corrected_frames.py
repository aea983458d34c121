"""Corrections of frames, computed pixel by pixel with numpy's numbers of 32 bits."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from daqiri_ophyd.documents import Correction

Array = np.ndarray[Any, Any]

TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64"]
# Ends of ranges, ties between numbers of 24 bits, subnormal numbers, and what is not a number.
INTEGERS = [0, 1, 127, 255, 32767, 65535, 2**24 - 1, 2**24 + 1, 2**24 + 3, 2**31 - 65, 2**31 - 1]
INTEGERS += [2**32 - 129, 2**32 - 128, 2**32 - 1, -1, -128, -(2**15), -(2**24) - 1, -(2**31)]
FLOATS = [0.0, -0.0, 1.0, 0.1, -3.3, 65504.0, 2.0**-149, 2.0**-126, 1.5 * 2.0**-140, 3.4e38, 1e300]
FLOATS += [1e-300, np.inf, -np.inf, np.nan, 1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-40, 16777217.0]


def scalar_correction(
    frames: Array, dark: Array, flat: Array, mask: Array, valid: Array, fill: float
) -> Array:
    """Return corrected frames; arrays have the shape of `frames`."""
    missing = np.float32("nan") if fill != fill else np.float32(fill)
    corrected = np.empty(frames.shape, np.float32)
    with np.errstate(all="ignore"):
        for at in np.ndindex(frames.shape):
            zero, one = np.float32(dark[at]), np.float32(flat[at])
            known = abs(zero) < np.inf and 0 < abs(one) < np.inf and valid[at] and not mask[at]
            value = (np.float32(frames[at]) - zero) / one if known else missing
            corrected[at] = value if value == value else missing
    return corrected


def bits(frames: Array) -> list[int]:
    """Return the bits of each pixel."""
    assert frames.dtype == np.float32
    return np.ascontiguousarray(frames).view(np.uint32).ravel().tolist()


def special(dtype: str) -> Array:
    """Return numbers of a type at which results could differ."""
    kind = np.dtype(dtype)
    with np.errstate(over="ignore"):
        if kind.kind == "f":
            return np.array(FLOATS).astype(kind)
        limits = np.iinfo(kind)
        return np.array([n for n in INTEGERS if limits.min <= n <= limits.max], kind)


def drawn(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Return any bits of a type, half of them numbers at which results could differ."""
    random, kind = np.random.default_rng(seed), np.dtype(dtype)
    size = int(np.prod(shape))
    pixels = random.integers(0, 256, size * kind.itemsize, np.uint8).view(kind)
    chosen = random.choice(special(dtype), size)
    return np.where(random.random(size) < 0.5, chosen, pixels).reshape(shape)


def cases(shape: tuple[int, ...]) -> Iterator[tuple[Correction, Array, Array]]:
    """Yield corrections, and frames of all types with their valid pixels, for any GPU, too."""
    frame = shape[-2:]
    for number, dtype in enumerate(TYPES):
        for other, of_dark in enumerate(("float32", "float64", "uint16", dtype)):
            seed = 100 * number + 10 * other
            random = np.random.default_rng(seed + 3)
            correction = Correction(
                dark=drawn(of_dark, frame, seed),
                flatfield=drawn(("float32", "float64", "float16", dtype)[other], frame, seed + 1),
                pixel_mask=random.random(frame) < 0.1,
                fill=(np.nan, -1.0, 0.1, np.inf)[other],
            )
            yield correction, drawn(dtype, shape, seed + 2), random.random(shape) < 0.9
