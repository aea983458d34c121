"""The run that all fly plans share."""

from collections.abc import Mapping
from typing import Any, Literal

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import MsgGenerator, RunEngineControlException

from daqiri_ophyd.devices import Capture, Port, TxQueue
from daqiri_ophyd.replay import Packets, PacketSource, packet_source

from ._during import Flight, streams_of
from ._metadata import engine_metadata_wrapper

__all__ = [
    "OnDrop",
    "capture_settings",
    "fly",
    "prepare_to_send",
    "source_for",
    "with_settings",
]


OnDrop = Literal["fail", "flag", "ignore"]
"""Action on lost packets."""


Settings = Mapping[Any, Any]
"""Values by signal."""


def capture_settings(detector: Capture, **settings: Any) -> Settings:
    """Return settings of a capture by signal; `TypeError` if it is not a capture."""
    if not isinstance(detector, Capture):
        part = "daq.<port>"
        if isinstance(detector, Port):
            part = f"{detector.root.name}.{detector.dotted_name}"
        raise TypeError(f"detector is {_described(detector)}; give a capture: {part}.capture.")
    return {getattr(detector, attribute): value for attribute, value in settings.items()}


def with_settings(settings: Settings, plan: MsgGenerator[str]) -> MsgGenerator[str]:
    """Run a plan with these settings, and restore the old ones however it ends."""
    before = {signal: signal.get() for signal in settings}

    def run() -> MsgGenerator[str]:
        for signal, value in settings.items():
            yield from bps.abs_set(signal, value, wait=True)
        return (yield from plan)

    def restore() -> MsgGenerator[None]:
        errors = []
        for signal, value in before.items():
            try:
                yield from bps.abs_set(signal, value, wait=True)
            except Exception as error:  # noqa: BLE001 - the others are restored all the same
                errors.append(error)
        if errors:
            raise errors[0]

    return (yield from bpp.finalize_wrapper(run(), restore))


def source_for(tx: TxQueue, packets: Packets) -> PacketSource:
    """Return the packets of a description; `TypeError` if ``tx`` is not a transmit queue."""
    if not isinstance(tx, TxQueue):
        raise TypeError(
            f"tx is {_described(tx)}; give a transmit queue of a port: daq.<port>.tx.<queue>."
        )
    return packet_source(packets, tx.link_type, tx.segment_size)


def _described(given: Any) -> str:
    kind = type(given).__name__
    name = getattr(given, "name", None)
    return f"{name}, a {kind}" if name else f"a {kind}"


def prepare_to_send(tx: TxQueue, source: PacketSource) -> MsgGenerator[None]:
    """Prepare a transmit queue with packets; they are sent when it is triggered or kicked off."""
    # Bluesky's protocols declare types that ophyd's status does not have.
    device: Any = tx
    yield from bps.prepare(device, source, wait=True)


def fly(
    detector: Capture | None,
    tx: TxQueue | None,
    *,
    flush_period: float,
    md: Mapping[str, Any],
) -> MsgGenerator[str]:
    """Capture, send prepared packets, or both at once, in one run.

    Files and counters of the capture are in the stream ``primary``. The row of the transmission is
    in the stream ``transmit``, or in ``primary`` if nothing is captured. A capture without a limit
    ends after the transmission.

    Parameters
    ----------
    detector : Capture or None
        Capture of a port.
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
