"""Capture packets in one run."""

from collections.abc import Mapping
from typing import Any

from bluesky import plans as bp
from bluesky.protocols import Movable
from bluesky.utils import MsgGenerator

from daqiri_ophyd.devices import Capture, FrameDetector, TxQueue
from daqiri_ophyd.replay import Packets

from ._fly import fly_with_settings, prepare_to_send, require_both, source_for
from ._metadata import engine_metadata_wrapper
from ._record import record
from ._settings import OnDrop, detector_settings, with_settings

__all__ = ["capture", "capture_scan"]


def capture(
    detector: Capture | FrameDetector,
    num_packets: int = 0,
    acquire_time: float = 0.0,
    roll_packets: int = 0,
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
    """Capture packets to files on the fly, and optionally send packets at the same time.

    Parameters
    ----------
    detector : Capture or FrameDetector
        The capture of a port. With a frame detector, this is the plan `record`, and numbers of
        packets are numbers of frames.
    num_packets : int
        Stop after this many packets; 0: no limit.
    acquire_time : float
        Stop after this time, s; 0: no limit. Without any limit, the capture stops after the last
        packet is sent.
    roll_packets, roll_bytes, roll_seconds : int, int, float
        Begin a new file after this many packets, bytes or s; 0: no limit.
    on_drop : str
        If packets are lost: ``fail`` the run, ``flag`` the rows, or ``ignore`` the losses.
    timeout : float
        Longest time without packets, s.
    tx : TxQueue, optional
        Transmit queue for ``packets``.
    packets : dict, str, sequence of str or PacketSource, optional
        Packets to send during the capture; see `timed_tx`.
    start_delay : float
        Time until the first packet is sent, s.
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
    if isinstance(detector, FrameDetector):
        return (
            yield from record(
                detector,
                num_packets,
                acquire_time,
                roll_packets,
                roll_bytes,
                roll_seconds,
                on_drop,
                timeout,
                tx,
                packets,
                start_delay,
                flush_period,
                md=md,
            )
        )
    require_both(tx, packets)
    settings = detector_settings(
        detector,
        Capture | FrameDetector,
        num_packets=num_packets,
        acquire_time=acquire_time,
        roll_packets=roll_packets,
        roll_bytes=roll_bytes,
        roll_seconds=roll_seconds,
        on_drop=on_drop,
        timeout=timeout,
    )
    if tx is None and not num_packets and not acquire_time:
        raise ValueError("The capture has no limit. Give num_packets or acquire_time.")
    metadata = {"plan_name": "capture", **(md or {})}
    return (
        yield from fly_with_settings(
            detector, settings, tx, packets, start_delay, flush_period=flush_period, md=metadata
        )
    )


def capture_scan(
    detector: Capture,
    motor: Movable,
    start: float,
    stop: float,
    num: int,
    num_packets: int = 0,
    acquire_time: float = 0.0,
    on_drop: OnDrop = "fail",
    timeout: float = 10.0,
    tx: TxQueue | None = None,
    packets: Packets | None = None,
    start_delay: float = 0.1,
    *,
    md: Mapping[str, Any] | None = None,
) -> MsgGenerator[str]:
    """Capture one file at each position of a motor, and optionally send packets at each.

    Parameters
    ----------
    detector : Capture
        The capture of a port.
    motor : Movable
        Motor to move.
    start, stop : float
        First and last position.
    num : int
        Number of positions.
    num_packets : int
        Packets per file; 0: no limit.
    acquire_time : float
        Time per file, s; 0: no limit. Without any limit, a file has all packets that are sent.
    on_drop, timeout, tx, packets, start_delay
        As for `capture`; ``packets`` are sent at each position.
    md : dict, optional
        Metadata of the run.

    Returns
    -------
    str
        uid of the run.
    """
    require_both(tx, packets)
    devices: list[Any] = [detector]
    source = None
    if tx is not None and packets is not None:
        source = source_for(tx, packets)
        if not num_packets and not acquire_time:
            num_packets = source.packets
        devices.append(tx)
    settings = detector_settings(
        detector,
        Capture,
        num_packets=num_packets,
        acquire_time=acquire_time,
        on_drop=on_drop,
        timeout=timeout,
    )

    def scan() -> MsgGenerator[str]:
        if tx is not None and source is not None:
            yield from prepare_to_send(tx, source)
        metadata = {"plan_name": "capture_scan", **(md or {})}
        points = bp.scan(devices, motor, start, stop, num=num, md=metadata)
        return (yield from engine_metadata_wrapper(points))

    if tx is not None:
        settings = {**settings, tx.start_delay: start_delay}
    return (yield from with_settings(settings, scan()))
