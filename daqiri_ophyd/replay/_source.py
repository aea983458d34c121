"""What can be put on the wire: packets, and when each is due."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chunk", "PacketSource", "schedule"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive packets, as a transmit queue takes them.

    Parameters
    ----------
    data : ndarray of uint8, shape (bytes,)
        Where the packets lie; may be a memory map.
    offsets, lengths : ndarray of int64, shape (n,)
        Where each packet begins in ``data``, and its length in bytes.
    times : ndarray of int64, shape (n,), or None
        When each is due, ns after the first packet of the source, never decreasing. None: as fast
        as the wire takes them.
    verify : callable, optional
        Raises if ``data`` is not what it was, such as of a file that was cut meanwhile.
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
    """Packets with a schedule, in chunks that fit into memory; can be gone through repeatedly."""

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
    """Return when each packet of a source is due.

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
