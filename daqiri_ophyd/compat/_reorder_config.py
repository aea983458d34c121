"""Reorder configs of a configuration, with DAQIRI's member names and our extensions."""

from dataclasses import dataclass, field

from ._enums import (
    ReorderBase,
    ReorderByteOrder,
    ReorderDataType,
    ReorderEndianness,
    ReorderMethod,
)

__all__ = [
    "ReorderBatchByteOffsetConfig",
    "ReorderBatchPacketNumberConfig",
    "ReorderBitFieldConfig",
    "ReorderConfig",
    "ReorderDataTypesConfig",
    "ReorderFrameConfig",
    "ReorderSeqBatchNumberConfig",
    "ReorderSeqPacketsPerBatchConfig",
]


@dataclass(slots=True)
class ReorderBitFieldConfig:
    """Position of a number in a packet, in bits."""

    bit_offset: int = 0
    bit_width: int = 0
    byte_order: ReorderByteOrder = ReorderByteOrder.BIG
    base: ReorderBase = ReorderBase.PACKET


@dataclass(slots=True)
class ReorderSeqBatchNumberConfig:
    """The method SEQ_BATCH_NUMBER; ``packets_per_batch`` follows from the widths."""

    sequence_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    batch_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    packets_per_batch: int = 0


@dataclass(slots=True)
class ReorderSeqPacketsPerBatchConfig:
    """The method SEQ_PACKETS_PER_BATCH."""

    sequence_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    packets_per_batch: int = 0


@dataclass(slots=True)
class ReorderBatchPacketNumberConfig:
    """The method BATCH_PACKET_NUMBER: packet numbers restart in each batch."""

    batch_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    packet_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    packets_per_batch: int = 0
    first_packet: int = 0


@dataclass(slots=True)
class ReorderBatchByteOffsetConfig:
    """The method BATCH_BYTE_OFFSET: a packet has the position of its payload in the batch."""

    batch_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    byte_offset: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    batch_bytes: int = 0


@dataclass(slots=True)
class ReorderFrameConfig:
    """Shape and NumPy type of an aggregate; empty: an array of output elements."""

    shape: list[int] = field(default_factory=list)
    dtype: str = ""


@dataclass(slots=True)
class ReorderDataTypesConfig:
    """Conversion of samples, if ``enabled``."""

    enabled: bool = False
    input_type: ReorderDataType = ReorderDataType.SAME
    output_type: ReorderDataType = ReorderDataType.SAME
    input_endianness: ReorderEndianness = ReorderEndianness.HOST


@dataclass(slots=True)
class ReorderConfig:
    """A reorder plan; ``reorder_type`` is ``cpu`` or ``gpu``.

    ``window`` 0 is the default; ``timeout_us`` -1 means that of the queue.
    """

    name: str = ""
    reorder_type: str = ""
    memory_region: str = ""
    payload_byte_offset: int = 0
    flow_ids: list[int] = field(default_factory=list)
    method: ReorderMethod = ReorderMethod.INVALID
    seq_batch_number: ReorderSeqBatchNumberConfig = field(
        default_factory=ReorderSeqBatchNumberConfig
    )
    seq_packets_per_batch: ReorderSeqPacketsPerBatchConfig = field(
        default_factory=ReorderSeqPacketsPerBatchConfig
    )
    data_types: ReorderDataTypesConfig = field(default_factory=ReorderDataTypesConfig)
    batch_packet_number: ReorderBatchPacketNumberConfig = field(
        default_factory=ReorderBatchPacketNumberConfig
    )
    batch_byte_offset: ReorderBatchByteOffsetConfig = field(
        default_factory=ReorderBatchByteOffsetConfig
    )
    payload_base: ReorderBase = ReorderBase.PACKET
    window: int = 0
    timeout_us: int = -1
    fill: float = 0
    flow_stride: int = 0
    cpu_cores: list[str] = field(default_factory=list)
    frame: ReorderFrameConfig = field(default_factory=ReorderFrameConfig)
