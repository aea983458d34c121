"""Numbers to plot: reductions of each complete file of a capture, and of each frame.

Assign them to `Capture.reductions`, or to `FrameDetector.reductions`. Each is a column in the rows.
It is hinted, so live plots and adaptive scans can follow it:

>>> from daqiri_ophyd.devices import reductions
>>> capture.reductions = {"mean": reductions.payload_mean(">u2"), "rate": reductions.rate()}
>>> detector.reductions = {"total": reductions.total(), "beam": reductions.roi((10, 20), (40, 60))}

Reductions of packets are computed on a separate thread when the file is complete, before its row
appears. Reductions of frames are computed as frames are written, on the GPU if the frame is there
(with CuPy); see `daqiri_ophyd.engine.FrameReductions`.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from daqiri_ophyd.engine import DeviceArray, Frame, Packets

__all__ = [
    "Reduction",
    "centroid",
    "longest_gap",
    "lost_numbers",
    "maximum",
    "mean",
    "mean_gap",
    "payload_mean",
    "payload_sum",
    "rate",
    "roi",
    "total",
]

_CHUNK_PACKETS = 65_536


@dataclass(frozen=True, slots=True)
class Reduction:
    """A number computed from the packets of a file, or from a frame.

    Parameters
    ----------
    function : callable
        ``function(packets) -> float``; ``packets`` is a `daqiri_ophyd.engine.PcapFile`, with
        ``timestamps``, ``select``, ``to_columns`` and so on. For frames ``function(frame)``, with a
        `daqiri_ophyd.engine.Frame`. NaN means that there is no value.
    units : str
        Unit, for the data key.
    text : str
        Description with its parameters, for the configuration of the capture. Default: the name of
        the function.
    of : {"packets", "frames", ""}
        What it is computed from; empty: either.
    require : callable, optional
        ``require(shape)`` raises ValueError for frames of a shape that it cannot be computed from.
    """

    function: Callable[[Any], float]
    units: str = ""
    text: str = ""
    of: str = ""
    require: Callable[[tuple[int, ...]], None] | None = None

    def __str__(self) -> str:
        """Return its description."""
        # Of an object that can be called: its repr would have an address.
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return self.text or f"{named.__module__}.{named.__qualname__}"


def reduction_of(given: Any, origin: str) -> Reduction:
    """Return a reduction that was given as such, or as a function.

    Raises
    ------
    TypeError
        If it is neither, or a function of this module that has to be called first.
    """
    if given in _MAKERS:
        raise TypeError(f"{origin} is the function {given.__name__}; call it: {given.__name__}().")
    reduction = given if isinstance(given, Reduction) else Reduction(given)
    if not callable(reduction.function):
        raise TypeError(
            f"{origin} is {given!r}; accepted is a function that returns a number, or one of "
            "daqiri_ophyd.devices.reductions."
        )
    return reduction


def total() -> Reduction:
    """Return the sum of a frame's pixels: exact for integers up to 2^53, else as float64."""
    return Reduction(lambda frame: _sum(_pixels(frame)), text="total()", of="frames")


def mean() -> Reduction:
    """Return the mean of a frame's pixels."""

    def reduce(frame: Any) -> float:
        pixels = _pixels(frame)
        return _sum(pixels) / pixels.size

    return Reduction(reduce, text="mean()", of="frames")


def maximum() -> Reduction:
    """Return the largest pixel of a frame."""
    return Reduction(lambda frame: float(_pixels(frame).max()), text="maximum()", of="frames")


def centroid(axis: int) -> Reduction:
    """Return the centroid of a frame along an axis, pixels: the mean position, by intensity.

    Parameters
    ----------
    axis : int
        Axis of the frame: 0 or -2 is y and 1 or -1 is x, if it has two.

    Returns
    -------
    Reduction
        NaN if the sum of the pixels is 0.

    Raises
    ------
    TypeError
        If the axis is not an integer.
    """
    axis = operator.index(axis)

    def reduce(frame: Any) -> float:
        pixels = _pixels(frame)
        others = tuple(i for i in range(pixels.ndim) if i != axis % pixels.ndim)
        profile = pixels.sum(axis=others, dtype=np.float64)
        weight = float(profile.sum())
        places = (
            np.arange(len(profile)) if isinstance(profile, np.ndarray) else _range_like(profile)
        )
        return float((profile * places).sum()) / weight if weight else np.nan

    def require(shape: tuple[int, ...]) -> None:
        if not -len(shape) <= axis < len(shape):
            raise ValueError(
                f"axis {axis}; frames of shape {shape} have axes 0 to {len(shape) - 1}"
            )

    return Reduction(reduce, "pixels", f"centroid({axis})", "frames", require)


