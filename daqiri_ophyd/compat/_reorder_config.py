"""Reorder configs of a configuration, with DAQIRI's member names and our extensions."""

import dataclasses
from dataclasses import dataclass, field

from ._enums import (
    ReorderBase,
    ReorderByteOrder,
    ReorderColumnSource,
    ReorderDataType,
    ReorderEndianness,
    ReorderFlip,
    ReorderMethod,
    ReorderPacking,
)

__all__ = [
    "ReorderBatchByteOffsetConfig",
    "ReorderBatchPacketNumberConfig",
    "ReorderBitFieldConfig",
    "ReorderColumnConfig",
    "ReorderConditionConfig",
    "ReorderConfig",
    "ReorderDataTypesConfig",
    "ReorderFrameConfig",
    "ReorderModulesConfig",
    "ReorderPositionConfig",
    "ReorderSeqBatchNumberConfig",
    "ReorderSeqPacketsPerBatchConfig",
]


@dataclass(slots=True)
class ReorderBitFieldConfig:
    """Position of a number in a packet, in bits; ``step`` 0: it grows irregularly."""

    bit_offset: int = 0
    bit_width: int = 0
    byte_order: ReorderByteOrder = ReorderByteOrder.BIG
    base: ReorderBase = ReorderBase.PACKET
    step: int = 1
    unit: int = 1


@dataclass(slots=True)
class ReorderConditionConfig:
    """Packets of which (number & ``mask``) is from ``at_least`` to ``at_most``."""

    field: ReorderBitFieldConfig = dataclasses.field(default_factory=ReorderBitFieldConfig)
    mask: int = 2**64 - 1
    at_least: int = 0
    at_most: int = 2**64 - 1


@dataclass(slots=True)
class ReorderColumnConfig:
    """Numbers in packets that go with their frame."""

    field: ReorderBitFieldConfig = dataclasses.field(default_factory=ReorderBitFieldConfig)
    source: ReorderColumnSource = ReorderColumnSource.FIRST


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
    """The method BATCH_PACKET_NUMBER: packet numbers restart in each batch, or are ``running``."""

    batch_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    packet_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    packets_per_batch: int = 0
    running: bool = False


@dataclass(slots=True)
class ReorderBatchByteOffsetConfig:
    """The method BATCH_BYTE_OFFSET: a packet has the position of its payload in the batch."""

    batch_number: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    byte_offset: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    batch_bytes: int = 0


@dataclass(slots=True)
class ReorderPositionConfig:
    """Where a module is in the image: row and column of its upper left pixel."""

    origin: list[int] = field(default_factory=list)
    flip: ReorderFlip = ReorderFlip.NONE
    rotate: int = 0


@dataclass(slots=True)
class ReorderModulesConfig:
    """How payloads form an image; lists have rows and columns. Empty: there are no modules."""

    shape: list[int] = field(default_factory=list)
    tile: list[int] = field(default_factory=list)
    chip: list[int] = field(default_factory=list)
    chip_gap: list[int] = field(default_factory=list)
    positions: list[ReorderPositionConfig] = field(default_factory=list)


@dataclass(slots=True)
class ReorderFrameConfig:
    """Shape and NumPy type of an aggregate; empty: an array of output elements."""

    shape: list[int] = field(default_factory=list)
    dtype: str = ""
    modules: ReorderModulesConfig = field(default_factory=ReorderModulesConfig)


@dataclass(slots=True)
class ReorderDataTypesConfig:
    """Conversion of samples, if ``enabled``."""

    enabled: bool = False
    input_type: ReorderDataType = ReorderDataType.SAME
    output_type: ReorderDataType = ReorderDataType.SAME
    input_endianness: ReorderEndianness = ReorderEndianness.HOST
    packing: ReorderPacking = ReorderPacking.MSB


@dataclass(slots=True)
class ReorderConfig:
    """A reorder plan; ``reorder_type`` is ``cpu`` or ``gpu``.

    ``window`` 0 is the default; ``timeout_us`` -1 means that of the queue. ``flows`` are those of a
    plan in `NetworkConfig.reorder_configs`, as ``interface/flow``, instead of ``flow_ids``.
    ``first_packet`` has one number, or one for each flow. ``payload_offset_field`` is used if it
    has a width. ``modes`` are variants of the plan, by name.
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
    first_packet: list[int] = field(default_factory=list)
    payload_base: ReorderBase = ReorderBase.PACKET
    payload_offset_field: ReorderBitFieldConfig = field(default_factory=ReorderBitFieldConfig)
    payload_bytes: int = 0
    conditions: list[ReorderConditionConfig] = field(default_factory=list)
    columns: dict[str, ReorderColumnConfig] = field(default_factory=dict)
    window: int = 0
    timeout_us: int = -1
    fill: float = 0
    flow_stride: int = 0
    cpu_cores: list[str] = field(default_factory=list)
    flows: list[str] = field(default_factory=list)
    frame: ReorderFrameConfig = field(default_factory=ReorderFrameConfig)
    modes: "dict[str, ReorderConfig]" = field(default_factory=dict)
