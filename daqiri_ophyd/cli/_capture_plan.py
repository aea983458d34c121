"""The plan of ``daqiri-ophyd capture``."""

import time
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import MsgGenerator

from ..devices import Capture
from ..engine import QueueRecording
from ..plans import capture_during_wrapper

__all__ = ["capture_until_stopped"]

_LOOK_S = 0.1


def capture_until_stopped(
    capture: Capture, recording: QueueRecording, timeout: float, **settings: Any
) -> MsgGenerator[Any]:
    """
    Capture in one run until a limit is reached, or the device is stopped.

    Parameters
    ----------
    capture : Capture
        The device; its settings stay changed.
    recording : QueueRecording
        The recording that it continues.
    timeout : float
        Longest time without packets, s; 0: none.
    **settings
        Settings of the device.

    Raises
    ------
    TimeoutError
        If no packet has arrived for that time; the run has those before.
    """
    for name, value in settings.items():
        getattr(capture, name).put(value)

    def wait() -> MsgGenerator[None]:
        packets, since = -1, time.monotonic()
        while capture.is_recording:
            # Rows are collected at checkpoints.
            yield from bps.checkpoint()
            yield from bps.sleep(_LOOK_S)
            now = time.monotonic()
            found = sum(recorder.snapshot().packets for recorder in recording.recorders)
            if found != packets:
                packets, since = found, now
            elif timeout and now - since > timeout:
                raise TimeoutError(
                    f"{capture.name}: no packet for {timeout:g} s, after {packets:,} packets; "
                    "--timeout 0 waits for them"
                )

    md = {"plan_name": "capture", "detectors": [capture.name]}
    run = bpp.run_wrapper(wait(), md=md)
    return (yield from capture_during_wrapper(run, capture, stream="primary"))