def roi(
    y: tuple[int, int], x: tuple[int, int], of: Reduction | Callable[..., float] | None = None
) -> Reduction:
    """Return a reduction of a region of interest: rows and columns of the last two axes.

    Parameters
    ----------
    y, x : tuple of int
        First row and the one after the last, and columns likewise.
    of : Reduction or callable, optional
        Computed from the pixels of the region; a centroid counts from its corner. Default:
        `total`. A function of yours gets an array of NumPy or CuPy here, not a `Frame`.

    Raises
    ------
    ValueError
        If the region has no pixels, or `of` is computed from packets.
    TypeError
        If a limit is not an integer.
    """
    (top, bottom), (left, right) = (map(operator.index, limits) for limits in (y, x))
    if not (0 <= top < bottom and 0 <= left < right):
        raise ValueError(
            f"region y {y}, x {x}; accepted are first and end of rows and of columns, from 0, such "
            "as (10, 20), (40, 60)."
        )
    inner = total() if of is None else reduction_of(of, "the reduction of a region")
    if inner.of == "packets":
        raise ValueError(f"{inner} is computed from packets; a region of a frame has pixels.")

    def require(shape: tuple[int, ...]) -> None:
        if len(shape) < 2 or bottom > shape[-2] or right > shape[-1]:
            raise ValueError(f"region y {y}, x {x} is not in frames of shape {shape}")
        if inner.require is not None:
            inner.require((*shape[:-2], bottom - top, right - left))

    def reduce(frame: Any) -> float:
        return inner.function(_pixels(frame)[..., top:bottom, left:right])

    return Reduction(reduce, inner.units, f"roi({y}, {x}, {inner})", "frames", require)


def rate() -> Reduction:
    """Return the mean rate, packets/s: the reciprocal of `mean_gap`."""

    def reduce(packets: Packets) -> float:
        gap = _mean_gap(packets)
        return 1e9 / gap if gap > 0 else np.nan

    return Reduction(reduce, "packets/s", "rate()", "packets")


def mean_gap() -> Reduction:
    """Return the mean time from packet to packet, ns; NaN for fewer than two."""
    return Reduction(_mean_gap, "ns", "mean_gap()", "packets")


def longest_gap() -> Reduction:
    """Return the longest time from packet to packet, ns; NaN for fewer than two."""

    def reduce(packets: Packets) -> float:
        return float(np.diff(packets.timestamps).max()) if len(packets) > 1 else np.nan

    return Reduction(reduce, "ns", "longest_gap()", "packets")


def lost_numbers(offset: int, size: int, *, order: str = "big") -> Reduction:
    """Return how many sequence numbers are missing between the lowest and the highest.

    Numbers may arrive out of order and repeatedly, and may wrap around after their last value.
    Packets whose payload is too short for the field are left out.

    Parameters
    ----------
    offset : int
        Position of the number in the payload, byte.
    size : int
        Length of the number: 1 to 8 bytes.
    order : {"big", "little"}
        Byte order of the number.

    Raises
    ------
    ValueError
        If the offset is negative, or the length or order is not accepted.
    """
    if offset < 0 or not 1 <= size <= 8 or order not in ("big", "little"):
        raise ValueError(
            f"offset {offset}, size {size}, order {order!r}; accepted are an offset of 0 or more, "
            "a size of 1 to 8, and 'big' or 'little'."
        )
    places = np.arange(size) if order == "big" else np.arange(size)[::-1]
    bits = 8 * size

    def reduce(packets: Packets) -> float:
        found = []
        for part in packets.chunks(_CHUNK_PACKETS):
            begins, lengths = _payloads(part)
            begins = begins[lengths >= offset + size]
            numbers = np.zeros(len(begins), np.uint64)
            for place in places:
                numbers = numbers << np.uint64(8) | part.data[begins + offset + place]
            found.append(numbers)
        numbers = np.concatenate(found) if found else np.zeros(0, np.uint64)
        if not len(numbers):
            return np.nan
        # Steps as signed numbers of that many bits, which are correct across a wrap-around.
        steps = np.diff(numbers) << np.uint64(64 - bits)
        unwrapped = np.cumsum(steps.view(np.int64) >> np.int64(64 - bits))
        unwrapped = np.unique(np.concatenate([[0], unwrapped]))
        return float(unwrapped[-1] - unwrapped[0] + 1 - len(unwrapped))

    text = f"lost_numbers({offset}, {size}, order={order!r})"
    return Reduction(reduce, "packets", text, "packets")


