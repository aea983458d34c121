"""Sending packets on a schedule: captures, arrays, numbered packets.

A `PacketSource` has packets and their times; `Transmission` sends them through a transmit queue.
"""

from ._arrays import NumberedPackets, PacketArray
from ._gaps import GapErrors, gap_errors
from ._replay import Replay, ReplayError
from ._source import Chunk, PacketSource, schedule
from ._transmission import Transmission, TransmissionError, TransmissionProgress

__all__ = [
    "Chunk",
    "GapErrors",
    "NumberedPackets",
    "PacketArray",
    "PacketSource",
    "Replay",
    "ReplayError",
    "Transmission",
    "TransmissionError",
    "TransmissionProgress",
    "gap_errors",
    "schedule",
]
