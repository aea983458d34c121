"""The run that all fly plans share."""

import time
from collections.abc import Mapping
from typing import Any, Literal

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import MsgGenerator, RunEngineControlException, short_uid

from daqiri_ophyd.devices import Capture, TxQueue
from daqiri_ophyd.replay import PacketSource

__all__ = ["OnDrop", "capture_settings", "fly", "prepare_to_send", "with_settings"]


# How soon a capture that fails ends the run, while only the transmission is waited for.
_LOOK_S = 0.1

OnDrop = Literal["fail", "flag", "ignore"]
"""What to do about lost packets."""


Settings = Mapping[Any, Any]
"""Values by signal."""


def capture_settings(detector: Capture, **settings: Any) -> Settings:
    """Return settings of a capture by their signals."""
    return {getattr(detector, attribute): value for attribute, value in settings.items()}


def with_settings(settings: Settings, plan: MsgGenerator[str]) -> MsgGenerator[str]:
    """Run a plan with these settings; afterwards, however it ends, they are as before."""
    before = {signal: signal.get() for signal in settings}

    def run() -> MsgGenerator[str]:
        for signal, value in settings.items():
            yield from bps.abs_set(signal, value, wait=True)
        return (yield from plan)

    def restore() -> MsgGenerator[None]:
        for signal, value in before.items():
            yield from bps.abs_set(signal, value, wait=True)

    return (yield from bpp.finalize_wrapper(run(), restore))


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

    Files and counters of the capture are in stream ``primary``; the row of the transmission is in
    stream ``transmit``, or in ``primary`` if nothing is captured. A capture without a limit ends
    after the transmission.

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
    streams: dict[Any, str] = {}
    if detector is not None:
        streams[detector] = "primary"
    if tx is not None:
        streams[tx] = "transmit" if streams else "primary"
    names = [device.name for device in streams]
    metadata = {"detectors": names, "hints": {"dimensions": [(("time",), "primary")]}, **md}

    def collect() -> MsgGenerator[None]:
        for device, stream in streams.items():
            yield from bps.collect(device, name=stream)

    def complete(*devices: Any) -> MsgGenerator[None]:
        group = short_uid("complete")
        statuses = []
        for device in devices:
            statuses.append((yield from bps.complete(device, group=group)))
        done = False
        pause = min(flush_period, _LOOK_S)
        due = time.monotonic() + flush_period
        while not done:
            # Where a deferred pause takes effect.
            yield from bps.checkpoint()
            waited = yield from bps.wait(group=group, timeout=pause, error_on_timeout=False)
            done = all(status is None or status.done for status in statuses)
            if waited and not done:
                # After a pause the RunEngine has forgotten the group, and `wait` returns at once.
                yield from bps.sleep(pause)
            # Collecting raises the reason of a capture that has failed.
            if done or time.monotonic() >= due or (detector is not None and detector.failed):
                yield from collect()
                due = time.monotonic() + flush_period

    def fly_devices() -> MsgGenerator[None]:
        for device in streams:
            yield from bps.kickoff(device, wait=True)
        if detector is not None and tx is not None and not detector.limited:
            yield from complete(tx)
            yield from complete(detector)
        else:
            yield from complete(*streams)

    def recover(error: Exception) -> MsgGenerator[None]:
        # Unstaging stops the devices and completes the files, which are part of the run.
        for device in streams:
            yield from bps.unstage(device)
        yield from collect()
        # Only the RunEngine knows why a run is aborted, so it has to close the run itself.
        if not isinstance(error, RunEngineControlException):
            yield from bps.close_run(exit_status="fail", reason=str(error))

    def run() -> MsgGenerator[str]:
        uid = yield from bps.open_run(metadata)
        for device, stream in streams.items():
            yield from bps.declare_stream(device, name=stream, collect=True)
        yield from bpp.contingency_wrapper(
            fly_devices(), except_plan=recover, else_plan=bps.close_run
        )
        return uid

    # Not rewindable: after a resume the fly scan continues. Repeated from a checkpoint, it would
    # number rows twice.
    return (yield from bpp.rewindable_wrapper(bpp.stage_wrapper(run(), list(streams)), False))
