"""Recording of a frame detector: from settings to files, rows and a status."""

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ophyd.ophydobj import Kind

from daqiri_ophyd.documents import FrameStream, keep_frames
from daqiri_ophyd.engine import (
    DaqiriError,
    InvalidParameterError,
    RecordedFile,
    RecorderSnapshot,
)
from daqiri_ophyd.engine import ReorderPlan as EnginePlan

from ._frame_outcome import Acquisition
from ._frame_settings import FrameSettings
from ._losses import PortLossWatch
from ._outcome import CaptureError, CaptureStoppedError
from ._paths import PathInfo, PathTemplate, make_directory
from ._recording import Recording
from ._signals import DataKeys, EngineSignal, reading
from ._status import EngineStatus
from ._ticker import default_ticker

__all__ = ["RecordingFrames"]

_log = logging.getLogger(__name__)

_RECORD_SETTINGS = ("compression", "compression_threads", "writer", "durable")


class _FrameFiles(Recording):
    """Also reports progress at each event, which means that new frames can be read."""

    def _on_event(self) -> None:
        with self._lock:
            super()._on_event()
            if not self._ended:
                self._on_progress(self.snapshot())


class RecordingFrames(FrameSettings):
    """Records frames to files; Bluesky's hooks are in `FrameDetector`.

    All readings of a stage share one recorder and one file that grows. The recorder accepts frames
    only on request. A fly scan has its own recorder.

    Parameters are those of `FrameSettings`.
    """

    frames = reading(0, "frames", kind=Kind.normal)
    dropped = reading(0, "frames", kind=Kind.hinted)
    missing_packets = reading(0, "packets", kind=Kind.hinted)
    lost_before_engine = reading(0, "packets", kind=Kind.normal)
    lossy = reading(False, kind=Kind.omitted)

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._state = threading.RLock()  # guards the attributes below
        self._recorder: Any = None  # Recorder or None
        self._recording: Recording | None = None
        self._acquisition: Acquisition | None = None
        self._held = self._flown = False
        self._ending = ""
        self._template: PathTemplate | None = None
        self._place: Any = None  # PathInfo or None
        self._run: str | None = None
        self._files: list[Path] = []  # of the last stage
        self._number = self._next_number = 0  # of this file, of the next recorder's first
        self._seen = 0  # complete files of the recorder
        self._late: CaptureError | None = None  # error of a recorder while no status was open
        self._torn: tuple[Path, int] | None = None  # file that ends in a reading; frames before it
        super().__init__(prefix, **kwargs)
        self._stream: FrameStream | None = None

    # --- For the device of the engine

    @property
    def is_recording(self) -> bool:
        """Whether frames are being recorded and recording is not paused."""
        with self._state:
            return self._acquisition is not None and not self._held

    def pause_recording(self) -> None:
        """Discard frames that arrive from now on; the file stays valid."""
        with self._state:
            if self._acquisition is None or self._recorder is None or self._held:
                return
            self._held = True
            self._recorder.pause()
            self._acquisition.status.pause_timeout()

    def resume_recording(self) -> None:
        """Continue recording after `pause_recording`."""
        with self._state:
            if self._acquisition is None or self._recorder is None or not self._held:
                return
            self._held = False
            self._recorder.resume()
            if self._completing:
                self._acquisition.status.resume_timeout()

    def refuse_change(self, signal: EngineSignal) -> None:
        """Raise if a setting is changed that the run already depends on."""
        if self._acquisition is not None:
            raise CaptureError(f"{signal.name} cannot be changed while frames are recorded.")
        super().refuse_change(signal)

    def stop(self, *, success: bool = False) -> None:
        """Stop recording; the file has whole rows."""
        with self._state:
            recording = self._recording
            if recording is not None and not self._ending:
                self._ending = "finish" if success else "fail"
            acquisition = self._acquisition
            status = None if acquisition is None or self._flown else acquisition.status
            try:
                self._take_back()
            except CaptureError as error:
                # The metadata counts the rows of the file, too.
                _log.warning("%s", error)
        if recording is not None:
            recording.stop()
        if status is not None and success:
            status.finish()
        elif status is not None:
            status.fail(CaptureStoppedError("stopped before its frames came"))

    @property
    def files(self) -> list[Path]:
        """Files with rows since `stage`, in their order."""
        return self._files if self._stream is None else self._stream.paths

    @property
    def uncollected(self) -> list[Path]:
        """Files with rows that are in no document yet."""
        return [] if self._stream is None else self._stream.uncollected

    @property
    def progress(self) -> RecorderSnapshot | None:
        """Progress of the current recorder; None if there is none."""
        with self._state:
            return None if self._recorder is None else self._recorder.snapshot()

    # --- Implementation

    @property
    def _per_row(self) -> int:
        """Frames of a reading."""
        return max(1, self.num_frames.get())

    def _counter_keys(self) -> DataKeys:
        keys = super().describe()
        if self.on_drop.get() == "flag":
            keys.update(self.lossy.describe())
        return keys

    def _new_stream(self) -> FrameStream:
        shape, dtype = self.form
        source = f"daqiri://{self.port_name}/reorder/{self.member_name}"
        return FrameStream(self.name, source, shape, dtype, lossy=self.on_drop.get() == "flag")

    def _begun(self) -> FrameStream:
        self.require_staged()
        if self._stream is None:
            self._stream = self._new_stream()
        return self._stream

    def _engine_plan(self) -> EnginePlan:
        return self.daq.port(self.port_name).reorder[self.member_name]

    def _begin_files(self) -> tuple[PathInfo, bool]:
        """Return where to write, determined once for each stage and run, and whether it is new."""
        template = self.require_directory(self._template)
        run = None if self.daq.start_document is None else self.daq.start_document["uid"]
        if self._place is not None and run == self._run:
            return self._place, False
        place = self.path_info(template)
        is_new = place != self._place
        if is_new:
            make_directory(Path(place.directory_path), [place.filename], self.name)
            self._next_number = 0
        self._place, self._run = place, run
        return place, is_new

    def _open(self, *, flown: bool) -> None:
        """Start a recorder, which waits."""
        place, stream, number = self._place, self._begun(), self._next_number
        options = {name: getattr(self, name).get() for name in _RECORD_SETTINGS}
        if flown:
            for name in ("on_error", "roll_frames", "roll_bytes", "roll_seconds"):
                options[name] = getattr(self, name).get()
        recorder = self._engine_plan().record(
            Path(place.directory_path),
            place.filename,
            first_number=number,
            start_flow=self.start_flow_id(),
            held=True,
            **options,
        )
        with self._state:
            self._number, self._seen = number, 0
            self._ending = ""
            self._flown = flown
            self._recorder = recorder
            stream.begin(
                self._path(number),
                uri=place.directory_uri,
                frames_per_row=1 if flown else self._per_row,
                flown=flown,
            )
        recording = _FrameFiles(
            [recorder],
            resumes=flown and self.on_error.get() == "resume",
            on_files=self._on_files,
            on_progress=self._on_progress,
            on_end=self._on_end,
        )
        with self._state:
            if self._recorder is recorder:  # it has not ended meanwhile
                self._recording = recording

    def _path(self, number: int) -> Path:
        return Path(self._place.directory_path) / f"{self._place.filename}_{number:06d}.h5"

    def _roll(self) -> None:
        """Continue with a new file for readings."""
        self._recorder.roll()
        with self._state:
            self._follow_roll()

    def _follow_roll(self) -> None:
        self._number += 1
        self._begun().begin(
            self._path(self._number), uri=self._place.directory_uri, frames_per_row=self._per_row
        )

    def _take_back(self) -> EngineStatus | None:
        """Discard frames of readings that are in no document; return the status of an open one.

        The caller ends that status without the lock: ending it stops its device.

        Raises
        ------
        CaptureError
            If the recorder has ended or cannot write, so the file keeps frames of no reading.
        """
        acquisition, recorder, stream = self._acquisition, self._recorder, self._stream
        if self._flown or stream is None or (acquisition is None and not stream.uncollected):
            return None
        self._acquisition = None
        self._held = False
        stream.discard()
        if acquisition is not None and recorder is None:
            return acquisition.status
        try:
            if recorder is None:
                raise CaptureError("the recorder has ended")
            recorder.pause()
            recorder.rewind(stream.documented * self._per_row)
        except (CaptureError, DaqiriError) as error:
            self._note_torn()
            raise CaptureError(
                f"{self.name}: {stream.current} has frames of a reading that is in no document "
                f"({error}). Stage the device again: its readings go to another file."
            ) from error
        return None if acquisition is None else acquisition.status

    def _acquire(self, wanted: int, *, flown: bool) -> EngineStatus:
        recorder, plan = self._recorder, self._engine_plan()
        with self._state:
            before = recorder.snapshot()
            before_engine = PortLossWatch(self.daq.port(self.port_name))
            recorder.resume()
            first = self.first_number.get()
            try:
                lost = recorder.acquire(wanted, first_number=None if first < 0 else first)
            except InvalidParameterError as error:
                recorder.pause()
                raise CaptureError(f"{self.first_number.name}: {error}") from error
            status = EngineStatus(
                self,
                action="recording frames",
                timeout=self.timeout.get() + (self.acquire_time.get() if flown else 0),
            )
            self._failure = None
            self._completing, self._held = not flown, False
            self._status = status
            self._acquisition = Acquisition(
                wanted, flown, status, plan, before, lost, plan.counters(), before_engine
            )
            if flown and self.acquire_time.get():
                recorder.end_in(self.acquire_time.get())
        return status

    # --- On the thread of the event pump

    def _on_files(self, files: Sequence[RecordedFile]) -> None:
        """Register a complete file; the files of a fly scan follow each other."""
        with self._state:
            self._seen += 1
            if self._flown:
                self._grow(files[0].path, files[0].frames)

    def _grow(self, path: Path, frames: int) -> None:
        """Register frames in a file, whose number may differ from the expected one."""
        self._number = max(self._number, int(path.stem.rpartition("_")[2]))
        if not frames:
            return
        stream, uri = self._begun(), self._place.directory_uri
        if path != stream.current and not stream.relocate(path, uri=uri):
            per_row = 1 if self._flown else self._per_row
            stream.begin(path, uri=uri, frames_per_row=per_row, flown=self._flown)
        stream.grow(frames)

    def _on_progress(self, _: RecorderSnapshot) -> None:
        """Report progress; finish a reading that is complete."""
        with self._state:
            acquisition, recorder, recording = self._acquisition, self._recorder, self._recording
            if acquisition is None or recorder is None:
                return
            snapshot = recorder.snapshot()  # of this acquisition
            if self._flown and snapshot.files == self._seen and snapshot.path is not None:
                self._grow(snapshot.path, snapshot.flushed)
            complete = acquisition.wanted and snapshot.acquired >= acquisition.wanted
            if complete and not acquisition.flown:
                self._acquisition = None
                if snapshot.path is not None:
                    self._grow(snapshot.path, snapshot.flushed)
        acquisition.report(snapshot, self.start_flow.get())
        failure = acquisition.loss(self, snapshot, last=bool(complete))
        if failure is not None:
            self._fail(failure)
        if complete and acquisition.flown and recording is not None:
            self._ending = self._ending or "complete"
            recording.stop()
        elif complete:
            self._update(acquisition, snapshot)
            acquisition.status.finish()
        else:
            acquisition.status.check(partial(acquisition.cause, snapshot))

    def _on_end(self, snapshot: RecorderSnapshot) -> None:
        """Finish or fail the open status when the recorder has ended."""
        with self._state:
            acquisition, ending = self._acquisition, self._ending
            self._acquisition = self._recorder = self._recording = None
            self._next_number = self._number + 1
            if acquisition is not None and not self._flown:
                self._note_torn()
            # A status that failed by lost frames has told it, if progress was seen before the end.
            if acquisition is None and snapshot.error and snapshot.error not in str(self._failure):
                self._late = CaptureError(f"{self.name}: {snapshot.error}")
        if acquisition is None:
            return
        progress = acquisition.report(snapshot, self.start_flow.get())
        self._update(acquisition, snapshot)
        failure = acquisition.loss(self, snapshot, last=True)
        if snapshot.failing or snapshot.unreported or (snapshot.error and not snapshot.frames):
            self._fail(CaptureError(snapshot.error))
        elif failure is not None:
            self._fail(failure)
        elif ending == "fail":
            self._fail(CaptureStoppedError(f"stopped after {progress}"))
        elif not ending and not snapshot.limit_reached:
            self._fail(CaptureStoppedError(f"the engine was closed after {progress}"))
        elif acquisition.flown and acquisition.placed_none():
            self._fail(
                CaptureError(
                    f"{self.name} has no frames: packets of its plan belong to none "
                    f"({acquisition.unplaced()})"
                )
            )
        elif acquisition.flown and self._is_short(acquisition, snapshot):
            self._fail(CaptureError(f"{self.name} has {progress}, and is prepared for all of them"))
        elif acquisition.flown:
            self._finish_collected(acquisition.status)
        else:
            acquisition.status.finish()

    def _note_torn(self) -> None:
        """Note that the latest file has frames of no reading after its rows."""
        stream = self._stream
        if stream is not None and stream.current is not None:
            self._torn = (stream.current, stream.whole)

    def _cut_torn(self) -> None:
        """Remove an incomplete reading from a file: readers treat its rows as one stream."""
        torn, self._torn = self._torn, None
        if torn is None or not torn[0].exists():
            return
        try:
            keep_frames(*torn, reason="they are of no reading")
        except (DaqiriError, OSError, ValueError) as error:
            _log.warning("%s: %s has frames of no reading: %s", self.name, torn[0], error)

    def _is_short(self, acquisition: Acquisition, snapshot: RecorderSnapshot) -> bool:
        """Whether a prepared fly scan has fewer frames than it is prepared for."""
        return False

    def _finish_collected(self, status: EngineStatus) -> None:
        """Finish a fly scan once its rows, except those of one file, are in documents.

        After that, plans collect once more, and get the rows of one file.
        """
        stream = self._begun()

        def finish() -> None:
            files = len(stream.uncollected)
            if files <= 1 or not self._completing or status.done:
                default_ticker().remove(finish)
                status.finish()
                return
            status.report(-files, None, "files", f"rows of {files} files are not collected")
            status.check()

        default_ticker().add(finish)
        finish()

    def _update(self, acquisition: Acquisition, snapshot: RecorderSnapshot) -> None:
        """Update the signals with the counters of an acquisition."""
        frames, now = snapshot.frames - acquisition.before.frames, time.time()
        dropped, missing = acquisition.lost(snapshot), acquisition.missing(snapshot)
        before_engine = acquisition.lost_before_engine(last=True)
        self.frames.update(frames, now)
        self.missing_packets.update(missing, now)
        self.lost_before_engine.update(before_engine, now)
        self.dropped.update(dropped, now)
        lossy = dropped > 0 or acquisition.malformed() > 0 or (missing > 0 and before_engine > 0)
        self.lossy.update(lossy, now)
