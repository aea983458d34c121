"""Packets as bytes, to compare sent and received ones."""

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import Burst


def packets_of(bursts: list[Burst]) -> list[bytes]:
    return [view.tobytes() for burst in bursts for view in burst]


def rows(frames: NDArray[np.uint8]) -> list[bytes]:
    return [row.tobytes() for row in frames]
