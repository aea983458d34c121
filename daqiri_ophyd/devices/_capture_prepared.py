"""Preparation of a capture: its settings for a number of files, until ``unstage``."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daqiri_ophyd.engine import RecordedFile

from ._capture_recording import RecordingCapture
from ._capture_trigger import CaptureTrigger
from ._outcome import CaptureError
from ._status import EngineStatus

__all__ = ["PreparedCapture"]


class PreparedCapture(RecordingCapture):
    """A capture that can be prepared to write files with equal numbers of packets.

    Parameters are those of `CaptureSettings`.
    """

    get_index: Callable[[], int]
    # Latest failure of any prepared capture: its run and its time (`time.monotonic`).
    _latest_failure: tuple[str | None, float] = (None, -1.0)

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._unprepared: dict[str, Any] = {}  # settings before `prepare`
        self._kicked_off = 0.0
        self._last_index: int | None = None  # index when the fly scan failed; None: it has not
        self._declared_prepared: bool | None = None  # at stream declaration; None: none yet
        super().__init__(prefix, **kwargs)

    @property
    def prepared(self) -> bool:
        """Whether `prepare` was called since the last ``unstage``."""
        return self._trigger is not None

    def prepare(self, value: Any) -> EngineStatus:
        """Prepare for files of equal packet counts, until ``unstage`` or the next ``prepare``.

        Parameters
        ----------
        value : CaptureTrigger
            Number of files and their packets. A ``TriggerInfo`` of ophyd-async is accepted too,
            with `roll_packets` as the packets in a file.

        Raises
        ------
        CaptureError
            If the device is not staged or is recording, files are not collected yet, or a setting
            does not permit it: several queues, `on_error` ``resume``, reductions, or a flow that
            does not lead to the queue.
        TypeError
            If `value` is neither.
        """
        self.require_staged()
        if self._recording is not None:
            raise CaptureError(f"{self.name}: a capture is running; complete it first.")
        if missing := self._stream.uncollected:
            raise CaptureError(
                f"{self.name}: {len(missing)} files are in no document yet, such as {missing[0]}; "
                "collect them before prepare()."
            )
        default = self._unprepared.get("roll_packets", self.roll_packets.get())
        try:
            trigger = CaptureTrigger.of(value, packets_per_file=default)
        except (CaptureError, TypeError, ValueError) as error:
            raise type(error)(f"{self.name}: {error}") from None
        self._require_preparable()
        before = {name: getattr(self, name).get() for name in trigger.settings()}
        try:
            self._put(trigger.settings())
            self.start_flow_id()
        except (CaptureError, TypeError, ValueError):
            self._put(before)
            raise
        self._unprepared = self._unprepared or before
        self._trigger = trigger
        self._status = self._last_index = None
        fields = {getattr(self, field).name: field for field in self.component_names}
        self._stream.share({name: fields[name] for name in self._stream.counters})
        # The RunEngine treats a device that has this method as one that can share a stream, and
        # collects no events from it.
        self.get_index = self._get_index
        status = EngineStatus(self, action="preparing", timeout=self.timeout.get())
        status.finish()
        return status

    def _get_index(self) -> int:
        """Return the number of files completed since ``prepare``, until a fly scan fails.

        Files that a failed fly scan completes while it ends are not counted: they are in no row of
        the devices that share the stream.
        """
        index = self._stream.index
        return index if self._last_index is None else min(index, self._last_index)

    def _require_preparable(self) -> None:
        queues = self.selected_queues
        if len(queues) > 1:
            raise CaptureError(
                f"{self.name}: {len(queues)} queues cannot have an exact number of packets in "
                "each file. Prepare a capture for each, daq.<port>.rx.<queue>.capture; they can "
                "share a "
                "stream."
            )
        if self.on_error.get() == "resume":
            raise CaptureError(
                f"{self.on_error.name} is 'resume': after an error a file is not full. Use 'stop'."
            )
        if self._reductions:
            raise CaptureError(
                f"{self.name}: reductions are events, and a prepared capture has none. Set "
                "reductions = {}, or set num_packets and roll_packets in place of prepare()."
            )

    def _require_as_prepared(self, files: int = 0) -> None:
        """Raise if a setting has changed since `prepare`, or the number of files differs."""
        if self._trigger is None:
            return
        self._require_preparable()
        if not files and self._declared_prepared is False:
            raise CaptureError(
                f"{self.name}: its stream was declared before prepare(), which changes what is "
                "in the stream. Declare it after prepare()."
            )
        status = self._status if self._rolling and not files else None
        if status is not None and status.done and not status.success:
            # Its next files would share rows with earlier files of the other devices in the stream.
            raise CaptureError(
                f"{self.name}: its latest flight failed. Prepare it, and what shares its stream, "
                "again."
            )
        if files and self._trigger.number_of_files != files:
            raise CaptureError(
                f"{self.name} is prepared for {self._trigger.number_of_files} files, and a reading "
                f"has one. Prepare it with number_of_files={files}."
            )
        for name, value in self._trigger.settings().items():
            signal = getattr(self, name)
            if signal.get() != value:
                raise CaptureError(
                    f"{signal.name} is {signal.get()!r} and was prepared as {value!r}. Prepare "
                    "again, and leave it."
                )

    def _put(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            getattr(self, name).put(value)

    def _start(self, *, rolling: bool) -> EngineStatus:
        self._kicked_off = time.monotonic()
        return super()._start(rolling=rolling)

    def _append(self, files: Sequence[RecordedFile]) -> None:
        if self._status is not None and self._status.failed and self._last_index is None:
            self._last_index = self._stream.index
        super()._append(files)

    def _fail(self, error: Exception) -> None:
        if self._trigger is not None:
            PreparedCapture._latest_failure = (self._run, time.monotonic())
        super()._fail(error)

    def _another_failed(self) -> bool:
        """Return whether another capture of the run, which may share the stream, has failed."""
        run, when = self._latest_failure
        return self._trigger is not None and run == self._run and when > self._kicked_off

    def _end_preparation(self) -> None:
        """Restore the settings from before `prepare`."""
        before, self._unprepared, self._trigger = self._unprepared, {}, None
        self.__dict__.pop("get_index", None)
        self._put(before)
