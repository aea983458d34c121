"""Packets with losses, duplicates and changed order, as a network delivers them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._instrument import Instrument

__all__ = ["Chunk", "Disturbance", "Traffic"]

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Disturbances of packets by a network.

    Parameters
    ----------
    loss : float
        Probability that a packet is left out, 0 to 1.
    duplicates : float
        Probability that a packet that is sent is sent twice, 0 to 1.
    shuffle : int
        Packets are sent in random order within blocks of this size; 0 and 1: in order.

    Raises
    ------
    ValueError
        If a value is out of its range.
    """

    loss: float = 0.0
    duplicates: float = 0.0
    shuffle: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("loss", "duplicates"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted is 0 to 1")
        if self.shuffle < 0:
            raise ValueError(f"shuffle is {self.shuffle}; accepted is 0 (in order) and more")

    def order(self, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Return the numbers, of ``count`` packets, of those that are sent, in sending order."""
        kept = np.flatnonzero(rng.random(count) >= self.loss)
        order = np.repeat(kept, 1 + (rng.random(len(kept)) < self.duplicates))
        # Always drawn, so that the same packets are lost with and without shuffling.
        key = rng.random(len(order))
        if self.shuffle > 1:
            order = order[np.lexsort((key, np.arange(len(order)) // self.shuffle))]
        return order


@dataclass(frozen=True)
class Chunk:
    """Some frames and their packets.

    Attributes
    ----------
    frames : ndarray, shape ``(n, *shape)``
        Frames of the instrument.
    packets : ndarray of uint8, shape (m, packet_size)
        UDP payloads, in the order in which they are sent.
    sizes : ndarray of int, shape (m,)
        Bytes of each payload; the rest of a row is not sent.
    order : ndarray of int, shape (m,)
        Index of each packet in the chunk before disturbances.
    streams : ndarray of int, shape (m,)
        UDP stream of each packet, from 0.
    lost, duplicated : int
        Packets that were left out, and packets that were sent twice.
    begins_anew : bool
        Whether the instrument numbers its frames anew from here.
    """

    frames: NDArray[Any]
    packets: NDArray[np.uint8]
    sizes: NDArray[np.intp]
    order: NDArray[np.intp]
    streams: NDArray[np.intp]
    lost: int
    duplicated: int
    begins_anew: bool = False


class Traffic:
    """Packets of an instrument; each iteration yields the same packets.

    Parameters
    ----------
    instrument : Instrument
        Instrument of the packets.
    frames : int
        Number of frames.
    first : int
        Number of the first frame, from 0.
    restart : int
        Number of frames after which the instrument numbers them anew from ``first``, as detectors
        do that are started again; 0: never.
    disturbance : Disturbance, optional
        Disturbances of the packets. Default: none.
    seed : int
        Seed of the frames and of the disturbances.

    Raises
    ------
    ValueError
        If a number is negative.
    """

    def __init__(
        self,
        instrument: Instrument,
        frames: int,
        *,
        first: int = 0,
        restart: int = 0,
        disturbance: Disturbance | None = None,
        seed: int = 0,
    ) -> None:
        given = {"frames": frames, "first": first, "restart": restart, "seed": seed}
        for name, value in given.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; accepted is 0 and more")
        self.instrument = instrument
        self._numbers = range(first, first + frames)
        self._restart = restart or max(frames, 1)
        self._disturbance = disturbance or Disturbance()
        self._seed = seed

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the packets in the order of their frames, some MiB at a time."""
        instrument = self.instrument
        sizes = instrument.sizes()
        for first in (n for run in self._runs() for n in run[:: self._step]):
            frames, rng = self._frames(first)
            start = self._run_of(first).start
            packets = instrument.packets(frames, self._numbers.start + first - start)
            order = self._disturbance.order(len(packets), rng)
            different = len(np.unique(order))
            yield Chunk(
                frames,
                packets[order],
                sizes[order % len(sizes)],
                order,
                order % instrument.streams,
                len(packets) - different,
                len(order) - different,
                begins_anew=first == start != self._numbers.start,
            )

    def frame(self, number: int) -> NDArray[Any]:
        """Return a frame of the instrument.

        Parameters
        ----------
        number : int
            Number of the frame, from ``first``; it goes on where those of the instrument restart.

        Raises
        ------
        ValueError
            If there is no such frame.
        """
        numbers = self._numbers
        if number not in numbers:
            raise ValueError(
                f"frame {number} is not sent; accepted is {numbers.start} to {numbers.stop - 1}"
            )
        place = (number - self._run_of(number).start) % self._step
        return self._frames(number - place)[0][place]

    def _runs(self) -> Iterator[range]:
        """Yield the frames between restarts."""
        for start in self._numbers[:: self._restart]:
            yield self._run_of(start)

    def _run_of(self, number: int) -> range:
        first, stop = self._numbers.start, self._numbers.stop
        start = number - (number - first) % self._restart
        return range(start, min(start + self._restart, stop))

    @property
    def _step(self) -> int:
        """Number of frames in a chunk."""
        size = self.instrument.packets_per_frame * self.instrument.packet_size
        return max(1, _CHUNK_BYTES // size)

    def _frames(self, first: int) -> tuple[NDArray[Any], np.random.Generator]:
        """Return the frames of a chunk, and the random generator for the rest."""
        rng = np.random.default_rng([self._seed, first])
        count = min(self._step, self._run_of(first).stop - first)
        return self.instrument.frames(first, count, rng), rng
