"""Capture of a port: records the packets of receive queues to files."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ophyd.ophydobj import Kind

from daqiri_ophyd.documents import StreamAsset, row_counters
from daqiri_ophyd.engine import (
    QueueRecording,
    RecordedFile,
    RecorderSnapshot,
    default_pump,
)

from ...parts._run_engine import calling_run_engine
from ...parts._signals import DataKeys, Readings, reading
from ...parts._status import EngineStatus
from ...parts._ticker import default_ticker
from .._errors import CaptureError, CaptureStoppedError
from .._losses import PortLossWatch
from .._paths import PathInfo
from .._recorded import Recorded
from .._recording import Recording
from .._work import Work
from ._columns import CaptureColumns
from ._outcome import Outcome, absent_peer
from ._preparation import Preparation, put
from ._rows import CaptureRows
from ._settings import CaptureSettings

__all__ = ["Capture"]

_log = logging.getLogger(__name__)

# Time limit of a reading without any limit, s.
_USUAL_TIME = 1.0


class Capture(CaptureSettings, Recorded):
    """Records the packets of receive queues to files, in step scans and on the fly.

    ======================= ======================================================================
    hook                    what happens
    ======================= ======================================================================
    ``stage``               opens the engine; files of this run go to a new directory
    ``prepare``             accepts a `CaptureTrigger`: the number of files for each kickoff and of
                            packets in each file, until ``unstage``, which restores the settings
    ``trigger`` (step scan) flushes the queue and records one file; done when `num_packets` or
                            `acquire_time` is reached; without either, after 1 s
    ``kickoff`` (fly scan)  flushes the queue and starts recording; a new file begins after
                            `roll_packets`, `roll_bytes` or `roll_seconds`
    ``complete``            done when `num_packets` or `acquire_time` is reached; without either,
                            stops recording after `linger`
    ``collect``             one row per complete file: the file and its counters
    ``pause``, ``resume``   pause the whole engine (`Daq.pause`); packets that arrive while it is
                            paused are not recorded, and files stay valid
    ``stop``, ``unstage``   stop recording and complete the file
    ======================= ======================================================================

    After an error (disk full, directory removed) the capture fails. With `on_error` ``resume`` it
    continues in a new file as soon as one can be created. `format` is ``pcap`` or ``raw``: packets
    back to back, without their first `packet_data_offset` bytes, with an index file. `writer` and
    `durable` select how packets are written to disk. See `RxQueue.record`.

    If packets are lost other than by a flush or a filter, `on_drop` selects the result: the capture
    fails (``fail``), the row is marked in the column ``lossy`` (``flag``), or the loss is ignored
    (``ignore``). `dropped` counts the packets in all three cases, and `lost_before_engine` those
    that the host lost before the engine (`daqiri_ophyd.engine.PortCounters`).

    A prepared capture can share the stream of a fly scan with other captures and with detectors of
    ophyd-async. Its counters are then read from the files, under the same names, and there are no
    events. Otherwise the counters are events, in a separate stream.

    With several queues (`queues`), each queue has its own files. A row has one file of each queue,
    its counters, and the sums of the counters. `num_packets` and the limits of files apply to all
    queues together.

    Parameters are those of `CaptureSettings`.
    """

    packets = reading(0, "packets", kind=Kind.hinted)
    dropped = reading(0, "packets", kind=Kind.hinted)
    bytes = reading(0, "byte", kind=Kind.normal)
    t_first_ns = reading(-1, "ns", kind=Kind.normal)
    t_last_ns = reading(-1, "ns", kind=Kind.normal)
    lost_before_engine = reading(0, "packets", kind=Kind.normal)

    get_index: Callable[[], int]

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._prepared: Preparation | None = None
        self._last_index: int | None = None  # index when the fly scan failed; None: it has not
        self._declared_prepared: bool | None = None  # at stream declaration; None: none yet
        self._flown = False  # whether the latest work is, or was, a fly scan
        self._adopted: QueueRecording | None = None
        self._recording: QueueRecording | None = None  # of the latest work
        super().__init__(prefix, **kwargs)
        self._rows = self._new_rows()

    # --- Readings

    def describe(self) -> DataKeys:
        """Return the data keys of a step scan: counters, and the file."""
        rows = self._new_rows() if self._destination is None else self._rows
        keys = rows.columns.counter_keys(self._counter_keys())
        return {**keys, **rows.stream.describe()}

    def read(self) -> Readings:
        """Return the counters of the latest file."""
        found = super().read()
        for name, value in self._rows.readings(found).items():
            found[name] = {"value": value, "timestamp": self.packets.timestamp}
        return found

    @property
    def hints(self) -> dict[str, Any]:
        """Columns to plot: the hinted counters, and reductions."""
        hints = super().hints
        return {**hints, "fields": [*hints.get("fields", ()), *self._columns.reduced]}

    def describe_collect(self) -> DataKeys:
        """Return the data keys of a fly scan, which are those of a step scan."""
        self._require_declared()
        self._declared_prepared = self.prepared
        return dict(self._rows.stream.describe_collect())

    def collect_asset_docs(self, index: int | None = None) -> Iterator[StreamAsset]:
        """Yield the documents of files completed since the last call.

        Parameters
        ----------
        index : int, optional
            For a prepared capture: yield the files up to this number since ``prepare``, which all
            flyers of a stream have completed. Default: all files.

        Raises
        ------
        FailedStatus
            If a fly scan's capture failed and `complete`, whose status would report it, was not
            called.
        CaptureError
            If a plan reads it without a new trigger.
        """
        self._raise_failure()
        self._require_row()
        if self._rows.begun:
            shared = self._prepared is not None and self._flown
            yield from self._rows.stream.collect_asset_docs(index, shared=shared)

    def collect_pages(self) -> Iterator[dict[str, Any]]:
        """Yield the counters of the same files, as event pages."""
        if self._rows.begun:
            yield from self._rows.stream.collect_pages()

    @property
    def uncollected(self) -> list[Path]:
        """Complete files that are in no document yet."""
        return self._rows.stream.uncollected

    @property
    def files(self) -> list[Path]:
        """Complete files since `stage`, in the order of their rows and queues."""
        return self._rows.files

    @property
    def progress(self) -> RecorderSnapshot | None:
        """Progress of the current recording; None if nothing is being recorded."""
        with self._state:
            return None if self._recorders is None else self._recorders.snapshot()

    # --- Step and fly scans

    def trigger(self) -> EngineStatus:
        """Record one file.

        Raises
        ------
        CaptureError
            If the device is not staged, is prepared for several files, a fly scan is running or has
            files in no document, or no file can be created.
        """
        self.require_staged()
        self._require_documented()
        self._disarm()
        # After a pause the RunEngine triggers the interrupted reading again. The file of the
        # interrupted attempt is not part of the run.
        interrupted = self._work is not None and self._work.held
        self.stop(success=True)
        self._require_as_prepared(files=1)
        self.daq.stop_interrupted()
        if self._rows.begun:
            if self._work is not None and self._work.status.success and not interrupted:
                for path in self.uncollected:
                    _log.warning("%s: %s was not read; it is in no document", self.name, path)
            self._rows.stream.discard()
        return self._start(flown=False)

    def prepare(self, value: Any) -> EngineStatus:
        """Prepare for files of equal packet counts, until ``unstage`` or the next ``prepare``.

        Parameters
        ----------
        value : CaptureTrigger
            Number of files and their packets. A ``TriggerInfo`` of ophyd-async is accepted too,
            with `roll_packets` as the packets in a file. With an external trigger, recording begins
            now: packets that come before ``kickoff`` are in the first file.

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
        self._disarm()
        self._require_idle()
        self._require_told()
        if missing := self.uncollected:
            raise CaptureError(
                f"{self.name}: {len(missing)} files are in no document yet, such as {missing[0]}; "
                "collect them before prepare()."
            )
        self._prepared = Preparation(self, value, self._prepared)
        self._work = self._last_index = None
        fields = {getattr(self, field).name: field for field in self.component_names}
        stream = self._rows.stream
        stream.share({name: fields[name] for name in stream.counters})
        # The RunEngine treats a device that has this method as one that can share a stream, and
        # collects no events from it.
        self.get_index = self._get_index
        if self._prepared.trigger.external:
            self._arm()
        return self._done("preparing")

    @property
    def prepared(self) -> bool:
        """Whether `prepare` was called since the last ``unstage``."""
        return self._prepared is not None

    def stop(self, *, success: bool = False) -> None:
        """Record the bursts that the queue has delivered, complete the file, and stop.

        A reduction that is running is waited for, but not by the RunEngine: its row has NaN.
        """
        with self._state:
            work = self._work
            if work is None or work.recording is None or not work.running:
                return
            work.recording.end("finish" if success else "fail")
        work.recording.stop()
        # All rows exist once they are made.
        if not work.running or default_pump().is_current:
            return  # a failure, which the thread of events tells; rows come later
        longest = self.timeout.get() if calling_run_engine() is None else 0.0
        if not self._rows.wait(longest):
            self._abandon(work, success=success)

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

    # --- For `Recorded`

    @property
    def _recorders(self) -> Recording | None:
        work = self._work
        return work.recording if work is not None and work.running else None

    def _begin_stage(self) -> None:
        self._declared_prepared, self._flown = None, False
        if self.reductions and self.format.get() != "pcap":
            raise CaptureError(f"{self.name}: reductions need format 'pcap'.")
        # Settings affect the data keys of the stream.
        self._rows = self._new_rows()
        if self.reductions:
            self._rows.start_worker()

    def _end_stage(self) -> None:
        self._rows.close()
        self._recording = None
        if self._adopted is not None:
            unused, self._adopted = self._adopted.directory, None
            _log.warning("%s: the recording in %s was not continued", self.name, unused)
        prepared, self._prepared = self._prepared, None
        self.__dict__.pop("get_index", None)
        if prepared is not None:
            put(self, prepared.before)

    def _leave_out_rows(self) -> None:
        self._rows.stream.discard()

    def _forget_rows(self) -> CaptureError | None:
        if self.uncollected:
            self._rows.stream.discard()
        return None

    def _owes_documents(self, work: Work) -> bool:
        # Another capture, which may share the stream, has no row for these files.
        shared_failure = self._prepared is not None and self.daq.capture_failed_at > work.begun
        return super()._owes_documents(work) and not shared_failure

    def _lost_rows_text(self, files: list[Path]) -> str:
        return (
            f"{len(files)} files are in no document, such as {files[0]}. Collect until the status "
            "of complete() is done, or use the plan daqiri_ophyd.plans.capture_during. Captures "
            "that share a stream have to write equally many files."
        )

    def _start_flight(self) -> EngineStatus:
        self._require_as_prepared()
        return self._start(flown=True)

    def _take_run(self) -> None:
        self._require_as_prepared()
        place = self._begun().place
        if self._recording is not None and place is not None:
            self._describe(self._recording, self._run_metadata())
            self._begun().use(place)

    # --- Implementation

    @property
    def _columns(self) -> CaptureColumns:
        return CaptureColumns(self.name, self.port_name, self.selected_queues, self.reductions)

    def _new_rows(self) -> CaptureRows:
        columns = self._columns
        return CaptureRows(self.name, columns, columns.counter_keys(self._counter_keys()))

    def _get_index(self) -> int:
        """Return the number of files completed since ``prepare``, until a fly scan fails.

        Files that a failed fly scan completes while it ends are not counted: they are in no row of
        the devices that share the stream.
        """
        index = self._rows.stream.index
        return index if self._last_index is None else min(index, self._last_index)

    def _require_as_prepared(self, files: int = 0) -> None:
        """Raise if a setting has changed since `prepare`, or the number of files differs."""
        if self._prepared is None:
            return
        if not files and self._declared_prepared is False:
            raise CaptureError(
                f"{self.name}: its stream was declared before prepare(), which changes what is "
                "in the stream. Declare it after prepare()."
            )
        work = None if files else self._work
        if work is not None and work.flown and work.status.done and not work.status.success:
            # Its next files would share rows with earlier files of the other devices in the stream.
            raise CaptureError(
                f"{self.name}: its latest flight failed. Prepare it, and what shares its stream, "
                "again."
            )
        self._prepared.require(self, files)

    def _begin_files(self) -> PathInfo:
        destination = self._begun()
        place, is_new = destination.find()
        if is_new:
            self._rows.begin(place, self.format.get())
        self._shipping.begin(
            place, self._columns.prefixes(place.filename), [f".{self.format.get()}"]
        )
        destination.use(place)
        return place

    def _start(self, *, flown: bool) -> EngineStatus:
        names = self.selected_queues
        usual = {} if flown or self.limited else {"max_seconds": _USUAL_TIME}
        limits, options = self._recorder_settings(rolling=flown)
        limits |= usual
        if self._adopted is not None and not flown:
            raise CaptureError(
                f"{self.name}: a step scan cannot continue a recording; kick it off instead."
            )
        recording = self._take_adopted({**limits, **options})
        metadata = self._run_metadata()
        if recording is not None:
            self._describe(recording, metadata)
        else:
            place = self._begin_files()
            recording = QueueRecording.start(
                self.daq.port(self.port_name),
                names,
                Path(place.directory_path),
                place.filename,
                first_number=self._rows.stream.finished,
                limits=limits,
                options=options,
                metadata=metadata,
            )
        self._recording = recording
        if flown:
            self._rows.stream.announce()
        seconds = limits["max_seconds"] + self.timeout.get()
        if self._prepared is not None:
            seconds += self._prepared.trigger.livetime
        timeout, awaited = seconds, "progress"
        if self.file_timeout.get():
            timeout, awaited = self.file_timeout.get(), "complete file"
        work = Work(
            EngineStatus(self, action="capturing", timeout=timeout, awaited=awaited),
            flown,
            self._outcome_of(recording),
            run=self.daq.runs.latest_uid,
            completing=not flown,
        )
        rows, failed = self._rows, partial(self._fail_work, work)
        self._flown = flown
        with self._state:
            self._work = work
            work.recording = Recording(
                recording.recorders,
                resumes=self.on_error.get() == "resume",
                on_files=partial(rows.add, partial(self._on_files, work, rows), failed),
                on_progress=partial(self._on_progress, work),
                on_end=partial(rows.in_order, partial(self._on_end, work), failed),
                on_error=failed,
            )
        if rows.columns.reduced:
            self._check_reductions(work, rows)
        return work.status

    def _outcome_of(self, recording: QueueRecording) -> Outcome:
        port = self.port_name
        return Outcome(
            {f"{port}/{name}": self.daq.rx_queue(port, name) for name in recording.queues},
            self.num_packets.get(),
            recording.before,
            recording.flushed,
            on_error=self.on_error.get(),
            on_drop=self.on_drop.get(),
            files=0 if self._prepared is None else self._prepared.trigger.number_of_files,
            start=self.start_flow.get(),
            deadtime=self.deadtime.get(),
            before_engine=PortLossWatch(recording.port, recording.port_before),
        )

    def _take_adopted(self, settings: dict[str, Any]) -> QueueRecording | None:
        """Return the adopted recording, if any; raise if it is not what the settings ask for."""
        recording = self._adopted
        if recording is None:
            return None
        self._require_same(recording, settings)
        place = PathInfo(recording.directory, recording.prefix)
        self._rows.begin(place, self.format.get(), is_new=False)
        self._shipping.begin(
            place, self._columns.prefixes(place.filename), [f".{self.format.get()}"]
        )
        self._begun().use(place)
        self._adopted = None
        return recording

    def _describe(self, recording: QueueRecording, metadata: dict[str, Any]) -> None:
        """Let all files of a recording report the run, also those from before it."""
        recording.describe(metadata)
        self._add_run(recording.files(), metadata)

    def _abandon(self, work: Work, *, success: bool) -> None:
        """End a capture whose reductions still run: its files have rows without them."""
        rows = self._rows
        with self._state:
            work.running = False
        for files in rows.abandon():
            self._append(rows, files, dict.fromkeys(rows.columns.reduced, math.nan))
        if success:
            work.status.finish()
        else:
            work.fail(CaptureStoppedError("stopped while a reduction was running"))

    # --- On the thread of the event pump, or on the one that makes rows

    def _check_reductions(self, work: Work, rows: CaptureRows) -> None:
        """Fail a capture whose reductions take too long, until it has ended."""

        def check() -> None:
            limit = self.timeout.get()
            if rows.busy() > limit:
                text = f"a reduction takes longer than {limit:g} s (timeout)"
                self._fail_work(work, CaptureError(text))
            if not work.running:
                default_ticker().remove(check)

        default_ticker().add(check, partial(self._fail_work, work))

    def _fail_work(self, work: Work, error: Exception) -> None:
        if self._prepared is not None:
            self.daq.capture_failed_at = time.monotonic()
        work.fail(error)

    def _append(
        self, rows: CaptureRows, files: Sequence[RecordedFile], reduced: dict[str, float]
    ) -> dict[str, Any]:
        """Append the row of complete files; return its counters by attribute."""
        rows.require_expected(files)
        now = time.time()
        row = row_counters(files)
        if self.on_drop.get() != "flag":
            del row["lossy"]
        for attribute, value in row.items():
            getattr(self, attribute).update(value, now)
        named = {getattr(self, attribute).name: value for attribute, value in row.items()}
        rows.append(files, named, reduced)
        return row

    def _on_files(self, work: Work, rows: CaptureRows, files: Sequence[RecordedFile]) -> None:
        """Append the row of complete files; fail if a file has no row."""
        if work.status.failed and self._last_index is None:
            self._last_index = rows.stream.index
        try:
            reduced, failure = rows.reduce(files)
            if not rows.claim(files):
                return  # it was abandoned, and has a row without reductions
            row = self._append(rows, files, reduced)
            self._shipping.add(file.path for file in files)
            failure = failure or work.outcome.gap_error(row)
        except CaptureError as error:
            failure = error
        except Exception as error:
            failure = CaptureError(f"{files[0].path} is in no document of the run: {error}")
        if failure is not None:
            self._fail_work(work, failure)  # after the row, which can now be collected

    def _on_progress(self, work: Work, snapshot: RecorderSnapshot) -> None:
        """Report progress; fail as soon as packets are lost or none arrive for too long."""
        recording = work.recording
        if recording is None or not work.running:
            return
        self._report(work, snapshot)
        recording.refuse(self._shipping.full())
        loss = work.outcome.loss()
        if loss is not None:
            self._fail_work(work, loss)
            return
        # With losses allowed, lost packets count towards the limit: they never arrive.
        if not work.short and work.outcome.is_short(snapshot):
            work.short = True
            recording.end_in(self.linger.get())
        failing = snapshot.error if snapshot.failing else ""
        work.status.check(
            lambda: failing or absent_peer(self.daq.port(self.port_name).connections())
        )

    def _report(self, work: Work, snapshot: RecorderSnapshot) -> str:
        text: str = work.outcome.progress_text(snapshot)
        if self.file_timeout.get():
            files = None if self._prepared is None else self._prepared.trigger.number_of_files
            work.status.report(snapshot.files, files, "files", text)
        else:
            work.status.report(snapshot.packets, self.num_packets.get() or None, "packets", text)
        return text

    def _on_end(self, work: Work, snapshot: RecorderSnapshot) -> None:
        """Finish or fail the status of a recording that has ended."""
        with self._state:
            if not work.running:
                return  # it was abandoned
            work.running = False
        outcome = work.outcome
        ending = "" if work.recording is None else work.recording.ending
        failure, progress = outcome.failure(snapshot), self._report(work, snapshot)
        if failure is not None:
            self._fail_work(work, failure)
        elif ending == "fail":
            self._fail_work(work, CaptureStoppedError(f"stopped after {progress}"))
        elif not ending and not snapshot.limit_reached:
            self._fail_work(work, CaptureStoppedError(f"the engine was closed after {progress}"))
        elif not ending and (missing := outcome.missing(snapshot)) is not None:
            self._fail_work(work, missing)
        else:
            work.status.finish()
