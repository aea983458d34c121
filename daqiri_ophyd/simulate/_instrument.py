"""Base class of the simulated instruments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._frame_layout import FrameLayout

__all__ = ["Instrument", "images", "scaled_images", "waves"]

# About the largest value of `images`.
_BRIGHTEST = 10_000


class Instrument(ABC):
    """An instrument that sends frames in UDP packets.

    Attributes
    ----------
    name : str
        Name in the command, and of its profile.
    shape : tuple of int
        Shape of a frame.
    dtype : numpy.dtype
        Type of its elements.
    layout : FrameLayout or None
        Where the pixels of packets are in a frame; None: one after the other.
    packets_per_frame : int
        Packets of a frame.
    packet_size : int
        Bytes of a UDP payload; the largest, if they differ (`sizes`).
    leaders, trailers : int
        Packets of a frame before and after those with its elements.
    streams : int
        UDP streams, such as the modules of a detector; packets alternate between them.
    port : int
        Default UDP port to send to.
    own_ports : bool
        Whether each stream goes to a port of its own by default, from ``port`` on.
    needs_own_ports : bool
        Whether nothing else tells the streams apart.
    source_port : int
        UDP port that the first of several streams is sent from; the others follow.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: FrameLayout | None = None
    packets_per_frame: int
    packet_size: int
    leaders: int = 0
    trailers: int = 0
    streams: int = 1
    port: int
    own_ports: bool = True
    needs_own_ports: bool = False
    source_port: int = 50101

    @abstractmethod
    def frames(self, first: int, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return frames of shape ``(count, *shape)``; ``first`` is the number of the first."""

    @abstractmethod
    def packets(self, frames: NDArray[Any], first: int) -> NDArray[np.uint8]:
        """Return UDP payloads of shape ``(len(frames) * packets_per_frame, packet_size)``.

        Shorter ones end with zeros, up to `packet_size`.
        """

    def sizes(self) -> NDArray[np.intp]:
        """Return the bytes of each UDP payload of a frame."""
        return np.full(self.packets_per_frame, self.packet_size)

    def in_packets(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Return the pixels of each frame, in the order in which packets have them."""
        flat = frames.reshape(len(frames), -1)
        return flat if self.layout is None else flat[:, self.layout.pixels]

    def with_gaps(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Set those pixels of frames to 0 that no packet has, and return them."""
        if self.layout is not None:
            frames[:, self.layout.gaps] = 0
        return frames


@cache
def _rings(shape: tuple[int, int]) -> NDArray[np.uint16]:
    y, x = np.ogrid[: shape[0], : shape[1]]
    radius = np.hypot(y - 0.55 * shape[0], x - 0.4 * shape[1]) / max(shape)
    made = 1000 + 4000 * np.exp(-40 * radius)
    for place, height in ((0.12, 900), (0.2, 450), (0.29, 700), (0.41, 300), (0.47, 250)):
        made = made + height * np.exp(-(((radius - place) / 0.006) ** 2))
    return made.astype(np.uint16)


def images(
    shape: tuple[int, int], first: int, count: int, rng: np.random.Generator
) -> NDArray[np.uint16]:
    """Return noisy images of shape ``(count, *shape)``: rings, and a bright spot that moves."""
    rows, columns = shape
    made = rng.integers(0, 256, (count, rows, columns), dtype=np.uint16)
    made += _rings(shape)
    number = np.arange(first, first + count)[:, None, None]
    y = np.arange(rows)[None, :, None] - number * 37 % rows
    x = np.arange(columns)[None, None, :] - number * 53 % columns
    made[y * y + x * x < max(2, min(shape) // 64) ** 2] += 2000
    return made


def scaled_images(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    first: int,
    count: int,
    rng: np.random.Generator,
    most: int | None = None,
) -> NDArray[Any]:
    """Return `images` of any shape and type, of shape ``(count, *shape)``.

    All axes but the last are rows. ``most``: largest value; None: one that suits the type.
    """
    if most is None:
        whole = np.iinfo(dtype).max if dtype.kind in "iu" else 10_000
        most = min(int(whole), _BRIGHTEST)
    made = images((int(np.prod(shape[:-1], dtype=int)), shape[-1]), first, count, rng)
    if most != _BRIGHTEST:
        made = np.minimum(made, _BRIGHTEST) * (most / _BRIGHTEST)
    return made.astype(dtype).reshape(count, *shape)


def waves(shape: tuple[int, ...], first: int, count: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return int16 samples of shape ``(count, *shape)``: a continuous noisy sine."""
    size = int(np.prod(shape))
    time = np.arange(first * size, (first + count) * size)
    made = np.rint(8000 * np.sin(time * (2 * np.pi / 1000))).astype(np.int16)
    made += rng.integers(-200, 201, made.shape, dtype=np.int16)
    return made.reshape(count, *shape)
