"""Description of a prepared capture: number of files, packets in a file, start."""

import math
import operator
from dataclasses import dataclass
from typing import Any, Self

from ._outcome import CaptureError

__all__ = ["CaptureTrigger"]

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
