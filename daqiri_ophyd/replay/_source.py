"""Packets with a schedule, to be sent through a transmit queue."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chunk", "PacketSource", "ReplayError", "schedule"]


class ReplayError(ValueError):
    """Captures that cannot be replayed as requested."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive packets, in the form that `TxQueue.send` accepts.

    Parameters
    ----------
    data : ndarray of uint8, shape (bytes,)
        Bytes of the packets; may be a memory map.
    offsets, lengths : ndarray of int64, shape (n,)
        Offset in ``data`` and length of each packet, bytes.
    times : ndarray of int64, shape (n,), or None
        Time when each packet is due, ns after the first packet of the source, never decreasing.
        None: as fast as possible.
    verify : callable, optional
        Raises if ``data`` has changed, such as when a file was cut.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    times: NDArray[np.int64] | None
    verify: Callable[[], None] | None = None

    def __len__(self) -> int:
        """Return the number of packets."""
        return len(self.offsets)


@runtime_checkable
class PacketSource(Protocol):
    """Packets with a schedule, in chunks that fit into memory; can be iterated repeatedly."""

    @property
    def packets(self) -> int:
        """Number of packets."""
        ...

    @property
    def duration_ns(self) -> int:
        """Time between the first and the last packet, ns; 0 without a schedule."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets in order."""
        ...


def schedule(source: PacketSource) -> NDArray[np.int64]:
    """Return the time when each packet of a source is due.

    Returns
    -------
    ndarray of int64, shape (packets,)
        ns after the first packet; zeros for packets without a schedule.
    """
    times = [
        np.zeros(len(chunk), np.int64) if chunk.times is None else chunk.times
        for chunk in source.chunks()
    ]
    return np.concatenate(times) if times else np.zeros(0, np.int64)
