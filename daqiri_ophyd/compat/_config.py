"""Configuration built in code: one class for each map of the configuration file."""

from __future__ import annotations

from dataclasses import dataclass, field

from daqiri_ophyd.engine import Status

from ._constants import MEM_ACCESS_LOCAL
from ._enums import (
    Direction,
    EngineType,
    FlowMatchType,
    FlowOpType,
    FlowType,
    LogLevel,
    LoopbackType,
    MemoryKind,
    QueuePollMode,
    RDMAMode,
    RDMATransportMode,
    SocketMode,
    SocketProtocol,
    StreamType,
    TunnelType,
)
from ._reorder_config import ReorderConfig

__all__ = [
    "CommonConfig",
    "CommonQueueConfig",
    "EcpriMatch",
    "FlexItemConfig",
    "FlexItemMatch",
    "FlowAction",
    "FlowConfig",
    "FlowMatch",
    "FlowOpResult",
    "FlowRuleConfig",
    "InterfaceConfig",
    "MemoryRegionConfig",
    "NetworkConfig",
    "RDMAConfig",
    "RoCEConfig",
    "RxConfig",
    "RxQueueConfig",
    "SocketConfig",
    "TunnelConfig",
    "TxConfig",
    "TxQueueConfig",
    "VlanActionConfig",
]

Ports = int | tuple[int, int]
"""A UDP port, or the first and last of a range; 0: any."""


@dataclass(slots=True)
class CommonConfig:
    """Settings of the whole engine. ``engine_type`` is the selected engine."""

    version: int = 1
    master_core: int = 0
    direction: Direction = Direction.TX_RX
    stream_type: StreamType = StreamType.RAW
    protocol: SocketProtocol = SocketProtocol.UDP
    engine: EngineType = EngineType.DEFAULT
    engine_type: EngineType = EngineType.DEFAULT
    loopback: LoopbackType = LoopbackType.DISABLED
    loopback_drops: bool = False


@dataclass(slots=True)
class MemoryRegionConfig:
    """A memory region; ``access`` is a sum of ``MEM_ACCESS_`` bits."""

    name: str = ""
    kind: MemoryKind = MemoryKind.HOST
    affinity: int = 0
    access: int = MEM_ACCESS_LOCAL
    buf_size: int = 0
    adj_size: int = 0
    ttl_size: int = 0
    num_bufs: int = 0
    owned: bool = True


@dataclass(slots=True)
class CommonQueueConfig:
    """Common settings of receive and transmit queues."""

    name: str = ""
    id: int = 0
    batch_size: int = 0
    split_boundary: int = 0
    cpu_core: str = ""
    memory_regions: list[str] = field(default_factory=list)
    offloads: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RxQueueConfig:
    """A receive queue; with ``timeout_us`` 0, it delivers only full bursts."""

    common: CommonQueueConfig = field(default_factory=CommonQueueConfig)
    timeout_us: int = 0
    poll_mode: QueuePollMode = QueuePollMode.INDIRECT


@dataclass(slots=True)
class TxQueueConfig:
    """A transmit queue; with ``pacing_mbps`` 0, it is not paced."""

    common: CommonQueueConfig = field(default_factory=CommonQueueConfig)
    poll_mode: QueuePollMode = QueuePollMode.INDIRECT
    pacing_mbps: int = 0
    timeout_us: int = 0
    realtime_priority: int = 0


@dataclass(slots=True)
class VlanActionConfig:
    """The tag that VLAN_PUSH writes."""

    vlan_id: int = 0
    pcp: int = 0
    dei: int = 0
    ethertype: int = 0x8100


@dataclass(slots=True)
class TunnelConfig:
    """Outer headers of a tunnel; an empty address: any."""

    type: TunnelType = TunnelType.NONE
    outer_eth_src: str = ""
    outer_eth_dst: str = ""
    outer_ipv4_src: str = ""
    outer_ipv4_dst: str = ""
    outer_ipv4_ttl: int = 64
    outer_ipv4_tos: int = 0
    outer_udp_src: int = 0
    outer_udp_dst: int = 4789
    vni: int = 0
    gre_protocol: int = 0x0800
    tni: int = 0
    flow_id: int = 0


@dataclass(slots=True)
class FlowAction:
    """Action of a flow; a queue by ``id``, or several by ``ids``."""

    type: FlowType = FlowType.QUEUE
    id: int = 0
    ids: list[int] = field(default_factory=list)
    vlan: VlanActionConfig = field(default_factory=VlanActionConfig)
    tunnel: TunnelConfig = field(default_factory=TunnelConfig)


@dataclass(slots=True)
class FlexItemMatch:
    """A match on bits at a fixed position."""

    flex_item_id: int = 0
    val: int = 0
    mask: int = 0


