"""Preparation of a capture: number of files, packets in a file, start."""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from .._errors import CaptureError
from ._settings import CaptureSettings

__all__ = ["CaptureTrigger", "Preparation", "put"]

# Fields of ophyd-async's TriggerInfo that would make a row of several exposures.
_PER_EVENT = ("exposures_per_event", "exposures_per_collection", "collections_per_event")
_MOST_PACKETS = 2**63 - 1  # documents have integers of 64 bits
_UNDERSTOOD = {"number_of_events", "trigger", "deadtime", "livetime", "exposure_timeout"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptureTrigger:
    """Description of a prepared capture, as `ophyd_async.core.TriggerInfo` for detectors.

    Parameters
    ----------
    number_of_files : int
        Files of each kickoff; each file is a row.
    packets_per_file : int
        Packets in each file.
    start : str, optional
        Name of a receive flow of the port: recording begins with the first packet that matches it,
        and earlier packets are left out. Default: begin with the first packet after kickoff.
    deadtime : float
        Time that the source pauses between two exposures, s. If a file begins sooner than this
        after the last packet of the file before, it has packets of two exposures, and the capture
        fails. The capture itself needs no dead time: no packet is lost between two files.
    timeout : float, optional
        Longest time for one file, s, from ``complete`` or from the file before. Default: no limit
        other than the setting `timeout`, the longest time without packets.

    Raises
    ------
    TypeError, ValueError
        If a value is not accepted.
    """

    number_of_files: int = 1
    packets_per_file: int
    start: str | None = None
    deadtime: float = 0.0
    timeout: float | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("number_of_files", "packets_per_file"):
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        if self.packets > _MOST_PACKETS:
            raise ValueError(
                f"{self.number_of_files} files of {self.packets_per_file} packets are "
                f"{self.packets} packets; accepted are {_MOST_PACKETS} or fewer."
            )
        if self.start is not None and not (isinstance(self.start, str) and self.start):
            raise TypeError(f"start is {self.start!r}; accepted are the name of a flow, and None.")
        object.__setattr__(self, "deadtime", _seconds("deadtime", self.deadtime))
        if self.timeout is not None:
            object.__setattr__(self, "timeout", _seconds("timeout", self.timeout))
            if not self.timeout:
                raise ValueError("timeout is 0; accepted are more than 0 s, and None.")

    @property
    def packets(self) -> int:
        """Packets in all files."""
        return self.number_of_files * self.packets_per_file

    @classmethod
    def of(cls, value: Any, *, packets_per_file: int) -> Self:
        """Return a `CaptureTrigger` from a description of either kind.

        Parameters
        ----------
        value : CaptureTrigger or TriggerInfo
            The description.
        packets_per_file : int
            Packets in each file for a ``TriggerInfo``, which has no such field.

        Raises
        ------
        TypeError
            If `value` is neither.
        CaptureError
            If a field of a ``TriggerInfo`` requests something that a capture cannot do.
        """
        if isinstance(value, cls):
            return value
        if not hasattr(value, "number_of_events"):
            raise TypeError(
                f"a capture cannot be prepared with {value!r}; accepted are CaptureTrigger"
                "(number_of_files=..., packets_per_file=...) of daqiri_ophyd.devices, and "
                "TriggerInfo of ophyd-async."
            )
        trigger = getattr(value, "trigger", None)
        if getattr(trigger, "name", "INTERNAL") != "INTERNAL":
            raise CaptureError(
                f"trigger is {trigger}; accepted is INTERNAL. To begin with a packet, use "
                "CaptureTrigger(start=<flow>)."
            )
        if getattr(value, "livetime", None):
            raise CaptureError(
                f"livetime is {value.livetime}; a capture has no exposure time. Leave it out."
            )
        for name in _PER_EVENT:
            if (number := getattr(value, name, 1)) != 1:
                raise CaptureError(f"{name} is {number}; accepted is 1: a row has one file.")
        given = set(getattr(value, "model_fields_set", ()))
        if unknown := given - _UNDERSTOOD - set(_PER_EVENT):
            raise CaptureError(f"{', '.join(sorted(unknown))}: a capture has no such field.")
        if not packets_per_file:
            raise CaptureError(
                "TriggerInfo has no number of packets per file: set roll_packets before, "
                "or use CaptureTrigger(packets_per_file=...)."
            )
        if not isinstance(value.number_of_events, int) or value.number_of_events == 0:
            raise CaptureError(
                f"number_of_events is {value.number_of_events}; accepted is one number, 1 or more. "
                "Each kickoff writes this many files; prepare again for another number."
            )
        return cls(
            number_of_files=value.number_of_events,
            packets_per_file=packets_per_file,
            deadtime=getattr(value, "deadtime", 0.0) or 0.0,
            # Its default of a few seconds is not a request of the user.
            timeout=value.exposure_timeout if "exposure_timeout" in given else None,
        )

    def settings(self) -> dict[str, Any]:
        """Return the corresponding settings of a capture, by attribute."""
        return {
            "num_packets": self.packets,
            "acquire_time": 0.0,
            "roll_packets": self.packets_per_file,
            "roll_bytes": 0,
            "roll_seconds": 0.0,
            "start_flow": self.start or "",
            "deadtime": self.deadtime,
            "file_timeout": self.timeout or 0.0,
        }


class Preparation:
    """Settings of a prepared capture, from ``prepare`` until ``unstage``.

    Parameters
    ----------
    capture : CaptureSettings
        The capture.
    value : CaptureTrigger or TriggerInfo
        Its description.
    earlier : Preparation, optional
        Preparation that it replaces.

    Raises
    ------
    CaptureError
        If a setting does not permit it: several queues, `on_error` ``resume``, reductions, or a
        flow that does not lead to the queue.
    TypeError
        If `value` is neither.
    """

    def __init__(
        self, capture: CaptureSettings, value: Any, earlier: "Preparation | None" = None
    ) -> None:
        before = {} if earlier is None else earlier.before
        default = before.get("roll_packets", capture.roll_packets.get())
        try:
            self.trigger = CaptureTrigger.of(value, packets_per_file=default)
        except (CaptureError, TypeError, ValueError) as error:
            raise type(error)(f"{capture.name}: {error}") from None
        require_preparable(capture)
        settings = self.trigger.settings()
        now = {name: getattr(capture, name).get() for name in settings}
        try:
            put(capture, settings)
            capture.start_flow_id()
        except (CaptureError, TypeError, ValueError):
            put(capture, now)
            raise
        self.before: Mapping[str, Any] = before or now
        """Settings before it was prepared."""

    def require(self, capture: CaptureSettings, files: int = 0) -> None:
        """Raise `CaptureError` if a setting has changed since, or the number of files differs."""
        require_preparable(capture)
        if files and self.trigger.number_of_files != files:
            raise CaptureError(
                f"{capture.name} is prepared for {self.trigger.number_of_files} files, and a "
                f"reading has one. Prepare it with number_of_files={files}."
            )
        for name, value in self.trigger.settings().items():
            signal = getattr(capture, name)
            if signal.get() != value:
                raise CaptureError(
                    f"{signal.name} is {signal.get()!r} and was prepared as {value!r}. Prepare "
                    "again, and leave it."
                )


def put(capture: CaptureSettings, settings: Mapping[str, Any]) -> None:
    """Set settings by attribute."""
    for name, value in settings.items():
        getattr(capture, name).put(value)


def require_preparable(capture: CaptureSettings) -> None:
    """Raise `CaptureError` if a setting does not permit files of equal numbers of packets."""
    queues = capture.selected_queues
    if len(queues) > 1:
        raise CaptureError(
            f"{capture.name}: {len(queues)} queues cannot have an exact number of packets in "
            "each file. Prepare a capture for each, daq.<port>.rx.<queue>.capture; they can "
            "share a stream."
        )
    if capture.on_error.get() == "resume":
        raise CaptureError(
            f"{capture.on_error.name} is 'resume': after an error a file is not full. Use 'stop'."
        )
    if capture.reductions:
        raise CaptureError(
            f"{capture.name}: reductions are events, and a prepared capture has none. Set "
            "reductions = {}, or set num_packets and roll_packets in place of prepare()."
        )


def _count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; accepted is an integer, 1 or more.")
    if number < 1:
        raise ValueError(f"{name} is {number}; accepted is 1 or more.")
    return number


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool | str | bytes):
        raise TypeError(f"{name} is {value!r}; accepted is a time in s.")
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} is {value!r}; accepted is a time in s.") from None
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{name} is {seconds:g} s; accepted is 0 or more.")
    return seconds
