"""Recording of a capture: from settings to files, rows and a status."""

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ophyd.device import Staged
from ophyd.ophydobj import Kind

from daqiri_ophyd.documents import CaptureStream
from daqiri_ophyd.engine import QueueRecording, RecordedFile, RecorderSnapshot

from ._capture_columns import CaptureColumns, sums
from ._capture_settings import CaptureSettings
from ._capture_trigger import CaptureTrigger
from ._losses import PortLossWatch
from ._outcome import CaptureError, CaptureStoppedError, Outcome, absent_peer
from ._paths import PathInfo, PathTemplate, make_directory
from ._recording import Recording
from ._row_worker import RowWorker
from ._signals import DataKeys, EngineSignal, fact, reading
from ._status import EngineStatus
from ._ticker import default_ticker
from .reductions import Reduction

__all__ = ["RecordingCapture"]

# Settings that are parameters of `RxQueue.record`. A step scan writes one file per reading, so it
# does not use the settings for rolling.
_RECORD_SETTINGS = ("format", "nanosecond", "packet_data_offset", "writer", "on_error", "durable")
_ROLL_SETTINGS = ("roll_packets", "roll_bytes", "roll_seconds")


class RecordingCapture(CaptureSettings):
    """Records receive queues to files, with a row for each; Bluesky's hooks are in `Capture`.

    Parameters are those of `CaptureSettings`.
    """

    packets = reading(0, "packets", kind=Kind.hinted)
    dropped = reading(0, "packets", kind=Kind.hinted)
    bytes = reading(0, "byte", kind=Kind.normal)
    t_first_ns = reading(-1, "ns", kind=Kind.normal)
    t_last_ns = reading(-1, "ns", kind=Kind.normal)
    reduction_table = fact(
        lambda capture: json.dumps({n: str(r) for n, r in capture.reductions.items()}), "string"
    )
    lost_before_engine = reading(0, "packets", kind=Kind.normal)
    lossy = reading(False, kind=Kind.omitted)

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._state = threading.RLock()  # guards the attributes below
        self._recording: Recording | None = None
        self._outcome: Outcome | None = None
        self._short = self._held = self._rolling = False
        self._ending = ""
        self._trigger: CaptureTrigger | None = None  # None: it is not prepared
        self._template: PathTemplate | None = None
        self._place: PathInfo | None = None
        self._run: str | None = None
        self._latest: Sequence[RecordedFile] = ()
        self._reductions: dict[str, Reduction] = {}
        self._reduced: dict[str, float] = {}
        self._worker: RowWorker | None = None
        self._adopted: QueueRecording | None = None
        self._abandoned = 0  # captures that ended while a reduction was running
        super().__init__(prefix, **kwargs)
        self._stream = self._new_stream()

    def pause_recording(self) -> None:
        """Discard packets that arrive from now on; the file stays valid."""
        with self._state:
            recording, status = self._recording, self._status
            if recording is None or status is None or self._held:
                return
            self._held = True
        recording.pause()
        status.pause_timeout()

    def resume_recording(self) -> None:
        """Continue recording after `pause_recording`."""
        with self._state:
            recording, status = self._recording, self._status
            if recording is None or status is None or not self._held:
                return
            self._held = False
        recording.resume()
        if self._completing:
            status.resume_timeout()

    @property
    def reductions(self) -> dict[str, Reduction]:
        """Reductions of each file by name; see `daqiri_ophyd.devices.reductions`.

        Assign instances of `Reduction`, or functions of the packets that return a number.

        Raises
        ------
        CaptureError
            If the device is staged.
        ValueError, TypeError
            If a name is not an identifier or is in use, or a value is not a function.
        """
        return dict(self._reductions)

    @reductions.setter
    def reductions(self, reductions: Mapping[str, Reduction | Callable[..., float]]) -> None:
        if self._staged != Staged.no:
            raise CaptureError(f"reductions cannot be changed while {self.name} is staged.")
        taken = {*self.component_names, "files"}
        found = {}
        for name, given in reductions.items():
            if not name.isidentifier() or name in taken:
                raise ValueError(
                    f"{self.name}: a reduction cannot be named {name!r}; accepted is an identifier "
                    "that no other column or setting has."
                )
            reduction = given if isinstance(given, Reduction) else Reduction(given)
            if not callable(reduction.function):
                raise TypeError(
                    f"{self.name}: reduction {name!r} is {given!r}; accepted is a function of the "
                    "packets, or one of daqiri_ophyd.devices.reductions."
                )
            found[name] = reduction
        # Raises if a name is too long for the columns.
        CaptureColumns(self.name, self.port_name, self.selected_queues, found)
        self._reductions = found
        self._stream = self._new_stream()

    def stop(self, *, success: bool = False) -> None:
        """Record the bursts that the queue has delivered, complete the file, and stop."""
        with self._state:
            recording = self._recording
            if recording is not None and not self._ending:
                self._ending = "finish" if success else "fail"
        if recording is not None:
            recording.stop()
        # All rows exist once the worker has created them.
        if self._worker is not None and not self._worker.wait(self.timeout.get()):
            with self._state:
                self._recording = self._outcome = None
                self._abandoned += 1

    def refuse_change(self, signal: EngineSignal) -> None:
        """Raise if a setting is changed that the run already depends on."""
        if self._recording is not None:
            raise CaptureError(f"{signal.name} cannot be changed during a capture.")
        super().refuse_change(signal)

    def adopt(self, recording: QueueRecording) -> None:
        """Continue a recording that already runs, at the next ``kickoff``, instead of a new one.

        ``kickoff`` raises `CaptureError` if the recording has other settings than this capture. The
        recording is then left to the caller, as it is without a ``kickoff`` until ``unstage``.

        Parameters
        ----------
        recording : QueueRecording
            Recording of the port's selected queues, with the settings of this capture. Its files
            are the first of the capture; `path`, `file_prefix` and path providers do not apply to
            them.
        """
        self._adopted = recording

    @property
    def is_recording(self) -> bool:
        """Whether a recording is running and not paused."""
        with self._state:
            return self._recording is not None and not self._held

    @property
    def files(self) -> list[Path]:
        """Complete files since `stage`, in the order of their rows and queues."""
        if self._place is None:
            return []
        return [path for row in range(self._stream.finished) for path in self._stream.paths(row)]

    @property
    def progress(self) -> RecorderSnapshot | None:
        """Progress of the current recording; None if nothing is being recorded."""
        with self._state:
            return None if self._recording is None else self._recording.snapshot()

    # --- Implementation

    def _counter_keys(self) -> DataKeys:
        keys = super().describe()
        if self.on_drop.get() == "flag":
            keys.update(self.lossy.describe())
        return self._columns.counter_keys(keys)

    @property
    def _columns(self) -> CaptureColumns:
        return CaptureColumns(self.name, self.port_name, self.selected_queues, self._reductions)

    def _new_stream(self) -> CaptureStream:
        return CaptureStream(self._columns.files, self._counter_keys())

    def _begin_files(self) -> PathInfo:
        """Return where to write; determined once for each stage and each run."""
        template = self.require_directory(self._template)
        run = None if self.daq.start_document is None else self.daq.start_document["uid"]
        if self._place is not None and run == self._run:
            return self._place
        place = self.path_info(template)
        if place != self._place:
            self._require_collected()
            make_directory(
                Path(place.directory_path), self._columns.prefixes(place.filename), self.name
            )
            self._use(place)
        self._run = run
        return place

    def _use(self, place: PathInfo) -> None:
        self._stream.begin(
            Path(place.directory_path),
            *self._columns.prefixes(place.filename),
            format=self.format.get(),
            uri=place.directory_uri,
        )
        self._place = place

    def _require_collected(self) -> None:
        if missing := self._stream.uncollected:
            raise CaptureError(f"{self.name}: {missing[0]} was not collected before the next.")

    def _start(self, *, rolling: bool) -> EngineStatus:
        names = self.selected_queues
        if len(names) > 1 and self.on_error.get() == "resume":
            raise CaptureError(
                f"{self.name}: with several queues on_error cannot be 'resume', because after an "
                "error their files would not belong together. Use 'stop', or a capture for each."
            )
        options = {name: getattr(self, name).get() for name in _RECORD_SETTINGS}
        options["start_flow"] = self.start_flow_id()
        limits = {name: getattr(self, name).get() for name in _ROLL_SETTINGS if rolling}
        limits |= {"max_packets": self.num_packets.get(), "max_seconds": self.acquire_time.get()}
        if self._adopted is not None and not rolling:
            raise CaptureError(
                f"{self.name}: a step scan cannot continue a recording; kick it off instead."
            )
        recording = self._take_adopted(names, {**limits, **options})
        if recording is None:
            place = self._begin_files()
            recording = QueueRecording.start(
                self.daq.port(self.port_name),
                names,
                Path(place.directory_path),
                place.filename,
                first_number=self._stream.finished,
                limits=limits,
                options=options,
            )
        outcome = Outcome(
            {f"{self.port_name}/{name}": self.daq.rx_queue(self.port_name, name) for name in names},
            self.num_packets.get(),
            flushed=recording.flushed,
            before=recording.before,
            on_error=self.on_error.get(),
            on_drop=self.on_drop.get(),
            files=self._trigger.number_of_files if self._trigger is not None else 0,
            start=self.start_flow.get(),
            deadtime=self.deadtime.get(),
            before_engine=PortLossWatch(recording.port, recording.port_before),
        )
        if rolling:
            self._stream.announce()
        timeout, awaited = self.acquire_time.get() + self.timeout.get(), "progress"
        if self.file_timeout.get():
            timeout, awaited = self.file_timeout.get(), "complete file"
        with self._state:
            self._outcome = outcome
            self._rolling = rolling
            self._completing = not rolling
            self._short = self._held = False
            self._ending = ""
            self._failure = None
            status = self._status = EngineStatus(
                self, action="capturing", timeout=timeout, awaited=awaited
            )
            self._recording = Recording(
                recording.recorders,
                resumes=self.on_error.get() == "resume",
                on_files=partial(self._in_order, self._on_files),
                on_progress=self._on_progress,
                on_end=partial(self._in_order, self._on_end),
            )
        return status

    def _take_adopted(
        self, queues: Sequence[str], settings: Mapping[str, Any]
    ) -> QueueRecording | None:
        """Return the adopted recording, if any; raise if it is not what the settings ask for."""
        recording = self._adopted
        if recording is None:
            return None
        if recording.port is not self.daq.port(self.port_name):
            raise CaptureError(
                f"{self.name}: the recording to continue is of port {recording.port.name!r} of an "
                f"engine; start it on port {self.port_name!r} of the open engine of "
                f"{self.daq.name}."
            )
        found = {"queues": list(recording.queues), **recording.settings}
        for name, value in {"queues": list(queues), "first_number": 0, **settings}.items():
            if found.get(name) != value:
                raise CaptureError(
                    f"{self.name}: the recording to continue has {name} {found.get(name)!r}, and "
                    f"the setting is {value!r}. Start it with the settings of the capture."
                )
        self._require_collected()
        self._use(PathInfo(recording.directory, recording.prefix))
        self._run = None if self.daq.start_document is None else self.daq.start_document["uid"]
        self._adopted = None
        return recording

    def _in_order(self, call: Callable[[Any], None], value: Any) -> None:
        """Call it on this thread, or on the thread that computes reductions."""
        if self._worker is None:
            call(value)
            return
        self._worker.submit(partial(call, value))
        default_ticker().add(self._check_worker)

    def _check_worker(self) -> None:
        """Fail a capture whose reductions take too long."""
        worker, limit = self._worker, self.timeout.get()
        if worker is not None and worker.busy() > limit:
            self._fail(CaptureError(f"a reduction takes longer than {limit:g} s (timeout)"))
        if worker is None or not worker.busy():
            default_ticker().remove(self._check_worker)

    def _on_files(self, files: Sequence[RecordedFile]) -> None:
        """Append the row of complete files; fail if a file has no row."""
        try:
            self._append(files)
        except Exception as error:
            self._fail(CaptureError(f"{files[0].path} is in no document of the run: {error}"))

    def _append(self, files: Sequence[RecordedFile]) -> None:
        for file, expected in zip(files, self._stream.paths(self._stream.finished), strict=True):
            if file.path != expected:
                # The number of a file is its row: a reader would open the existing file instead.
                self._fail(
                    CaptureError(
                        f"{expected} existed before this capture, which continues in "
                        f"{file.path.name}; move it out of the directory of the run"
                    )
                )
                return
        row = sums(files)
        if self.on_drop.get() == "flag":
            row["lossy"] = row["dropped"] + row["lost_before_engine"] > 0
        columns, abandoned = self._columns, self._abandoned
        failure = None
        try:
            reduced = columns.reduce(files)
        except CaptureError as error:
            failure, reduced = error, dict.fromkeys(columns.reduced, math.nan)
        if abandoned != self._abandoned:
            return  # the capture has ended without this row
        self._reduced = reduced
        now = time.time()
        self._latest = files
        for attribute, value in row.items():
            getattr(self, attribute).update(value, now)
        values = {getattr(self, attribute).name: value for attribute, value in row.items()}
        values |= columns.of_queues(files, values) | self._reduced
        declared = self._stream.counters
        self._stream.append({name: values[name] for name in values if name in declared}, now)
        if self._outcome is not None:
            failure = failure or self._outcome.gap_error(row)
        if failure is not None:
            self._fail(failure)  # after the row, which can now be collected

    def _on_progress(self, snapshot: RecorderSnapshot) -> None:
        """Report progress; fail as soon as packets are lost or none arrive for too long."""
        recording, status, outcome = self._recording, self._status, self._outcome
        if recording is None or status is None or outcome is None:
            return
        self._report(status, outcome.progress_text(snapshot), snapshot)
        loss = outcome.loss()
        if loss is not None:
            self._fail(loss)
            return
        # With losses allowed, lost packets count towards the limit: they never arrive.
        if not self._short and outcome.is_short(snapshot):
            self._short = True
            recording.end_in(self.linger.get())
        failing = snapshot.error if snapshot.failing else ""
        status.check(lambda: failing or absent_peer(self.daq.port(self.port_name).connections()))

    def _report(self, status: EngineStatus, progress: str, snapshot: RecorderSnapshot) -> None:
        if self.file_timeout.get():
            files = None if self._trigger is None else self._trigger.number_of_files
            status.report(snapshot.files, files, "files", progress)
            return
        status.report(snapshot.packets, self.num_packets.get() or None, "packets", progress)

    def _on_end(self, snapshot: RecorderSnapshot) -> None:
        """Finish or fail the status of a recording that has ended."""
        with self._state:
            self._recording = None
            status, ending = self._status, self._ending
            outcome, self._outcome = self._outcome, None
        if status is None or outcome is None:
            return
        progress, failure = outcome.progress_text(snapshot), outcome.failure(snapshot)
        self._report(status, progress, snapshot)
        if failure is not None:
            self._fail(failure)
        elif ending == "fail":
            self._fail(CaptureStoppedError(f"stopped after {progress}"))
        elif not ending and not snapshot.limit_reached:
            self._fail(CaptureStoppedError(f"the engine was closed after {progress}"))
        elif not ending and (missing := outcome.missing(snapshot)) is not None:
            self._fail(missing)
        else:
            status.finish()
