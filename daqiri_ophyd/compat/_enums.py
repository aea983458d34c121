"""Enumerations, and the words of the configuration file for them."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TypeVar

__all__ = [
    "BufferLocation",
    "Direction",
    "EngineType",
    "ErrorGlobalStats",
    "FlowMatchType",
    "FlowOpType",
    "FlowType",
    "LogLevel",
    "LoopbackType",
    "MemoryKind",
    "QueuePollMode",
    "RDMACompletionType",
    "RDMAMode",
    "RDMAOpCode",
    "RDMATransportMode",
    "ReorderBase",
    "ReorderByteOrder",
    "ReorderColumnSource",
    "ReorderDataType",
    "ReorderEndianness",
    "ReorderMethod",
    "ReorderFlip",
    "ReorderPacking",
    "SocketMode",
    "SocketProtocol",
    "StreamType",
    "TunnelType",
    "engine_type_from_string",
    "engine_type_to_string",
    "log_level_from_string",
    "log_level_to_string",
    "reorder_data_type_from_string",
    "reorder_data_type_to_string",
    "reorder_endianness_from_string",
    "reorder_endianness_to_string",
    "socket_protocol_from_string",
    "socket_protocol_to_string",
    "stream_type_from_string",
    "stream_type_to_string",
]


class _Named(IntEnum):
    """Integers that print as their names."""

    __str__ = Enum.__str__

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)


class StreamType(_Named):
    """Ethernet frames, or sockets and RDMA."""

    RAW = 0
    SOCKET = 1
    INVALID = 2


class EngineType(_Named):
    """An I/O engine; DEFAULT: selected from addresses and endpoints."""

    UNKNOWN = -1
    DEFAULT = 0
    DPDK = 1
    SOCKET = 2
    RDMA = 3
    IBVERBS = 4
    PACKET = 5
    OTHER = 6


class SocketProtocol(_Named):
    """Transport of a socket stream."""

    TCP = 0
    UDP = 1
    ROCE = 2
    INVALID = 3


class SocketMode(_Named):
    """Side of a socket."""

    CLIENT = 0
    SERVER = 1
    INVALID = 2


class Direction(_Named):
    """Directions of the interfaces."""

    RX = 0
    TX = 1
    TX_RX = 2


class LoopbackType(_Named):
    """LOOPBACK_TYPE_SW: transmit queues feed receive queues in memory."""

    DISABLED = 0
    LOOPBACK_TYPE_SW = 1


class LogLevel(_Named):
    """Lowest level that is logged."""

    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    CRITICAL = 5
    OFF = 6


class MemoryKind(_Named):
    """Memory of a region."""

    HOST = 0
    HOST_PINNED = 1
    HUGE = 2
    DEVICE = 3
    INVALID = 4


class BufferLocation(_Named):
    """Memory of packets."""

    CPU = 0
    GPU = 1
    CPU_GPU_SPLIT = 2


class QueuePollMode(_Named):
    """Poller of a queue: a thread of the engine, or the caller."""

    INDIRECT = 0
    DIRECT = 1
    INVALID = 2


class FlowMatchType(_Named):
    """Kind of match of a flow."""

    IPV4_UDP = 0
    FLEX_ITEM = 1
    ECPRI = 2


class FlowType(_Named):
    """Action of a flow."""

    QUEUE = 0
    VLAN_PUSH = 1
    VLAN_POP = 2
    TUNNEL_ENCAP = 3
    TUNNEL_DECAP = 4


class TunnelType(_Named):
    """Protocol of a tunnel."""

    NONE = 0
    VXLAN = 1
    GRE = 2
    NVGRE = 3


class FlowOpType(_Named):
    """An operation on flows at run time."""

    ADD_RX = 0
    ADD_RX_BATCH = 1
    DELETE = 2


class ReorderMethod(_Named):
    """How the batch and the position of a packet are encoded."""

    INVALID = 0
    SEQ_BATCH_NUMBER = 1
    SEQ_PACKETS_PER_BATCH = 2
    BATCH_PACKET_NUMBER = 3
    BATCH_BYTE_OFFSET = 4


class ReorderDataType(_Named):
    """Elements of a payload or of an aggregate; SAME: not converted."""

    SAME = 0
    INT4 = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    FP16 = 5
    BF16 = 6
    FP32 = 7
    FP64 = 8
    INVALID = 9
    UINT8 = 10
    UINT16 = 11
    UINT32 = 12
    INT10 = 13
    INT12 = 14
    INT14 = 15
    INT24 = 16
    INT64 = 17
    UINT4 = 18
    UINT10 = 19
    UINT12 = 20
    UINT14 = 21
    UINT24 = 22
    UINT64 = 23


class ReorderColumnSource(_Named):
    """Packets that a column of frames is made of."""

    FIRST = 0
    SUM = 1
    PACKETS = 2


class ReorderPacking(_Named):
    """Order of input elements that begin or end within a byte."""

    MSB = 0
    LSB = 1


class ReorderFlip(_Named):
    """Axes of a module that are reversed."""

    NONE = 0
    ROWS = 1
    COLUMNS = 2
    BOTH = 3


class ReorderEndianness(_Named):
    """Byte order of input elements."""

    HOST = 0
    NETWORK = 1
    INVALID = 2


class ReorderByteOrder(_Named):
    """Byte order of a field of a packet."""

    BIG = 0
    LITTLE = 1


class ReorderBase(_Named):
    """Origin of offsets: the first byte of the packet, or of its UDP payload."""

    PACKET = 0
    UDP_PAYLOAD = 1


class RDMAMode(_Named):
    """Side of an RDMA connection."""

    CLIENT = 0
    SERVER = 1
    INVALID = 2


class RDMATransportMode(_Named):
    """Reliable or unreliable connection, unreliable datagrams."""

    RC = 0
    UC = 1
    UD = 2
    INVALID = 3


class RDMAOpCode(_Named):
    """Operation of an RDMA burst."""

    CONNECT = 0
    SEND = 1
    RECEIVE = 2
    RDMA_WRITE = 3
    RDMA_WRITE_IMM = 4
    RDMA_READ = 5
    RDMA_READ_IMM = 6
    INVALID = 7


class RDMACompletionType(_Named):
    """Side of the connection of a completion."""

    RX = 0
    TX = 1
    INVALID = 2


class ErrorGlobalStats(_Named):
    """Losses; `print_stats` shows nonzero losses by reason."""

    OUT_OF_RX_BUFFERS = 0
    RX_QUEUE_FULL = 1
    METADATA_BUF_DEPLETED = 2
    SENTINEL = 3


_Enum = TypeVar("_Enum", bound=_Named)


def word(value: _Named) -> str:
    """Return an enumerator as spelled in the configuration file."""
    return value.name.lower()


def _from(kind: type[_Enum], text: str, otherwise: _Enum) -> _Enum:
    return next((each for each in kind if text == word(each)), otherwise)


def engine_type_from_string(str: str) -> EngineType:  # noqa: A002 - the documented name
    """Return the engine of this name.

    Raises
    ------
    ValueError
        If there is no such engine.
    """
    # In files, both engines that use verbs have this name.
    if str == "ibverbs":
        return EngineType.RDMA
    for engine in EngineType:
        if engine not in (EngineType.UNKNOWN, EngineType.OTHER) and str == word(engine):
            return engine
    raise ValueError(
        f"unknown engine {str!r}; accepted are default, dpdk, socket, rdma, ibverbs and packet"
    )


def engine_type_to_string(type: EngineType) -> str:  # noqa: A002
    """Return the name of an engine."""
    return word(EngineType(type))


def stream_type_from_string(str: str) -> StreamType:  # noqa: A002
    """Return the stream type of this name; INVALID if there is none."""
    return _from(StreamType, str, StreamType.INVALID)


def stream_type_to_string(type: StreamType) -> str:  # noqa: A002
    """Return the name of a stream type."""
    return word(StreamType(type))


def socket_protocol_from_string(str: str) -> SocketProtocol:  # noqa: A002
    """Return the transport of this name; INVALID if there is none."""
    return _from(SocketProtocol, str, SocketProtocol.INVALID)


def socket_protocol_to_string(protocol: SocketProtocol) -> str:
    """Return the name of a transport."""
    return word(SocketProtocol(protocol))


def reorder_data_type_from_string(str: str) -> ReorderDataType:  # noqa: A002
    """Return the data type of this name; INVALID if there is none."""
    found = _from(ReorderDataType, str, ReorderDataType.INVALID)
    # Not used in files.
    return ReorderDataType.INVALID if found == ReorderDataType.SAME else found


def reorder_data_type_to_string(type: ReorderDataType) -> str:  # noqa: A002
    """Return the name of a data type."""
    return word(ReorderDataType(type))


def reorder_endianness_from_string(str: str) -> ReorderEndianness:  # noqa: A002
    """Return the byte order of this name; INVALID if there is none."""
    return _from(ReorderEndianness, str, ReorderEndianness.INVALID)


def reorder_endianness_to_string(endianness: ReorderEndianness) -> str:
    """Return the name of a byte order."""
    return word(ReorderEndianness(endianness))


def log_level_from_string(str: str) -> LogLevel:  # noqa: A002
    """Return the level of this name, in any case.

    Raises
    ------
    RuntimeError
        If there is no such level.
    """
    for level in LogLevel:
        if str.lower() == word(level):
            return level
    names = ", ".join(map(word, LogLevel))
    raise RuntimeError(f"unknown log level {str!r}; accepted are {names}")


def log_level_to_string(level: LogLevel) -> str:
    """Return the name of a level."""
    return word(LogLevel(level))