def payload_sum(dtype: DTypeLike, offset: int = 0) -> Reduction:
    """Return the sum of the payloads as numbers.

    Parameters
    ----------
    dtype : data-type
        Type of the numbers, with byte order, such as ``">u2"``.
    offset : int
        Bytes to skip at the beginning of each payload.

    Raises
    ------
    ValueError
        If the offset is negative, or the type is not numeric.
    """
    summed = _payload_total(dtype, offset)
    text = f"payload_sum({np.dtype(dtype).str!r}, {offset})"
    return Reduction(lambda packets: summed(packets)[0], text=text, of="packets")


def payload_mean(dtype: DTypeLike, offset: int = 0) -> Reduction:
    """Return the mean of the payloads as numbers; NaN if there are none.

    Parameters are those of `payload_sum`.
    """
    summed = _payload_total(dtype, offset)

    def reduce(packets: Packets) -> float:
        value, count = summed(packets)
        return value / count if count else np.nan

    text = f"payload_mean({np.dtype(dtype).str!r}, {offset})"
    return Reduction(reduce, text=text, of="packets")


def _pixels(frame: Any) -> Any:
    """Return a frame's pixels, as an array of CuPy if they are on a GPU; arrays as they are."""
    data = frame.data if isinstance(frame, Frame) else frame
    if isinstance(data, DeviceArray):
        import cupy  # pyright: ignore[reportMissingImports]

        return cupy.asarray(data)
    return data


def _sum(pixels: Any) -> float:
    # Integers are added as such, without rounding.
    return float(pixels.sum(dtype=np.float64 if pixels.dtype.kind == "f" else None))


def _range_like(array: Any) -> Any:
    import cupy  # pyright: ignore[reportMissingImports]

    return cupy.arange(len(array))


def _mean_gap(packets: Packets) -> float:
    if len(packets) < 2:
        return np.nan
    return float(packets.timestamps[-1] - packets.timestamps[0]) / (len(packets) - 1)


def _payloads(packets: Packets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the position and length of each packet's payload; length 0 if it has none."""
    columns = packets.to_columns(["payload_offset", "payload_length"])
    return columns["payload_offset"], columns["payload_length"].astype(np.int64)


def _payload_total(dtype: DTypeLike, offset: int) -> Callable[[Packets], tuple[float, int]]:
    """Return a function that sums the numbers in payloads, and counts them."""
    kind = np.dtype(dtype)
    if offset < 0 or kind.kind not in "iuf":
        raise ValueError(
            f"dtype {kind.str!r}, offset {offset}; accepted are integers and floats such as '>u2', "
            "and an offset of 0 or more."
        )

    def summed(packets: Packets) -> tuple[float, int]:
        value, count = 0.0, 0
        for part in packets.chunks(_CHUNK_PACKETS):
            begins, lengths = _payloads(part)
            words = np.maximum(lengths - offset, 0) // kind.itemsize
            for length in np.unique(words[words > 0]):
                rows = begins[words == length] + offset
                size = int(length) * kind.itemsize
                windows = np.lib.stride_tricks.sliding_window_view(part.data, size)
                value += float(windows[rows].view(kind).sum(dtype=np.float64))
                count += len(rows) * int(length)
        return value, count

    return summed


_MAKERS = (
    *(total, mean, maximum, centroid, roi),
    *(rate, mean_gap, longest_gap, lost_numbers, payload_sum, payload_mean),
)
