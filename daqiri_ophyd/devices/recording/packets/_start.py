"""Start of a capture: its settings for recorders, and how its end is judged."""

from collections.abc import Mapping, Sequence
from typing import Any

from daqiri_ophyd.engine import QueueRecording

from .._errors import CaptureError
from .._losses import PortLossWatch
from ._outcome import Outcome
from ._preparation import CaptureTrigger
from ._settings import CaptureSettings

__all__ = ["outcome_of", "recorder_settings", "require_same"]

# Settings that are parameters of `RxQueue.record`. A step scan writes one file per reading, so it
# does not use the settings for rolling.
_RECORD_SETTINGS = ("format", "nanosecond", "packet_data_offset", "writer", "on_error", "durable")
_ROLL_SETTINGS = ("roll_packets", "roll_bytes", "roll_seconds")


def recorder_settings(
    capture: CaptureSettings, *, rolling: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the limits and the options of a capture's recorders, as for `RxQueue.record`.

    Raises
    ------
    CaptureError
        If a setting is not accepted with several queues, or the start flow does not lead there.
    """
    if len(capture.selected_queues) > 1 and capture.on_error.get() == "resume":
        raise CaptureError(
            f"{capture.name}: with several queues on_error cannot be 'resume', because after an "
            "error their files would not belong together. Use 'stop', or a capture for each."
        )
    options = {name: getattr(capture, name).get() for name in _RECORD_SETTINGS}
    options["start_flow"] = capture.start_flow_id()
    limits = {name: getattr(capture, name).get() for name in _ROLL_SETTINGS if rolling}
    limits |= {"max_packets": capture.num_packets.get(), "max_seconds": capture.acquire_time.get()}
    return limits, options


def outcome_of(
    capture: CaptureSettings, recording: QueueRecording, trigger: CaptureTrigger | None
) -> Outcome:
    """Return what decides whether a capture succeeds, from its settings."""
    port = capture.port_name
    return Outcome(
        {f"{port}/{name}": capture.daq.rx_queue(port, name) for name in recording.queues},
        capture.num_packets.get(),
        flushed=recording.flushed,
        before=recording.before,
        on_error=capture.on_error.get(),
        on_drop=capture.on_drop.get(),
        files=trigger.number_of_files if trigger is not None else 0,
        start=capture.start_flow.get(),
        deadtime=capture.deadtime.get(),
        before_engine=PortLossWatch(recording.port, recording.port_before),
    )


def require_same(
    capture: CaptureSettings,
    recording: QueueRecording,
    queues: Sequence[str],
    settings: Mapping[str, Any],
) -> None:
    """Raise `CaptureError` if a recording that runs is not what the settings ask for."""
    if recording.port is not capture.daq.port(capture.port_name):
        raise CaptureError(
            f"{capture.name}: the recording to continue is of port {recording.port.name!r} of an "
            f"engine; start it on port {capture.port_name!r} of the open engine of "
            f"{capture.daq.name}."
        )
    found = {"queues": list(recording.queues), **recording.settings}
    for name, value in {"queues": list(queues), "first_number": 0, **settings}.items():
        if found.get(name) != value:
            raise CaptureError(
                f"{capture.name}: the recording to continue has {name} {found.get(name)!r}, and "
                f"the setting is {value!r}. Start it with the settings of the capture."
            )
