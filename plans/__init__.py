"""Bluesky plans for packets, installed as ``daqiri_ophyd.plans``.

`capture` and `capture_scan` capture packets, `record` records frames, and `fly_scan` either while a
motor moves. `timed_tx` sends, `replay` sends the packets of a stored run again, and `verify_replay`
also compares them with the packets that arrive. `configure` changes settings, `configure_flows`
changes flows, and `host_ready_wrapper` runs a plan only on a host that is ready. `capture_during`
captures while any plan runs, `engine_metadata_wrapper` adds the engine to the start documents of
any plan, `reading_streams_wrapper` keeps the frames of each of its streams in one file, and
`with_catalog` prepares plans for servers. Captures also work in any other plan:
``bp.count([daq.port0.capture])``. `setup` prepares a RunEngine for a session: table, progress bars,
catalog, and the two wrappers for every plan; with `WaitForPlan`, it never misses a Ctrl-C.
"""

from daqiri_ophyd.replay import Packets, packet_source

from ._capture import capture, capture_scan
from ._configure import configure_flows
from ._during import capture_during, capture_during_decorator, capture_during_wrapper
from ._host import HostNotReadyError, host_ready_wrapper
from ._metadata import engine_metadata_wrapper
from ._record import fly_scan, record
from ._replay import VerificationError, replay, verify_replay, with_catalog
from ._session import Session, setup
from ._settings import configure
from ._streams import reading_streams_wrapper
from ._transmit import timed_tx
from ._wait import WaitForPlan

__all__ = [
    "HostNotReadyError",
    "Packets",
    "Session",
    "VerificationError",
    "WaitForPlan",
    "capture",
    "capture_during",
    "capture_during_decorator",
    "capture_during_wrapper",
    "capture_scan",
    "configure",
    "configure_flows",
    "engine_metadata_wrapper",
    "fly_scan",
    "host_ready_wrapper",
    "packet_source",
    "reading_streams_wrapper",
    "record",
    "replay",
    "setup",
    "timed_tx",
    "verify_replay",
    "with_catalog",
]
