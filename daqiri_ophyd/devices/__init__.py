"""The engine as ophyd devices: ports, queues, flows, captures and frame detectors.

`make_daq` creates the device tree of a configuration, with all of its devices.
"""

from ._base import CounterDevice, EngineDevice, Group
from ._capture import Capture
from ._capture_settings import CaptureSettings
from ._daq import Daq
from ._flow import EcpriFlow, FlexFlow, Flow, UdpFlow
from ._flow_key import FlowKey
from ._frame_detector import FrameDetector
from ._frame_settings import FrameSettings
from ._gpu import Gpu
from ._host_readiness import HostReadiness
from ._link import Link
from ._losses import PacketLossError
from ._memory_region import MemoryRegion
from ._open_devices import open_devices
from ._outcome import CaptureError, CaptureStoppedError
from ._paths import PathInfo, PathProvider, PathTemplate
from ._port import Port
from ._preparation import CaptureTrigger
from ._recording_settings import RecordingSettings
from ._reorder import ReorderPlan
from ._rx_queue import RxQueue
from ._signals import EngineSignal, EngineSignalRO, Fact, ReadingSignal
from ._status import EngineStatus
from ._tree import make_daq
from ._tx_queue import TransmitStoppedError, TxQueue
from ._typed_tree import typed_tree
from ._verification import Verification

__all__ = [
    "Capture",
    "CaptureSettings",
    "CaptureError",
    "CaptureStoppedError",
    "CaptureTrigger",
    "CounterDevice",
    "Daq",
    "EcpriFlow",
    "EngineDevice",
    "EngineSignal",
    "EngineSignalRO",
    "EngineStatus",
    "Fact",
    "FlexFlow",
    "Flow",
    "FlowKey",
    "FrameDetector",
    "FrameSettings",
    "Gpu",
    "Group",
    "HostReadiness",
    "Link",
    "MemoryRegion",
    "PacketLossError",
    "PathInfo",
    "PathProvider",
    "PathTemplate",
    "Port",
    "ReadingSignal",
    "RecordingSettings",
    "ReorderPlan",
    "RxQueue",
    "TransmitStoppedError",
    "TxQueue",
    "UdpFlow",
    "Verification",
    "make_daq",
    "open_devices",
    "typed_tree",
]
