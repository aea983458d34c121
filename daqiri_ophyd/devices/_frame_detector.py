"""Frame detector: the frames of a reorder plan, in step scans and on the fly."""

import logging
from collections.abc import Iterator
from typing import Any

from daqiri_ophyd.documents import StreamAsset

from ._frame_rows import FrameRows
from ._outcome import CaptureError
from ._signals import DataKeys, Readings
from ._status import EngineStatus, StageStatus

__all__ = ["FrameDetector"]

_log = logging.getLogger(__name__)


class FrameDetector(FrameRows):
    """Records the frames of a reorder plan to HDF5 files, in step scans and on the fly.

    ======================= ======================================================================
    hook                    what happens
    ======================= ======================================================================
    ``stage``               opens the engine; files of this run go to a new directory
    ``prepare``             sets the number of frames of each fly scan, until ``unstage``
    ``trigger`` (step scan) records the next `num_frames` frames that begin: one row
    ``kickoff`` (fly scan)  starts recording; each frame is a row
    ``complete``            done when `num_frames` or `acquire_time` is reached; without either,
                            stops recording after `linger`
    ``collect``             the rows that are in files so far
    ``pause``, ``resume``   pause the whole engine (`Daq.pause`)
    ``stop``, ``unstage``   stop recording and complete the file
    ======================= ======================================================================

    The frames of a reading have the shape of the plan's ``frame``, with a leading dimension of
    `num_frames` if that is more than 1. Each row also has the arrival time of its frames, the
    number of their batch, and their missing packets: ``<name>_timestamp``, ``<name>_batch``,
    ``<name>_missing``. All of them are datasets of one file, which any HDF5 reader can open.

    Readings of one stream are in one file, or in several, with `roll_frames`, `roll_bytes` or
    `roll_seconds`. With `start_flow`, an acquisition begins with the first packet of that flow.
    Row 0 of an acquisition is its first frame that comes; with `first_number`, the frame with this
    number, for a detector that counts from there in each acquisition.

    If frames are lost, because no packet of them came, no buffer was free or they could not be
    written, or if packets belong to no frame (``malformed``), `on_drop` selects the result: the
    reading fails (``fail``), its row is marked in the column ``lossy`` (``flag``), or the loss is
    ignored (``ignore``). Row i is image i: a frame that did not come is a row of the plan's fill
    value with 0 packets. In a fly scan, it is marked, and so is the next row; a loss after the last
    row appears only in `dropped`. A frame with missing packets is a frame, unless
    `require_complete` is set.

    `lost_before_engine` counts the packets that the host lost before the engine, of the port's
    whole network interface (`daqiri_ophyd.engine.PortCounters`). `on_drop` judges them if packets
    of frames are missing as well.

    Parameters are those of `FrameSettings`.
    """

    # --- Readings

    def describe(self) -> DataKeys:
        """Return the data keys of a step scan: counters, and the frames.

        The RunEngine calls it at the first reading of each stream: later rows are in a new file.
        """
        stream = self._stream or self._new_stream()
        if self._stream is not None:
            self._begin_stream()
        return {**self._counter_keys(), **stream.describe(self._per_row)}

    def describe_collect(self) -> DataKeys:
        """Return the data keys of a fly scan: the frames."""
        return (self._stream or self._new_stream()).describe(flown=True)

    def read(self) -> Readings:
        """Return the counters of the latest reading."""
        reading = super().read()
        if self.on_drop.get() == "flag":
            reading.update(self.lossy.read())
        return reading

    def get_index(self) -> int:
        """Return the number of rows of fly scans since ``stage``, or since ``prepare``."""
        return 0 if self._stream is None else self._stream.index

    def collect_asset_docs(self, index: int | None = None) -> Iterator[StreamAsset]:
        """Yield the documents of new rows.

        Parameters
        ----------
        index : int, optional
            For a fly scan: yield rows up to this `get_index`. Default: all rows.

        Raises
        ------
        FailedStatus
            If a fly scan failed and `complete`, whose status would report it, was not called.
        """
        self._raise_failure()
        if self._stream is not None:
            yield from self._stream.collect_asset_docs(index)

    # --- Step and fly scans

    def stage(self) -> list[object] | StageStatus:
        """Open the engine if it is closed, and start a new set of files.

        Returns a status if the engine is opened on a thread; see `Daq.stage_part`.
        """
        return self.daq.stage_part(self, self._stage)

    def _stage(self) -> list[object]:
        staged: list[object] = super().stage()
        self._place = None
        self._number = self._next_number = 0
        self._failure = self._status = self._late = self._torn = None
        self._flight = None
        self._streams.clear()
        self._fresh = False
        self._template = self.path_template()
        # After `stage_sigs` have been set. The device may be staged without being used.
        self._stream = self._new_stream() if self.has_form else None
        return staged

    def unstage(self) -> list[object]:
        """Stop recording; the engine stays open.

        Raises
        ------
        CaptureError
            If rows of a completed fly scan are in no document, or a file could not be completed or
            was removed. Rows in no document are only logged if the fly scan failed, or if they
            belong to readings that were never read.
        """
        with self._state:
            status = self._status
            lost = self._flown and self._completing and not self._held
            lost = lost and (status is None or not status.done or status.success)
        try:
            self.stop(success=True)
            self._cut_torn()
        finally:
            unstaged: list[object] = super().unstage()
        stream, self._stream = self._stream, None
        self._files = [] if stream is None else stream.paths
        missing = [] if stream is None else stream.uncollected
        error, self._late = self._late, None
        if missing:
            text = f"{self.name}: rows of {missing[0]} are in no document"
            if lost and error is None:
                error = CaptureError(
                    f"{text}. Collect until the status of complete() is done, or use the plan "
                    "daqiri_ophyd.plans.capture_during."
                )
            else:
                _log.warning(text)
        if error is not None:
            self.raise_at_end(error)
        return unstaged

    def trigger(self) -> EngineStatus:
        """Record the frames of one reading.

        Raises
        ------
        CaptureError
            If the device is not staged, `num_frames` is 0, a setting is for fly scans only, or no
            file can be created; or if the file of earlier readings was removed or could not be
            written.
        """
        stream = self._begun()
        late, self._late = self._late, None
        if late is not None:
            raise late
        if not self.num_frames.get():
            raise CaptureError(f"{self.name}: a reading needs frames. Set num_frames to 1 or more.")
        if self.acquire_time.get():
            raise CaptureError(
                f"{self.acquire_time.name} is {self.acquire_time.get():g}, which is for fly scans; "
                "a reading has num_frames frames. Set it to 0."
            )
        if self.on_error.get() != "stop":
            raise CaptureError(
                f"{self.on_error.name} is {self.on_error.get()!r}, which is for fly scans. Set it "
                "to 'stop': a reading that cannot be written fails."
            )
        if self._acquisition is not None and self._flown:
            raise CaptureError(f"{self.name}: a fly scan is running; complete it first.")
        self.daq.stop_interrupted()
        # After a pause the RunEngine triggers the interrupted reading again.
        with self._state:
            if stream.uncollected and not self._flown:
                _log.warning("%s: a row was not read; it is in no document", self.name)
            interrupted = self._take_back()
        if interrupted is not None:
            interrupted.finish()
        self._ready_file()
        return self._acquire(self._per_row, flown=False)

    def prepare(self, value: Any) -> EngineStatus:
        """Set the number of frames of each fly scan, until ``unstage`` or the next ``prepare``.

        Parameters
        ----------
        value : int or TriggerInfo
            Number of frames, or a ``TriggerInfo`` of ophyd-async with it as `number_of_events`.

        Raises
        ------
        CaptureError
            If the device is not staged or is recording, rows are not collected yet, or a
            ``TriggerInfo`` requests something that the device cannot do.
        TypeError
            If `value` is neither.
        """
        stream = self._begun()
        self._require_idle()
        if missing := stream.uncollected:
            raise CaptureError(
                f"{self.name}: rows of {missing[0]} are in no document yet; collect them before "
                "prepare()."
            )
        self._flight = _number_of_frames(self.name, value)
        stream.restart_index()
        return self._done("preparing")

    def kickoff(self) -> EngineStatus:
        """Start recording; each frame is a row.

        Raises
        ------
        CaptureError
            If the device is not staged or is already recording, or no file can be created.
        """
        self._begun()
        self._require_idle()
        self._close()
        self._begin_files()
        wanted = self.num_frames.get() if self._flight is None else self._flight
        self._open(flown=True)
        # No timeout before `complete`: no plan waits for frames yet.
        self._acquire(wanted, flown=True).pause_timeout()
        return self._done("starting to record frames")

    def complete(self) -> EngineStatus:
        """Return the status of the fly scan; one without a limit stops after `linger`."""
        with self._state:
            status, first = self._status, not self._completing
            if status is None or not self._flown:
                raise CaptureError(f"{self.name}: no fly scan to complete; kick it off first.")
            self._completing = True
            acquisition, recorder = self._acquisition, self._recorder
            if first:
                status.resume_timeout()
            if first and acquisition is not None and recorder is not None and not self.limited:
                recorder.end_in(self.linger.get())
        return status

    @property
    def prepared(self) -> int | None:
        """Frames of each fly scan, as set by `prepare`; None: not prepared."""
        return self._flight

    @property
    def limited(self) -> bool:
        """Whether a fly scan ends by itself: it is prepared, or has a limit."""
        return self._flight is not None or super().limited

    async def pause(self) -> None:
        """Pause the engine; see `Daq.pause`."""
        await self.daq.pause()

    def resume(self) -> None:
        """Resume the engine; see `Daq.resume`."""
        self.daq.resume()

    # --- Implementation

    def _require_idle(self) -> None:
        if self._acquisition is not None:
            raise CaptureError(f"{self.name}: frames are being recorded; complete that first.")

    def _done(self, action: str) -> EngineStatus:
        status = EngineStatus(self, action=action, timeout=self.timeout.get())
        status.finish()
        return status


def _number_of_frames(device: str, value: Any) -> int:
    """Return the number of frames of a fly scan from its description."""
    number = getattr(value, "number_of_events", value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(
            f"{device} cannot be prepared with {value!r}; accepted are a number of frames, and a "
            "TriggerInfo of ophyd-async with one number_of_events."
        )
    if number < 1:
        raise ValueError(f"{device}: {number} frames; accepted is 1 or more.")
    if value is number:
        return number
    trigger = getattr(value, "trigger", None)
    if getattr(trigger, "name", "INTERNAL") != "INTERNAL":
        raise CaptureError(
            f"{device}: trigger is {trigger}; accepted is INTERNAL. To begin with a packet, set "
            "start_flow to the flow that it matches."
        )
    for name in ("exposures_per_event", "exposures_per_collection", "collections_per_event"):
        if (found := getattr(value, name, 1)) != 1:
            raise CaptureError(f"{device}: {name} is {found}; accepted is 1: each frame is a row.")
    return number
