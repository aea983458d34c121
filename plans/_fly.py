"""The run that all fly plans share."""

from collections.abc import Mapping
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import MsgGenerator, RunEngineControlException

from daqiri_ophyd.devices import Capture, FrameDetector, TxQueue
from daqiri_ophyd.replay import Packets, PacketSource, packet_source

from ._flight import Flight, streams_of
from ._metadata import engine_metadata_wrapper
from ._settings import Settings, described, with_settings

__all__ = ["fly", "fly_with_settings", "prepare_to_send", "require_both", "source_for"]


def source_for(tx: TxQueue, packets: Packets) -> PacketSource:
    """Return the packets of a description; `TypeError` if ``tx`` is not a transmit queue."""
    if not isinstance(tx, TxQueue):
        raise TypeError(
            f"tx is {described(tx)}; give a transmit queue of a port: daq.<port>.tx.<queue>."
        )
    return packet_source(packets, tx.link_type, tx.segment_size)


def prepare_to_send(tx: TxQueue, source: PacketSource) -> MsgGenerator[None]:
    """Prepare a transmit queue with packets; they are sent when it is triggered or kicked off."""
    # Bluesky's protocols declare types that ophyd's status does not have.
    device: Any = tx
    yield from bps.prepare(device, source, wait=True)


def fly(
    detector: Capture | FrameDetector | None,
    tx: TxQueue | None,
    *,
    flush_period: float,
    md: Mapping[str, Any],
) -> MsgGenerator[str]:
    """Capture, send prepared packets, or both at once, in one run.

    Files and counters of the detector are in the stream ``primary``. The row of the transmission is
    in the stream ``transmit``, or in ``primary`` if nothing is captured. A capture without a limit
    ends after the transmission.

    Parameters
    ----------
    detector : Capture, FrameDetector or None
        Detector to record with.
    tx : TxQueue or None
        A prepared transmit queue.
    flush_period : float
        Time between collections of rows, s.
    md : dict
        Metadata of the run.

    Returns
    -------
    str
        uid of the run.
    """
    streams = streams_of([] if detector is None else [detector], tx, "primary")
    flight = Flight(streams, flush_period)
    flown = [device for devices in streams.values() for device in devices]
    names = [device.name for device in flown]
    metadata = {"detectors": names, "hints": {"dimensions": [(("time",), "primary")]}, **md}

    def fly_devices() -> MsgGenerator[None]:
        yield from flight.start()
        yield from flight.end()

    def recover(error: Exception) -> MsgGenerator[None]:
        yield from flight.recover()
        # Only the RunEngine knows why a run is aborted, so it has to close the run.
        if not isinstance(error, RunEngineControlException):
            yield from bps.close_run(exit_status="fail", reason=str(error))

    def run() -> MsgGenerator[str]:
        uid = yield from bps.open_run(metadata)
        yield from bpp.contingency_wrapper(
            fly_devices(), except_plan=recover, else_plan=bps.close_run
        )
        return uid

    return (yield from engine_metadata_wrapper(bpp.stage_wrapper(run(), flown)))


def require_both(tx: TxQueue | None, packets: Packets | None) -> None:
    """Raise `ValueError` unless both or none of them are given."""
    if (tx is None) != (packets is None):
        given, missing = ("tx", "packets") if packets is None else ("packets", "tx")
        raise ValueError(f"{given} is given without {missing}; sending requires both.")


def fly_with_settings(
    detector: Capture | FrameDetector,
    settings: Settings,
    tx: TxQueue | None,
    packets: Packets | None,
    start_delay: float,
    *,
    flush_period: float,
    md: Mapping[str, Any],
) -> MsgGenerator[str]:
    """Record with these settings, and optionally send packets at the same time; see `fly`."""
    source = None
    if tx is not None and packets is not None:
        source = source_for(tx, packets)
        settings = {**settings, tx.start_delay: start_delay}

    def record() -> MsgGenerator[str]:
        if tx is not None and source is not None:
            yield from prepare_to_send(tx, source)
        return (yield from fly(detector, tx, flush_period=flush_period, md=md))

    return (yield from with_settings(settings, record()))
