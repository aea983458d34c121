"""Frame detector: the frames of a reorder plan, in step scans and on the fly."""

import logging
import math
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from event_model.documents import DataKey
from ophyd.ophydobj import Kind

from daqiri_ophyd.documents import FrameStream, StreamAsset
from daqiri_ophyd.engine import FrameReductions, InvalidParameterError, RecorderSnapshot
from daqiri_ophyd.engine import ReorderPlan as EnginePlan

from ...parts._run_engine import calling_task
from ...parts._signals import DataKeys, Readings, reading
from ...parts._status import EngineStatus
from ...parts._ticker import default_ticker
from .._errors import CaptureError, CaptureStoppedError
from .._losses import PortLossWatch
from .._paths import PathInfo, make_directory
from .._recorded import Recorded
from .._recording import Recording
from .._trigger_info import Triggers
from .._work import Work
from ._files import DetectorFiles, FrameRecording
from ._masters import ENDINGS, Masters, Recordings
from ._outcome import Acquisition
from ._reading_streams import ReadingStreams
from ._reorder import plan_label
from ._settings import FrameSettings, requested_flight

__all__ = ["FrameDetector"]

_log = logging.getLogger(__name__)

_RECORD_SETTINGS = ("compression", "compression_threads", "writer", "durable")


class FrameDetector(FrameSettings, Recorded):
    """Records the frames of a reorder plan to HDF5 files, in step scans and on the fly.

    ======================= ======================================================================
    hook                    what happens
    ======================= ======================================================================
    ``stage``               opens the engine and sets the plan's `mode`; files of this run go to a
                            new directory
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
    ``<name>_missing``. So has each of the plan's ``columns``: ``<name>_<column>``. All of them are
    datasets of one file, which any HDF5 reader can open.

    Readings of one stream are in one file, or in several, with `roll_frames`, `roll_bytes` or
    `roll_seconds`. If a run has several streams, that needs
    `daqiri_ophyd.plans.reading_streams_wrapper`; without it, each reading has a file of its own.
    The files of a fly scan are one data source, however many there are. With `start_flow`, an
    acquisition begins with the first packet of that flow.
    Row 0 of an acquisition is its first frame that comes; with `first_number`, the frame with this
    number, for a detector that counts from there in each acquisition.

    If frames are lost, because no packet of them came, no buffer was free or they could not be
    written, or if packets belong to no frame (``malformed``), `on_drop` selects the result: the
    reading fails (``fail``), its row is marked in the column ``lossy`` (``flag``), or the loss is
    ignored (``ignore``). Row i is image i: a frame that did not come is a row of the plan's fill
    value with 0 packets. In a fly scan, it is marked, and so is the next row; a loss after the last
    row appears only in `dropped`. A frame with missing packets is a frame, unless
    `require_complete` is set.

    `reductions` are numbers of each frame, to plot and to scan by: columns of the events of
    readings, as the mean of the frames of a reading, and of the rows of fly scans. All of them are
    datasets of the files, too.

    `lost_before_engine` counts the packets that the host lost before the engine, of the port's
    whole network interface (`daqiri_ophyd.engine.PortCounters`). `on_drop` judges them if packets
    of frames are missing as well.

    Parameters are those of `FrameSettings`.
    """

    frames = reading(0, "frames", kind=Kind.normal)
    dropped = reading(0, "frames", kind=Kind.hinted)
    missing_packets = reading(0, "packets", kind=Kind.hinted)
    lost_before_engine = reading(0, "packets", kind=Kind.normal)

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._flight: Triggers | None = None  # of each fly scan, as prepared
        self._rows: DetectorFiles | None = None  # of this stage
        self._paths: list[Path] = []  # of the last stage
        self._masters: Masters | None = None  # of this stage
        self._master_paths: list[Path] = []  # of the last stage
        self._master_problem = ""
        self._recordings: Recordings = {}  # of the last stage
        self._streams = ReadingStreams()
        self._file_begun = 0.0
        self._told: dict[str, Any] = {}  # what the file reports about its run
        self._reduced = FrameReductions({})  # of the latest recorder
        self._numbers: dict[str, float] = {}  # of the latest reading
        self._flown_keys = False  # whether the latest data keys were those of a fly scan
        super().__init__(prefix, **kwargs)

    # --- Readings

    def describe(self) -> DataKeys:
        """Return the data keys of a step scan: counters, and the frames.

        The RunEngine calls it once for each stream.
        """
        if self._rows is not None and calling_task() is not None:
            self._add_stream(self._rows)
        self._flown_keys = False
        stream = self._new_stream() if self._rows is None else self._rows.stream
        return {**self._counter_keys(), **self._reduced_keys(), **stream.describe(self._per_row)}

    def read(self) -> Readings:
        """Return the counters and the reductions of the latest reading."""
        found = super().read()
        timestamp = self.frames.timestamp
        for name in self.reductions:
            value = self._numbers.get(name, math.nan)
            found[f"{self.name}_{name}"] = {"value": value, "timestamp": timestamp}
        return found

    @property
    def hints(self) -> dict[str, Any]:
        """Columns to plot: the hinted counters, and reductions. Rows of fly scans are no events."""
        if self._flown_keys:
            return {}
        hints = super().hints
        return {**hints, "fields": [*hints.get("fields", ()), *self._reduced_keys()]}

    def _reduced_keys(self) -> DataKeys:
        keys: DataKeys = {}
        for name, reduction in self.reductions.items():
            key: DataKey = {
                "source": f"{self._source}/{name}",
                "dtype": "number",
                "shape": [],
                "dtype_numpy": "<f8",
            }
            if reduction.units:
                key["units"] = reduction.units
            keys[f"{self.name}_{name}"] = key
        return keys

    def describe_collect(self) -> DataKeys:
        """Return the data keys of a fly scan: the frames."""
        self._require_declared()
        self._flown_keys = True
        stream = self._new_stream() if self._rows is None else self._rows.stream
        return stream.describe(flown=True)

    def get_index(self) -> int:
        """Return the number of rows of fly scans since ``stage``, or since ``prepare``."""
        return 0 if self._rows is None else self._rows.stream.index

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
        CaptureError
            If a plan reads it without a new trigger.
        """
        self._raise_failure()
        self._require_row()
        rows = self._rows
        if rows is None:
            return
        if not rows.flown and rows.stream.uncollected:
            self._keep_streams_apart(rows)
        yield from rows.stream.collect_asset_docs(index)

    @property
    def uncollected(self) -> list[Path]:
        """Files with rows that are in no document yet."""
        return [] if self._rows is None else self._rows.stream.uncollected

    @property
    def files(self) -> list[Path]:
        """Files with rows since `stage`, in their order."""
        return self._paths if self._rows is None else self._rows.stream.paths

    @property
    def masters(self) -> list[Path]:
        """Master files of the last stage, once it is unstaged."""
        return self._master_paths

    def take_recordings(self) -> Recordings:
        """Return files of the last stage by stream, once: for a master of several detectors."""
        taken, self._recordings = self._recordings, {}
        return {} if self.master.get() == "never" else taken

    @property
    def progress(self) -> RecorderSnapshot | None:
        """Progress of the current recorder; None if there is none."""
        with self._state:
            recorder = None if self._rows is None else self._rows.recorder
            return None if recorder is None else recorder.snapshot()

    def read_into(self, stream: Hashable) -> None:
        """Note that the latest reading is for this stream; see `plans.reading_streams_wrapper`.

        Parameters
        ----------
        stream : hashable
            The run and the name of the stream.
        """
        self._streams.tell(stream)

    # --- Step and fly scans

    def trigger(self) -> EngineStatus:
        """Record the frames of one reading.

        Raises
        ------
        CaptureError
            If the device is not staged, `num_frames` is 0, a setting is for fly scans only, a fly
            scan is running or has files in no document, or no file can be created; or if the file
            of earlier readings was removed or could not be written.
        """
        rows = self._begun_rows()
        late, rows.late = rows.late, None
        if late is not None:
            raise late
        self._disarm()
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
        self._require_documented()
        self.daq.stop_interrupted()
        # After a pause the RunEngine triggers the interrupted reading again.
        with self._state:
            if rows.stream.uncollected:
                _log.warning("%s: a row was not read; it is in no document", self.name)
            if rows.flown:
                rows.stream.discard()
            interrupted = self._take_back(rows)
        if interrupted is not None:
            interrupted.finish()
        self._ready_file(rows)
        return self._acquire(rows, self._per_row, flown=False)

    def prepare(self, value: Any) -> EngineStatus:
        """Set the number of frames of each fly scan, until ``unstage`` or the next ``prepare``.

        Parameters
        ----------
        value : int or TriggerInfo or None
            Number of frames, or a ``TriggerInfo`` of ophyd-async with it as `number_of_events`; 0:
            no limit. With an external trigger, recording begins now: frames that come before
            ``kickoff`` are rows. None: `num_frames` applies again.

        Raises
        ------
        CaptureError
            If the device is not staged or is recording, rows are not collected yet, or a
            ``TriggerInfo`` requests something that the device cannot do.
        TypeError
            If `value` is neither.
        """
        rows = self._begun_rows()
        self._disarm()
        self._require_idle()
        self._require_told()
        if value is None:
            self._flight = None
            return self._done("preparing")
        if missing := self.uncollected:
            raise CaptureError(
                f"{self.name}: rows of {missing[0]} are in no document yet; collect them before "
                "prepare()."
            )
        self._flight = requested_flight(self.name, value)
        rows.stream.restart_index()
        if self._flight.external:
            self._arm()
        return self._done("preparing")

    @property
    def prepared(self) -> int | None:
        """Frames of each fly scan, as set by `prepare`; None: not prepared."""
        return None if self._flight is None else self._flight.events

    @property
    def limited(self) -> bool:
        """Whether a fly scan ends by itself: it is prepared, or has a limit."""
        if self._flight is None:
            return super().limited
        return self._flight.events > 0 or self.acquire_time.get() > 0

    def stop(self, *, success: bool = False) -> None:
        """Stop recording; the file has whole rows."""
        rows = self._rows
        if rows is None:
            return
        with self._state:
            if self._abandon_stuck(rows):
                if self._work is not None and self._work.running:
                    self._work.running = False
                    self._work.fail(CaptureStoppedError(f"stopped while {self._slow_reduction()}"))
                return
            recording = rows.recording
            if recording is not None:
                recording.end("finish" if success else "fail")
            status = None
            try:
                status = self._take_back(rows)
            except CaptureError as error:
                # The metadata counts the rows of the file, too.
                _log.warning("%s", error)
                status = None if self._work is None or self._work.flown else self._work.status
        if recording is not None:
            recording.stop()
        if status is not None and success:
            status.finish()
        elif status is not None:
            status.fail(CaptureStoppedError("stopped before its frames came"))

    # --- For `Recorded`

    @property
    def _recorders(self) -> Recording | None:
        return None if self._rows is None else self._rows.recording

    def _begin_stage(self) -> None:
        self._flight = None
        self._streams = ReadingStreams()
        self._numbers = {}
        self._master_paths, self._master_problem, self._recordings = [], "", {}
        self._use_mode()
        self._masters = Masters(self)
        # The device may be staged without being used.
        self._rows = DetectorFiles(self.name, self._new_stream()) if self.has_form else None

    def _end_stage(self) -> None:
        if self._rows is not None:
            self._rows.cut_torn()
            self._rows.cut_dropped(last=True)
            self._paths = self._rows.stream.paths
            if self._masters is not None:
                self._recordings = self._rows.stream.recordings
                found = self._masters.write(self._recordings.values())
                self._master_paths, self._master_problem = found
        self._masters = None

    def _leave_out_rows(self) -> None:
        if self._rows is not None:
            with self._state:
                if self._rows.flown:
                    self._rows.stream.discard()
                self._take_back(self._rows)

    def _forget_rows(self) -> CaptureError | None:
        rows, self._rows = self._rows, None
        if rows is not None and rows.late is not None:
            return rows.late
        # A plan that fails tells why; this is in the log.
        has_failed = self._work is not None and self._work.failure is not None
        if not self._master_problem or has_failed:
            return None
        return CaptureError(f"{self.name}: {self._master_problem}")

    def _lost_rows_text(self, files: list[Path]) -> str:
        return (
            f"rows of {files[0]} are in no document. Collect until the status of complete() is "
            "done, or use the plan daqiri_ophyd.plans.capture_during."
        )

    def _start_flight(self) -> EngineStatus:
        rows = self._begun_rows()
        rows.close()
        wanted = self.num_frames.get() if self._flight is None else self._flight.events
        self._open(rows, self._begin_files(rows)[0], flown=True)
        status = self._acquire(rows, wanted, flown=True)
        if not self._armed:
            self._begin_time()
        return status

    def _take_run(self) -> None:
        place, rows = self._begun().place, self._begun_rows()
        self._told = self._new_run_metadata()
        if rows.recorder is not None:  # its last frame has not come yet
            rows.recorder.describe(self._told)
            self._add_run(rows.recorder.files(), self._told)
        if place is not None:
            self._begun().use(place)
        self._begin_time()

    # --- Files

    @property
    def _per_row(self) -> int:
        """Frames of a reading."""
        return max(1, self.num_frames.get())

    def _new_stream(self) -> FrameStream:
        shape, dtype = self.form
        return FrameStream(
            self.name,
            self._source,
            shape,
            dtype,
            columns=self.plan_columns,
            lossy=self.on_drop.get() == "flag",
            reductions={name: reduction.units for name, reduction in self.reductions.items()},
        )

    @property
    def _source(self) -> str:
        port = f"{self.port_name}/" if self.port_name else ""
        return f"daqiri://{port}reorder/{self.member_name}"

    def _begun_rows(self) -> DetectorFiles:
        self.require_staged()
        if self._rows is None:
            self._rows = DetectorFiles(self.name, self._new_stream())
        return self._rows

    def _engine_plan(self) -> EnginePlan:
        return self.daq.engine.reorder_plan(plan_label(self))

    def _use_mode(self) -> EnginePlan:
        """Return the engine's plan, in the mode that is set; an engine begins without one."""
        plan = self._engine_plan()
        if plan.modes:
            plan.set_mode(self.mode.get())
        return plan

    def _begin_files(self, rows: DetectorFiles) -> tuple[PathInfo, bool]:
        """Return where to write, and whether that is new."""
        destination = self._begun()
        place, is_new = destination.find()
        if is_new:
            make_directory(Path(place.directory_path), [place.filename], self.name)
            rows.close()
            rows.next_number = 0
        self._shipping.begin(place, [place.filename], ENDINGS)
        destination.use(place)
        return place, is_new

    def _open(self, rows: DetectorFiles, place: PathInfo, *, flown: bool) -> None:
        """Start a recorder, which waits."""
        options = {name: getattr(self, name).get() for name in _RECORD_SETTINGS}
        if flown:
            for name in ("on_error", "roll_frames", "roll_bytes", "roll_seconds"):
                options[name] = getattr(self, name).get()
        self._told = self._new_run_metadata()
        reduced = FrameReductions({n: each.function for n, each in self.reductions.items()})
        recorder = self._use_mode().record(
            Path(place.directory_path),
            place.filename,
            first_number=rows.next_number,
            start_flow=self.start_flow_id(),
            held=True,
            reductions=reduced,
            metadata=self._told,
            **options,
        )
        with self._state:
            self._reduced = reduced
            per_row, per_file = (1, self.frames_per_file) if flown else (self._per_row, None)
            rows.open(recorder, place, flown=flown, per_row=per_row, per_file=per_file)

        def mine(call: Callable[[Any], None]) -> Callable[[Any], None]:
            """Call it unless the recorder was abandoned."""
            return lambda value: call(value) if rows.recorder is recorder else None

        recording = FrameRecording(
            [recorder],
            resumes=flown and self.on_error.get() == "resume",
            on_files=mine(lambda files: self._on_files(rows, files[0])),
            on_progress=mine(lambda _: self._on_progress(rows)),
            on_end=mine(partial(self._on_end, rows)),
            on_error=mine(self._fail),
        )
        with self._state:
            if rows.recorder is recorder:  # it has not ended meanwhile
                rows.recording = recording

    def _ready_file(self, rows: DetectorFiles) -> None:
        """Ensure that a recorder waits with the file of the next reading."""
        streams = self._streams
        place, is_new = self._begin_files(rows)
        if is_new or rows.recorder is None or rows.flown or rows.torn:
            rows.close()
            rows.cut_torn()
            self._open(rows, place, flown=False)
        else:
            is_of_run = self._is_of_run(rows)
            full = streams.fresh or streams.is_shared or self._is_full(rows.stream.documented)
            if is_of_run and not (full and rows.stream.documented):
                return
            recorder = rows.recorder
            with self._state:
                rows.roll()
            if not is_of_run:
                recorder.describe(self._told)
            rows.cut_dropped()
        streams.fresh = False
        self._file_begun = time.monotonic()

    def _is_of_run(self, rows: DetectorFiles) -> bool:
        """Return whether the file of readings is of the run of the next one.

        A file that is empty and of no run becomes one of this run.
        """
        told, self._told = self._told, self._new_run_metadata()
        if told.get("uid") == self._told.get("uid"):
            return True
        if "uid" in told or rows.stream.documented:
            return False
        rows.recorder.describe(self._told)
        return True

    def _new_run_metadata(self) -> dict[str, Any]:
        if self._masters is not None:
            self._masters.take_run(self.daq.runs.current)
        return self._run_metadata()

    def _is_full(self, documented: int) -> bool:
        frames = documented * self._per_row
        limits = [
            (self.roll_frames.get(), frames),
            (self.roll_bytes.get(), frames * self.frame_bytes),
            (self.roll_seconds.get(), time.monotonic() - self._file_begun),
        ]
        return any(limit and value >= limit for limit, value in limits)

    def _note_latest(self, rows: DetectorFiles) -> None:
        """See whether the RunEngine has saved the latest reading; if not, begin a new file."""
        datum = rows.stream.latest_datum
        if datum is None or rows.flown or rows.recorder is None:
            return
        if datum["descriptor"]:
            self._streams.completes = True
        elif rows.stream.documented == 1:
            self._streams.fresh = True  # its file is in no collected document
        elif self._streams.completes:
            self._streams.fresh = True
            rows.doubt()  # it was dropped, or is saved later

    def _keep_streams_apart(self, rows: DetectorFiles) -> None:
        """Move the reading that is not collected yet to a file of its own, if it needs one."""
        if rows.stream.documented and rows.recorder is not None and self._streams.moves():
            self._split(rows)
        if not rows.stream.documented:
            self._streams.begin_file()
        self._streams.end_reading()

    def _add_stream(self, rows: DetectorFiles) -> None:
        """Note another stream; a reading that is not collected yet is its first."""
        self._streams.add(self.daq.runs.open)
        if rows.flown or rows.recorder is None or not rows.stream.documented:
            return
        if not rows.stream.uncollected:
            self._streams.fresh = True
        else:
            self._split(rows)

    def _split(self, rows: DetectorFiles) -> None:
        """Move the reading that is not collected yet to a file of its own."""
        with self._state:
            rows.split()
        self._file_begun = time.monotonic()

    def _take_back(self, rows: DetectorFiles) -> EngineStatus | None:
        """Discard frames of readings that are in no document; return the status of an open one.

        The caller ends that status without the lock: ending it stops its device.
        """
        self._note_latest(rows)
        work = self._work if self._work is not None and self._work.running else None
        if rows.flown or (work is None and not rows.stream.uncollected):
            return None
        if work is not None:
            work.running = work.held = False
        if work is not None and rows.recorder is None:
            rows.stream.discard()
            return work.status
        rows.take_back()
        return None if work is None else work.status

    # --- Acquisitions

    def _acquire(self, rows: DetectorFiles, wanted: int, *, flown: bool) -> EngineStatus:
        recorder, plan = rows.recorder, self._engine_plan()
        if recorder is None:
            raise rows.late or CaptureError(f"{self.name}: the recorder has ended")
        with self._state:
            before = recorder.snapshot()
            before_engine = PortLossWatch(self.daq.port(self.port_name) if self.port_name else plan)
            self._reduced.begin(1 if flown else wanted)
            recorder.resume()
            first = self.first_number.get()
            try:
                lost = recorder.acquire(wanted, first_number=None if first < 0 else first)
            except InvalidParameterError as error:
                recorder.pause()
                raise CaptureError(f"{self.first_number.name}: {error}") from error
            longest = self._longest_wait if flown else self.timeout.get()
            status = EngineStatus(self, action="recording frames", timeout=longest)
            acquisition = Acquisition(
                wanted, flown, status, plan, before, lost, plan.counters(), before_engine
            )
            run = self.daq.runs.latest_uid
            self._work = Work(status, flown, acquisition, run, completing=not flown)
        return status

    @property
    def _longest_wait(self) -> float:
        """Longest time without a frame of a fly scan, s."""
        flight, seconds = self._flight, self.acquire_time.get()
        if flight is None:
            return self.timeout.get() + seconds
        if flight.timeout is not None:
            return flight.timeout + seconds
        return self.timeout.get() + flight.livetime + flight.deadtime + seconds

    def _begin_time(self) -> None:
        """Begin `acquire_time`, at the kickoff."""
        seconds, rows = self.acquire_time.get(), self._begun_rows()
        with self._state:
            if seconds and rows.recorder is not None:  # it has not ended meanwhile
                rows.recorder.end_in(seconds)

    # --- On the thread of the event pump

    def _on_files(self, rows: DetectorFiles, file: Any) -> None:
        with self._state:
            rows.take_complete(file)
            # Those of readings may lose their last one until the device is unstaged; a master takes
            # the form of frames from the first of a fly scan.
            stays = rows.has_one and not self.keep_shipped.get()
            if rows.flown and not stays:
                self._shipping.add([file.path])

    def _on_progress(self, rows: DetectorFiles) -> None:
        """Report progress; finish a reading that is complete."""
        with self._state:
            work, recorder, recording = self._work, rows.recorder, rows.recording
            if work is None or not work.running or recorder is None:
                return
            snapshot = recorder.snapshot()  # of this acquisition
            if rows.flown and rows.is_current(snapshot.files) and snapshot.path is not None:
                rows.register(snapshot.path, snapshot.flushed)
            acquisition: Acquisition = work.outcome
            complete = acquisition.wanted and snapshot.acquired >= acquisition.wanted
            if self._armed:  # its file gets the run of the kickoff
                complete = False
            if complete and not work.flown:
                work.running = False
                if snapshot.path is not None:
                    rows.register(snapshot.path, snapshot.flushed)
        if recording is not None:
            recording.refuse(self._shipping.full())
        acquisition.report(snapshot, self.start_flow.get())
        failure = self._failure(acquisition, snapshot, last=bool(complete))
        if failure is not None:
            work.fail(failure)
        if complete and work.flown and recording is not None:
            recording.end("complete")
            recording.stop()
        elif complete:
            self._update(acquisition, snapshot)
            work.status.finish()
        else:
            work.status.check(lambda: self._slow_reduction() or acquisition.cause(snapshot))

    def _failure(
        self, acquisition: Acquisition, snapshot: RecorderSnapshot, *, last: bool
    ) -> Exception | None:
        """Return why an acquisition fails: its losses, or a reduction."""
        loss = acquisition.loss(self, snapshot, last=last)
        if loss is None:
            return CaptureError(self._reduced.error) if self._reduced.error else None
        if self._reduced:
            took = f"{self._reduced.seconds * 1e3:.3g} ms a frame"
            return type(loss)(f"{loss} (reductions of frames take {took})")
        return loss

    def _slow_reduction(self) -> str:
        name, seconds = self._reduced.running
        return f"reduction {name!r} has been running for {seconds:.1f} s" if name else ""

    def _abandon_stuck(self, rows: DetectorFiles) -> bool:
        """Leave a recorder that a reduction keeps for longer than `timeout`."""
        # Whoever ends a recorder waits for the function that it runs.
        stuck = not self._reduced.wait(self.timeout.get())
        if stuck and rows.recorder is not None:
            _log.error("%s: %s; its recorder is left.", self.name, self._slow_reduction())
            rows.abandon()
        return stuck

    def _on_end(self, rows: DetectorFiles, snapshot: RecorderSnapshot) -> None:
        """Finish or fail the open status when the recorder has ended."""
        with self._state:
            work = self._work
            ending = "" if rows.recording is None else rows.recording.ending
            failure_told = "" if work is None else str(work.failure)
            if work is not None and not work.running:
                work = None
            if work is not None:
                work.running = False
                if not rows.flown:
                    rows.note_torn()
            rows.ended()
            # A status that failed by lost frames has told it, if progress was seen before the end.
            if work is None and snapshot.error and snapshot.error not in failure_told:
                rows.late = CaptureError(f"{self.name}: {snapshot.error}")
        if work is None:
            return
        acquisition: Acquisition = work.outcome
        progress = acquisition.report(snapshot, self.start_flow.get())
        self._update(acquisition, snapshot)
        failure = self._failure(acquisition, snapshot, last=True)
        if snapshot.failing or snapshot.unreported or (snapshot.error and not snapshot.frames):
            work.fail(CaptureError(snapshot.error))
        elif failure is not None:
            work.fail(failure)
        elif ending == "fail":
            work.fail(CaptureStoppedError(f"stopped after {progress}"))
        elif not ending and not snapshot.limit_reached:
            work.fail(CaptureStoppedError(f"the engine was closed after {progress}"))
        elif work.flown and acquisition.placed_none():
            work.fail(
                CaptureError(
                    f"{self.name} has no frames: packets of its plan belong to none "
                    f"({acquisition.unplaced()})"
                )
            )
        elif work.flown and self.prepared is not None and snapshot.acquired < acquisition.wanted:
            work.fail(CaptureError(f"{self.name} has {progress}, and is prepared for all of them"))
        elif work.flown:
            self._finish_collected(rows.stream, work)
        else:
            work.status.finish()

    def _finish_collected(self, stream: FrameStream, work: Work) -> None:
        """Finish a fly scan once its rows, except those of one StreamResource, are in documents.

        After that, plans collect once more. Only files after an error are several resources.
        """

        def finish() -> None:
            parts = stream.parts_to_collect
            left = self._work is not work or parts <= 1 or not work.completing
            if left or work.status.done:
                default_ticker().remove(finish)
                work.status.finish()
                return
            text = f"rows of {parts} files are not collected: collect them while completing, as "
            text += "bps.collect_while_completing and plans.capture_during do"
            work.status.report(-parts, None, "files", text)
            work.status.check()

        default_ticker().add(finish, work.fail)
        finish()

    def _update(self, acquisition: Acquisition, snapshot: RecorderSnapshot) -> None:
        """Update the signals with the counters of an acquisition."""
        frames, now = snapshot.frames - acquisition.before.frames, time.time()
        self._numbers = self._reduced.means()
        dropped, missing = acquisition.lost(snapshot), acquisition.missing(snapshot)
        before_engine = acquisition.lost_before_engine(last=True)
        self.frames.update(frames, now)
        self.missing_packets.update(missing, now)
        self.lost_before_engine.update(before_engine, now)
        self.dropped.update(dropped, now)
        lossy = dropped > 0 or acquisition.malformed() > 0 or (missing > 0 and before_engine > 0)
        self.lossy.update(lossy, now)
