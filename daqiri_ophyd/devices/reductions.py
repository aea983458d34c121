"""Numbers to plot: reductions of each complete file of a capture.

Assign them to `Capture.reductions`. Each is a column in the row of a file. It is hinted, so live
plots and adaptive scans can follow it:

>>> from daqiri_ophyd.devices import reductions
>>> capture.reductions = {"mean": reductions.payload_mean(">u2"), "rate": reductions.rate()}

Reductions are computed on a separate thread when the file is complete, before its row appears.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from daqiri_ophyd.engine import Packets

__all__ = [
    "Reduction",
    "longest_gap",
    "lost_numbers",
    "mean_gap",
    "payload_mean",
    "payload_sum",
    "rate",
]

_CHUNK_PACKETS = 65_536


@dataclass(frozen=True, slots=True)
class Reduction:
    """A number computed from the packets of a file.

    Parameters
    ----------
    function : callable
        ``function(packets) -> float``; ``packets`` is a `daqiri_ophyd.engine.PcapFile`, with
        ``timestamps``, ``select``, ``to_columns`` and so on. NaN means that there is no value.
    units : str
        Unit, for the data key.
    text : str
        Description with its parameters, for the configuration of the capture. Default: the name of
        the function.
    """

    function: Callable[[Packets], float]
    units: str = ""
    text: str = ""

    def __str__(self) -> str:
        """Return its description."""
        module = getattr(self.function, "__module__", "")
        name = getattr(self.function, "__qualname__", repr(self.function))
        return self.text or f"{module}.{name}"


def rate() -> Reduction:
    """Return the mean rate, packets/s: the reciprocal of `mean_gap`."""

    def reduce(packets: Packets) -> float:
        gap = _mean_gap(packets)
        return 1e9 / gap if gap > 0 else np.nan

    return Reduction(reduce, "packets/s", "rate()")


def mean_gap() -> Reduction:
    """Return the mean time from packet to packet, ns; NaN for fewer than two."""
    return Reduction(_mean_gap, "ns", "mean_gap()")


def longest_gap() -> Reduction:
    """Return the longest time from packet to packet, ns; NaN for fewer than two."""

    def reduce(packets: Packets) -> float:
        return float(np.diff(packets.timestamps).max()) if len(packets) > 1 else np.nan

    return Reduction(reduce, "ns", "longest_gap()")


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

    return Reduction(reduce, "packets", f"lost_numbers({offset}, {size}, order={order!r})")


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
    total = _payload_total(dtype, offset)
    text = f"payload_sum({np.dtype(dtype).str!r}, {offset})"
    return Reduction(lambda packets: total(packets)[0], text=text)


def payload_mean(dtype: DTypeLike, offset: int = 0) -> Reduction:
    """Return the mean of the payloads as numbers; NaN if there are none.

    Parameters are those of `payload_sum`.
    """
    total = _payload_total(dtype, offset)

    def reduce(packets: Packets) -> float:
        value, count = total(packets)
        return value / count if count else np.nan

    return Reduction(reduce, text=f"payload_mean({np.dtype(dtype).str!r}, {offset})")


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

    def total(packets: Packets) -> tuple[float, int]:
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

    return total
