"""Record frames in one run."""

from collections.abc import Mapping
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.protocols import Movable, Subscribable
from bluesky.utils import MsgGenerator

from daqiri_ophyd.devices import Capture, FrameDetector, TxQueue
from daqiri_ophyd.replay import Packets

from ._during import capture_during
from ._fly import fly_with_settings, require_both
from ._metadata import engine_metadata_wrapper
from ._settings import OnDrop, detector_settings, limits, with_settings

__all__ = ["fly_scan", "record"]


def record(
    detector: FrameDetector,
    num_frames: int = 0,
    acquire_time: float = 0.0,
    roll_frames: int = 0,
    roll_bytes: int = 0,
    roll_seconds: float = 0.0,
    on_drop: OnDrop = "fail",
    timeout: float = 10.0,
    tx: TxQueue | None = None,
    packets: Packets | None = None,
    start_delay: float = 0.1,
    flush_period: float = 0.5,
    *,
    md: Mapping[str, Any] | None = None,
) -> MsgGenerator[str]:
    """Record consecutive frames to files, and optionally send packets at the same time.

    Parameters
    ----------
    detector : FrameDetector
        The detector of a reorder plan's frames.
    num_frames : int
        Stop after this many frames; 0: no limit.
    acquire_time : float
        Stop after this time, s; 0: no limit. Without any limit, the recording stops after the last
        packet is sent.
    roll_frames, roll_bytes, roll_seconds : int, int, float
        Begin a new file after this many frames, bytes or s; 0: no limit.
    on_drop : str
        If frames are lost: ``fail`` the run, ``flag`` the rows, or ``ignore`` the losses.
    timeout : float
        Longest time without frames, s.
    tx, packets, start_delay
        As for `capture`.
    flush_period : float
        Time between collections of rows, s.
    md : dict, optional
        Metadata of the run.

    Returns
    -------
    str
        uid of the run.

    Raises
    ------
    ValueError
        If there are neither a limit nor packets to send, or ``packets`` is not valid.
    """
    require_both(tx, packets)
    settings = detector_settings(
        detector,
        FrameDetector,
        num_frames=num_frames,
        acquire_time=acquire_time,
        roll_frames=roll_frames,
        roll_bytes=roll_bytes,
        roll_seconds=roll_seconds,
        on_drop=on_drop,
        timeout=timeout,
    )
    if tx is None and not num_frames and not acquire_time:
        raise ValueError("The recording has no limit. Give num_frames or acquire_time.")
    metadata = {"plan_name": "record", **(md or {})}
    return (
        yield from fly_with_settings(
            detector, settings, tx, packets, start_delay, flush_period=flush_period, md=metadata
        )
    )


def fly_scan(
    detector: Capture | FrameDetector,
    motor: Movable,
    start: float,
    stop: float,
    on_drop: OnDrop = "fail",
    timeout: float = 10.0,
    flush_period: float = 0.5,
    *,
    md: Mapping[str, Any] | None = None,
) -> MsgGenerator[str]:
    """Record every frame, or every packet, while a motor moves.

    The motor moves to ``start`` first. Positions that it reports during the recording are events of
    the stream ``<motor>_monitor``; a motor that reports none is read before and after it, in the
    stream ``baseline``.

    Parameters
    ----------
    detector : Capture or FrameDetector
        Detector to record with.
    motor : Movable
        Motor to move.
    start, stop : float
        First and last position. The speed is a setting of the motor.
    on_drop : str
        If frames or packets are lost: ``fail`` the run, ``flag`` the rows, or ``ignore`` it.
    timeout : float
        Longest time without frames or packets after the motor has arrived, s.
    flush_period : float
        Time between collections of rows after the motor has arrived, s.
    md : dict, optional
        Metadata of the run.

    Returns
    -------
    str
        uid of the run.
    """
    own = detector_settings(detector, Capture | FrameDetector, on_drop=on_drop, timeout=timeout)
    settings = {**limits([detector], None, 0.0, None), **own}
    metadata = {
        "plan_name": "fly_scan",
        "detectors": [detector.name],
        "motors": [getattr(motor, "name", "")],
        "plan_args": {"start": start, "stop": stop},
        "hints": {"dimensions": [(("time",), "primary")]},
        **(md or {}),
    }

    def move() -> MsgGenerator[Any]:
        moving = capture_during(detector, bps.mv(motor, stop), flush_period=flush_period)
        return (yield from bpp.run_wrapper(moving, md=metadata))

    reported = isinstance(motor, Subscribable)
    follow: Any = bpp.monitor_during_wrapper if reported else bpp.baseline_wrapper

    def scan() -> MsgGenerator[Any]:
        yield from bps.mv(motor, start)
        return (yield from follow(move(), [motor]))

    staged = bpp.stage_wrapper(scan(), [detector, motor])
    return (yield from with_settings(settings, engine_metadata_wrapper(staged)))
