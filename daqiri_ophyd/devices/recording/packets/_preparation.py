"""Preparation of a capture: number of files, packets in a file, start."""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from .._errors import CaptureError
from .._trigger_info import Triggers
from ._settings import CaptureSettings

__all__ = ["CaptureTrigger", "Preparation", "put"]

_MOST_PACKETS = 2**63 - 1  # documents have integers of 64 bits


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
    external : bool
        Whether the source is triggered, such as by a PandA: recording begins when the capture is
        prepared, so that no packet is lost if the source of triggers is kicked off first.
    livetime : float
        Time of an exposure, s, in which the source may send nothing: this is added to the setting
        `timeout`.

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
    external: bool = False
    livetime: float = 0.0

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
        if not isinstance(self.external, bool):
            raise TypeError(f"external is {self.external!r}; accepted are True and False.")
        for name in ("deadtime", "livetime"):
            object.__setattr__(self, name, _seconds(name, getattr(self, name)))
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
        triggers = Triggers.of(value, what="a capture", row="file")
        if not packets_per_file:
            raise CaptureError(
                "TriggerInfo has no number of packets per file: set roll_packets before, "
                "or use CaptureTrigger(packets_per_file=...)."
            )
        if not triggers.events:
            raise CaptureError(
                "number_of_events is 0; accepted is 1 or more: each kickoff writes this many files."
            )
        external = triggers.external
        return cls(
            number_of_files=triggers.events,
            packets_per_file=packets_per_file,
            external=external,
            # The time between two triggers says little about when their packets arrive.
            livetime=triggers.livetime + triggers.deadtime if external else 0.0,
            deadtime=0.0 if external else triggers.deadtime,
            timeout=triggers.timeout,
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
