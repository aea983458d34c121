"""Sending packets on a schedule: captures, arrays, numbered packets.

A `PacketSource` has packets and their times; `Transmission` sends them through a transmit queue.
"""

from ._arrays import NumberedPackets, PacketArray
from ._compare import Comparison, compare
from ._frame_format import FrameFormat
from ._frame_replay import FrameReplay, frame_plan
from ._gaps import GapErrors, gap_errors
from ._packets import Packets, frame_source, packet_source, replay_source
from ._replay import Replay
from ._rewrite import Rewrite
from ._selection import Selection
from ._source import Chunk, PacketSource, ReplayError, schedule
from ._tcp import segment_size
from ._transmission import Transmission, TransmissionError, TransmissionProgress

__all__ = [
    "Chunk",
    "Comparison",
    "FrameFormat",
    "FrameReplay",
    "GapErrors",
    "NumberedPackets",
    "PacketArray",
    "PacketSource",
    "Packets",
    "Replay",
    "ReplayError",
    "Rewrite",
    "Selection",
    "Transmission",
    "TransmissionError",
    "TransmissionProgress",
    "compare",
    "frame_plan",
    "frame_source",
    "gap_errors",
    "packet_source",
    "replay_source",
    "schedule",
    "segment_size",
]
