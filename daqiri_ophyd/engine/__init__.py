"""The packet engine: configurations, ports, queues, bursts as arrays, recorders, pcap files.

Times are ns on the port's clock unless a name says otherwise. Timeouts are in seconds; calls that
wait release the interpreter lock and end on Ctrl-C. All errors are subclasses of `DaqiriError`.
"""

from daqiri_ophyd._native import (
    DeviceArray,
    EcpriMatch,
    FlexItemConfig,
    FlowAction,
    FlowConfig,
    FlowMatch,
    InterfaceConfig,
    MemoryRegionConfig,
    NetworkConfig,
    ReorderBitFieldConfig,
    ReorderConfig,
    ReorderDataTypesConfig,
    ReorderFrameConfig,
    RoCEConfig,
    RxConfig,
    RxQueueConfig,
    SocketConfig,
    TunnelConfig,
    TxConfig,
    TxQueueConfig,
    VlanActionConfig,
)

from . import ethernet, events
from ._burst import Burst
from ._config import (
    ConfigProblem,
    ConfigReport,
    ConfigSource,
    check_config,
    engine_problems,
    load_config,
    read_config,
)
from ._connections import Connection
from ._counters import (
    LATENESS_EDGES,
    FlowCounters,
    Lateness,
    ReorderCounters,
    RxCounters,
    TxCounters,
)
from ._dma_buf import DmaBuf
from ._engine import LINKTYPE_ETHERNET, LINKTYPE_RAW, Engine, Port, capabilities, cmake_dir, version
from ._errors import (
    ConfigError,
    ConnectFailureError,
    DaqiriError,
    GenericFailureError,
    InternalEngineError,
    InvalidParameterError,
    NoFreeBurstBuffersError,
    NoFreePacketBuffersError,
    NoSpaceAvailableError,
    NotReadyError,
    NotSupportedError,
    NullPointerError,
    Status,
)
from ._flow import Flow
from ._frame_file import FrameFile, cut_frames, examine_frames
from ._frame_kernel import ProcessedPlan
from ._frame_reductions import FrameReductions
from ._link import Link
from ._packets import Packets
from ._pcap import PcapFile, write_pcap
from ._port_counters import PortCounters
from ._recorder import RecordedFile, Recorder, RecorderGroup, RecorderSnapshot
from ._recording import QueueRecording, file_prefixes, queue_names
from ._registry import UnreadableEngine, ask_engines, running_engines
from ._reorder import Frame, FramePreview, Frames, ReorderPlan, frame_form
from ._rx_queue import RxQueue
from ._snapshot import (
    LATENESS_BOUNDS_NS,
    EngineSnapshot,
    FlowState,
    PortState,
    QueueLevels,
    RegionState,
    ReorderState,
    RxQueueState,
    TxQueueState,
)
from ._tx_queue import TxQueue
from .events import EventPump, default_pump

__all__ = [
    "LATENESS_BOUNDS_NS",
    "LATENESS_EDGES",
    "LINKTYPE_ETHERNET",
    "LINKTYPE_RAW",
    "Burst",
    "ConfigError",
    "ConfigProblem",
    "ConfigReport",
    "ConfigSource",
    "ConnectFailureError",
    "Connection",
    "DaqiriError",
    "DeviceArray",
    "DmaBuf",
    "EcpriMatch",
    "Engine",
    "EngineSnapshot",
    "EventPump",
    "FlexItemConfig",
    "Flow",
    "FlowAction",
    "FlowConfig",
    "FlowCounters",
    "FlowMatch",
    "FlowState",
    "Frame",
    "FrameFile",
    "FramePreview",
    "FrameReductions",
    "Frames",
    "GenericFailureError",
    "InterfaceConfig",
    "InternalEngineError",
    "InvalidParameterError",
    "Lateness",
    "Link",
    "MemoryRegionConfig",
    "NetworkConfig",
    "NoFreeBurstBuffersError",
    "NoFreePacketBuffersError",
    "NoSpaceAvailableError",
    "NotReadyError",
    "NotSupportedError",
    "NullPointerError",
    "Packets",
    "PcapFile",
    "Port",
    "PortCounters",
    "PortState",
    "ProcessedPlan",
    "QueueLevels",
    "QueueRecording",
    "RecordedFile",
    "Recorder",
    "RecorderGroup",
    "RecorderSnapshot",
    "RegionState",
    "ReorderBitFieldConfig",
    "ReorderConfig",
    "ReorderCounters",
    "ReorderDataTypesConfig",
    "ReorderFrameConfig",
    "ReorderPlan",
    "ReorderState",
    "RoCEConfig",
    "RxConfig",
    "RxCounters",
    "RxQueue",
    "RxQueueConfig",
    "RxQueueState",
    "SocketConfig",
    "Status",
    "TunnelConfig",
    "TxConfig",
    "TxCounters",
    "TxQueue",
    "TxQueueConfig",
    "TxQueueState",
    "UnreadableEngine",
    "VlanActionConfig",
    "ask_engines",
    "capabilities",
    "check_config",
    "cmake_dir",
    "engine_problems",
    "cut_frames",
    "default_pump",
    "ethernet",
    "events",
    "examine_frames",
    "file_prefixes",
    "frame_form",
    "load_config",
    "queue_names",
    "read_config",
    "running_engines",
    "version",
    "write_pcap",
]
