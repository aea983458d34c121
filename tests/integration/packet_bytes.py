"""Packets as bytes, to compare sent and received ones."""

import socket
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import Burst, NotReadyError, RxQueue


def packets_of(bursts: list[Burst]) -> list[bytes]:
    return [view.tobytes() for burst in bursts for view in burst]


def rest_of(queue: RxQueue) -> Iterator[Burst]:
    """The remaining packets of a queue of a closed engine."""
    while True:
        try:
            burst = queue.receive()
        except NotReadyError:
            return
        assert burst is not None
        yield burst


def rows(frames: NDArray[np.uint8]) -> list[bytes]:
    return [row.tobytes() for row in frames]


def put_on_the_wire(interface: str, frames: list[bytes]) -> None:
    """Send frames from a network interface, in the namespace of the calling thread."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        for frame in frames:
            assert wire.send(frame) == len(frame)
