"""Bluesky plans for packets, installed as ``daqiri_ophyd.plans``.

`configure_flows` changes flows, `timed_tx` sends, `capture` and `capture_scan` capture, `replay`
sends the packets of a stored run again, `verify_replay` also compares them with the packets that
arrive, and `host_ready_wrapper` runs a plan only on a host that is ready. `capture_during` captures
while any plan runs, `engine_metadata_wrapper` adds the engine to the start documents of any plan,
`reading_streams_wrapper` keeps the frames of each of its streams in one file,
and `with_catalog` prepares plans for servers. Captures also work in any other plan:
``bp.count([daq.port0.capture])``.
"""

from daqiri_ophyd.replay import Packets, packet_source

from ._capture import capture, capture_scan
from ._configure import configure_flows
from ._during import capture_during, capture_during_decorator, capture_during_wrapper
from ._host import HostNotReadyError, host_ready_wrapper
from ._metadata import engine_metadata_wrapper
from ._replay import VerificationError, replay, verify_replay, with_catalog
from ._streams import reading_streams_wrapper
from ._transmit import timed_tx

__all__ = [
    "HostNotReadyError",
    "Packets",
    "VerificationError",
    "capture",
    "capture_during",
    "capture_during_decorator",
    "capture_during_wrapper",
    "capture_scan",
    "configure_flows",
    "engine_metadata_wrapper",
    "host_ready_wrapper",
    "packet_source",
    "reading_streams_wrapper",
    "replay",
    "timed_tx",
    "verify_replay",
    "with_catalog",
]
