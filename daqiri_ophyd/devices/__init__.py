"""The engine as ophyd devices: ports, queues, flows, captures and frame detectors.

`make_daq` creates the device tree of a configuration, with all of its devices.
"""

from .checks._host_readiness import HostReadiness
from .checks._verification import Verification
from .daq._daq import Daq
from .daq._gpu import Gpu
from .daq._memory_region import MemoryRegion
from .daq._open_devices import open_devices
from .daq._port import Link, Port
from .parts._base import CounterDevice, EngineDevice, Group
from .parts._owner import Owner
from .parts._signals import EngineSignal, EngineSignalRO, Fact, ReadingSignal
from .parts._status import EngineStatus
from .recording._errors import CaptureError, CaptureStoppedError
from .recording._losses import PacketLossError
from .recording._paths import PathInfo, PathProvider, PathTemplate
from .recording._settings import RecordingSettings
from .recording.frames._frame_detector import FrameDetector
from .recording.frames._reorder import ReorderPlan
from .recording.frames._settings import FrameSettings
from .recording.packets._capture import Capture
from .recording.packets._preparation import CaptureTrigger
from .recording.packets._settings import CaptureSettings
from .traffic._flow import EcpriFlow, FlexFlow, Flow, FlowKey, UdpFlow
from .traffic._rx_queue import RxQueue
from .traffic._tx_queue import TransmitStoppedError, TxQueue
from .tree._data_keys import shortened_names
from .tree._tree import make_daq
from .tree._typed_tree import typed_tree

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
    "Owner",
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
    "shortened_names",
    "typed_tree",
]