@dataclass(slots=True)
class EcpriMatch:
    """A match on eCPRI messages, on the fields selected by ``match_``."""

    match_msg_type: bool = False
    msg_type: int = 0
    match_id: bool = False
    id: int = 0


@dataclass(slots=True)
class FlowMatch:
    """Match of a flow; 0 matches anything.

    ``ipv4_src`` and ``ipv4_dst`` are in network byte order, as ``in_addr_t``:
    ``int.from_bytes(socket.inet_aton("10.0.0.1"), sys.byteorder)``.
    """

    type: FlowMatchType = FlowMatchType.IPV4_UDP
    udp_src: Ports = 0
    udp_dst: Ports = 0
    ipv4_len: int = 0
    ipv4_src: int = 0
    ipv4_dst: int = 0
    flex_item_match: FlexItemMatch = field(default_factory=FlexItemMatch)
    ecpri_match: EcpriMatch = field(default_factory=EcpriMatch)


@dataclass(slots=True)
class FlowConfig:
    """A flow of the configuration; ``actions``, if not empty, replaces ``action``."""

    name: str = ""
    id: int = 0
    action: FlowAction = field(default_factory=FlowAction)
    actions: list[FlowAction] = field(default_factory=list)
    match: FlowMatch = field(default_factory=FlowMatch)


@dataclass(slots=True)
class FlowRuleConfig:
    """A flow to add at run time; ``actions``, if not empty, replaces ``action``."""

    name: str = ""
    action: FlowAction = field(default_factory=FlowAction)
    actions: list[FlowAction] = field(default_factory=list)
    match: FlowMatch = field(default_factory=FlowMatch)


@dataclass(slots=True)
class FlowOpResult:
    """A completed operation; NOT_READY if none has completed."""

    op_id: int = 0
    type: FlowOpType = FlowOpType.ADD_RX
    status: Status = Status.NOT_READY
    flow_id: int = 0
    flow_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class FlexItemConfig:
    """A field of a custom protocol."""

    name: str = ""
    id: int = 0
    udp_dst_port: int = 0
    offset: int = 0


@dataclass(slots=True)
class RxConfig:
    """The receive side of an interface."""

    flow_isolation: bool = False
    hardware_timestamps: bool = False
    dynamic_flow_capacity: int = 0
    receive_path: str = "af_packet"
    queues: list[RxQueueConfig] = field(default_factory=list)
    flows: list[FlowConfig] = field(default_factory=list)
    flex_items: list[FlexItemConfig] = field(default_factory=list)
    reorder_configs: list[ReorderConfig] = field(default_factory=list)
    filter: str = ""


@dataclass(slots=True)
class TxConfig:
    """The transmit side of an interface."""

    accurate_send: bool = False
    queues: list[TxQueueConfig] = field(default_factory=list)
    flows: list[FlowConfig] = field(default_factory=list)


@dataclass(slots=True)
class SocketConfig:
    """The socket of an interface: endpoints as URIs, or as addresses and ports."""

    mode: SocketMode = SocketMode.INVALID
    local_addr: str = ""
    remote_addr: str = ""
    local_ip: str = ""
    remote_ip: str = ""
    local_port: int = 0
    remote_port: int = 0
    max_payload_size: int = 0
    max_burst_interval_ms: int = 0
    min_ipg_ns: int = 0
    retry_connect_s: int = 1


@dataclass(slots=True)
class RoCEConfig:
    """RoCE settings of an interface."""

    transport_mode: RDMATransportMode = RDMATransportMode.INVALID


@dataclass(slots=True)
class RDMAConfig:
    """RDMA settings of an interface, derived from its socket and RoCE settings."""

    mode: RDMAMode = RDMAMode.INVALID
    transport_mode: RDMATransportMode = RDMATransportMode.INVALID
    port: int = 0


@dataclass(slots=True)
class InterfaceConfig:
    """An interface: a port."""

    name: str = ""
    address: str = ""
    port_id: int = 0
    socket: SocketConfig = field(default_factory=SocketConfig)
    roce: RoCEConfig = field(default_factory=RoCEConfig)
    rdma: RDMAConfig = field(default_factory=RDMAConfig)
    rx: RxConfig = field(default_factory=RxConfig)
    tx: TxConfig = field(default_factory=TxConfig)


@dataclass(slots=True)
class NetworkConfig:
    """A whole configuration; ``memory_regions`` by name."""

    common: CommonConfig = field(default_factory=CommonConfig)
    memory_regions: dict[str, MemoryRegionConfig] = field(default_factory=dict)
    interfaces: list[InterfaceConfig] = field(default_factory=list)
    debug: bool = False
    tx_meta_buffers: int = 256
    rx_meta_buffers: int = 256
    log_level: LogLevel = LogLevel.WARN
    ship_to: str = ""
    reorder_configs: list[ReorderConfig] = field(default_factory=list)
