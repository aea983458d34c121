"""Pixels that the packets of a frame have brought."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import InvalidParameterError
from ._modules import module_pixels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from daqiri_ophyd._native import ReorderConfig

__all__ = ["valid_pixels"]


def valid_pixels(plan: ReorderConfig, valid: ArrayLike) -> NDArray[np.bool_]:
    """Return which pixels of frames have arrived; the others have the plan's ``fill``.

    Parameters
    ----------
    plan : ReorderConfig
        The plan, or its mode. It has a ``frame``.
    valid : array_like of bool, shape (..., n)
        Which packets have arrived: `Frame.valid`, or the bits of ``valid`` in files of frames. More
        bits than packets, at the end, are ignored.

    Returns
    -------
    ndarray of bool, shape (..., shape of a frame)
        Pixels between modules have not arrived.

    Raises
    ------
    InvalidParameterError
        If the plan has no ``frame``, or its frames have more packets.
    """
    came = np.asarray(valid, np.bool_)
    if plan.frame is None:
        raise InvalidParameterError(
            f"reorder plan {plan.name!r} has no frame; the pixels of its packets are known with "
            "frame: {shape: [...], dtype: ...}"
        )
    places = module_pixels(plan.frame)
    bits, group = _bits(plan)
    packets = plan.packets_per_batch
    if packets is None:  # by byte offsets
        unit = group
        parts, slots = 1, len(places) * bits // unit
    else:
        slots = plan.flow_stride or packets
        parts = packets // slots
        unit = plan.payload_bytes * 8 or len(places) // parts * bits // slots
    if came.shape[-1:] < (parts * slots,):
        raise InvalidParameterError(
            f"valid has the shape {came.shape}; accepted are {parts * slots} values for each frame "
            f"of reorder plan {plan.name!r}"
        )
    came = came[..., : parts * slots].reshape(*came.shape[:-1], parts, slots)
    # A pixel may be in several packets, and is filled with the others of its group.
    counts = np.zeros((*came.shape[:-1], slots + 1), np.int64)
    np.cumsum(came, axis=-1, out=counts[..., 1:])
    begin = np.arange(len(places) // parts, dtype=np.int64) * bits
    first = begin // group * group // unit
    last = (-(-(begin + bits) // group) * group - 1) // unit
    arrived = counts[..., last + 1] - counts[..., first] == last + 1 - first
    found = np.zeros((*came.shape[:-2], math.prod(plan.frame.shape)), np.bool_)
    found[..., places] = arrived.reshape(*came.shape[:-2], -1)
    return found.reshape(*came.shape[:-2], *plan.frame.shape)


def _bits(plan: ReorderConfig) -> tuple[int, int]:
    """Return the bits of a pixel in packets, and of the least that is converted at once."""
    if plan.data_types is not None:
        bits = int(re.sub(r"\D", "", plan.data_types.input_type))
        return bits, math.lcm(bits, 8)
    frame: Any = plan.frame
    bits = 8 * np.dtype(frame.dtype or np.uint8).itemsize
    # Pixels of a module are placed one by one.
    return bits, bits if frame.modules is not None else 8
