"""A device that records: from stage to unstage, with one work at a time."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bluesky.utils import FailedStatus
from ophyd.device import Staged
from ophyd.ophydobj import Kind

from daqiri_ophyd.documents import add_run, run_metadata
from daqiri_ophyd.engine import RecordedFile

from ..parts._run_engine import calling_run_engine, calling_task
from ..parts._signals import DataKeys, EngineSignal, Readings, reading
from ..parts._status import EngineStatus, StageStatus
from ._destination import Destination
from ._errors import CaptureError
from ._paths import PathTemplate
from ._recording import Recording
from ._settings import RecordingSettings
from ._tiled import register_with_tiled
from ._work import Work

__all__ = ["Recorded"]

_log = logging.getLogger(__name__)


class Recorded(RecordingSettings, ABC):
    """States of a device that records to files, for readings and for fly scans.

    ``stage`` begins a `Destination`; each ``trigger`` and each ``kickoff`` begins a `Work`, which
    replaces the one before. Captures and frame detectors add what they record, and how their rows
    become documents.
    """

    lossy = reading(False, kind=Kind.omitted)

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._state = threading.RLock()  # guards the work
        self._work: Work | None = None
        self._destination: Destination | None = None
        self._being_read = False  # by a plan; its documents are collected next
        self._armed = False  # the work was begun by `prepare`, and waits for its kickoff
        super().__init__(prefix, **kwargs)

    # --- What a device adds

    @property
    @abstractmethod
    def limited(self) -> bool:
        """Whether a fly scan ends by itself."""

    @property
    @abstractmethod
    def uncollected(self) -> list[Path]:
        """Files with rows that are in no document yet."""

    @abstractmethod
    def path_template(self) -> PathTemplate:
        """Return the values of templates for a stage that begins now."""

    @abstractmethod
    def stop(self, *, success: bool = False) -> None:
        """Stop recording; files are complete."""

    @property
    @abstractmethod
    def _recorders(self) -> Recording | None:
        """Recorders of the work."""

    @abstractmethod
    def _begin_stage(self) -> None:
        """Begin without rows, after `stage_sigs` have been set."""

    @abstractmethod
    def _end_stage(self) -> None:
        """Restore what the stage has changed."""

    @abstractmethod
    def _leave_out_rows(self) -> None:
        """Leave out rows that are in no document; their files stay."""

    @abstractmethod
    def _forget_rows(self) -> CaptureError | None:
        """Forget all rows; return an error of files that nobody was told."""

    @abstractmethod
    def _start_flight(self) -> EngineStatus:
        """Start recorders for a fly scan; return its status."""

    @abstractmethod
    def _take_run(self) -> None:
        """Let files that `prepare` began report the run of a kickoff."""

    def _add_run(self, files: Sequence[RecordedFile], metadata: dict[str, Any]) -> None:
        """Let files that are complete report a run that began after them."""
        for file in files:
            try:
                add_run(file.path, metadata)
            except (OSError, ValueError) as error:
                _log.warning("%s: the metadata of %s have no run: %s", self.name, file.path, error)

    @abstractmethod
    def _lost_rows_text(self, files: list[Path]) -> str:
        """Return which files are in no document, and what to do."""

    # --- State

    @property
    def is_recording(self) -> bool:
        """Whether it records and is not paused."""
        with self._state:
            return self._work is not None and self._work.running and not self._work.held

    @property
    def failed(self) -> bool:
        """Whether it has failed before `complete`; `collect` raises its error."""
        return self._work is not None and self._work.failed

    def pause_recording(self) -> None:
        """Discard packets that arrive from now on; the file stays valid."""
        with self._state:
            if self._work is not None and self._work.hold() and self._recorders is not None:
                self._recorders.pause()

    def resume_recording(self) -> None:
        """Continue recording after `pause_recording`."""
        with self._state:
            if self._work is not None and self._work.release() and self._recorders is not None:
                self._recorders.resume()

    def refuse_change(self, signal: EngineSignal[Any]) -> None:
        """Raise if a setting is changed that the run already depends on."""
        if self._work is not None and self._work.running:
            raise CaptureError(f"{signal.name} cannot be changed while {self.name} records.")
        super().refuse_change(signal)

    # --- Bluesky

    def stage(self) -> list[object] | StageStatus:
        """Open the engine if it is closed, and start a new set of files.

        Returns a status if the engine is opened on a thread; see `Daq.stage_part`.
        """
        register_with_tiled()
        self.daq.runs.follow(calling_run_engine())
        return self.daq.stage_part(self, self._stage)

    def _stage(self) -> list[object]:
        staged: list[object] = super().stage()
        self._work, self._being_read, self._armed = None, False, False
        try:
            self._destination = Destination(self, self.path_template())
            self._begin_stage()
        except BaseException:
            super().unstage()
            raise
        return staged

    def unstage(self) -> list[object]:
        """Stop recording; the engine stays open.

        Raises
        ------
        CaptureError
            If a fly scan has files in no document, has failed and no plan was told, or a file could
            not be completed. It is only logged if the plan ends early, or knows that the fly scan
            has failed. Files of readings that were never read are only logged as well.
        """
        if self.daq.staged_by_another():
            return []
        if self._staged == Staged.no:
            return super().unstage()
        with self._state:
            work = self._work
            flown = work is not None and work.flown and not self._armed
            owed = work is not None and flown and self._owes_documents(work)
        try:
            self.stop(success=True)
        finally:
            try:
                self._end_stage()
                self._shipping.end()
            finally:
                unstaged: list[object] = super().unstage()
        missing = self.uncollected
        error = self._forget_rows()
        if missing:
            text = f"{self.name}: {self._lost_rows_text(missing)}"
            if owed and error is None:
                error = CaptureError(text)
            else:
                _log.warning(text)
        if owed and error is None and work is not None and work.failed:
            error = CaptureError(f"{self.name} failed: {work.failure}")
            error.__cause__ = work.failure
        self._work = self._destination = None
        if error is not None:
            self._raise_at_end(error)
        return unstaged

    def _owes_documents(self, work: Work) -> bool:
        """Return whether a fly scan's rows have to be in documents when it is unstaged."""
        run_engine = calling_run_engine()
        # After `RE.stop`, the run is a success as well.
        stopping = run_engine is not None and str(run_engine.state) == "stopping"
        if work.is_known_to_fail or (work.held and not stopping):
            return False
        if run_engine is None:
            return work.completing
        runs = self.daq.runs
        # A plan that fails, or ends early, cannot collect. A run that is still open is that of a
        # plan that fails: others close it before.
        plan_fails = work.run in runs.failed or work.run in runs.open
        return (stopping or str(run_engine.state) == "running") and not plan_fails

    def _raise_at_end(self, error: CaptureError) -> None:
        """Raise an error of `unstage`; while the engine is unstaged, after all parts are."""
        if self.daq.unstaging is None:
            raise error
        self.daq.unstaging.append(error)

    def kickoff(self) -> EngineStatus:
        """Start recording; with an external trigger, `prepare` has.

        Raises
        ------
        CaptureError
            If the device is not staged or is already recording, a setting has changed since
            `prepare`, or no file can be created.
        """
        self.require_staged()
        if not self._armed:
            self._require_idle()
        self._require_told()
        if self._armed and self._work is not None:
            self._take_run()
            self._work.run, self._armed = self.daq.runs.latest_uid, False
            return self._done("starting to record")
        self._require_rows_of_run()
        # No timeout before `complete`: no plan waits for packets yet.
        self._start_flight().pause_timeout()
        return self._done("starting to record")

    def complete(self) -> EngineStatus:
        """Return the status of the fly scan; one without a limit stops after `linger`."""
        with self._state:
            work, recorders = self._work, self._recorders
            if work is None or not work.flown or self._armed:
                raise CaptureError(f"{self.name}: no fly scan to complete; kick it off first.")
            first, work.completing = not work.completing, True
            running = work.running
        if first:
            work.status.resume_timeout()
            if running and recorders is not None and not self.limited:
                recorders.end_in(self.linger.get())
        return work.status

    async def pause(self) -> None:
        """Pause the engine; see `Daq.pause`."""
        await self.daq.pause()

    def resume(self) -> None:
        """Resume the engine; see `Daq.resume`."""
        self.daq.resume()

    def read(self) -> Readings:
        """Return the counters of the latest row."""
        if self._staged != Staged.no and calling_run_engine() is not None:
            self._require_reading()
            self._being_read = True
        found = super().read()
        if self.on_drop.get() == "flag":
            found.update(self.lossy.read())
        return found

    # --- For the devices

    def _arm(self) -> None:
        """Start recording before the kickoff, which may come after the first trigger."""
        self._begun().require_run()
        self._armed = True
        try:
            self._start_flight().pause_timeout()
        except BaseException:
            self._armed = False
            raise

    def _disarm(self) -> None:
        """End what `_arm` began, if there was no kickoff; its rows are left out."""
        if not self._armed:
            return
        self._armed = False
        self.stop(success=True)
        if left := self.uncollected:
            _log.warning("%s: there was no kickoff; %s is in no document", self.name, left[0])
            self._leave_out_rows()
        self._work = None

    def _run_metadata(self) -> dict[str, Any]:
        """Return what files that begin now report; see `run_metadata`."""
        return run_metadata(self.daq.runs.current, self.name)

    def _counter_keys(self) -> DataKeys:
        keys = super().describe()
        if self.on_drop.get() == "flag":
            keys.update(self.lossy.describe())
        return keys

    def _begun(self) -> Destination:
        self.require_staged()
        if self._destination is None:
            raise CaptureError(f"{self.name} is not staged.")
        return self._destination

    def _require_idle(self) -> None:
        if self._work is not None and self._work.running:
            raise CaptureError(f"{self.name} is recording; complete that first.")

    def _require_reading(self) -> None:
        """Raise if a plan reads it during a fly scan."""
        work = self._work
        if work is not None and work.flown and (work.running or self.uncollected):
            raise CaptureError(
                f"{self.name}: rows of a fly scan are collected; they cannot be read."
            )

    def _require_rows_of_run(self) -> None:
        """Raise if rows of an earlier fly scan would be in another run; leave out unread ones."""
        missing, work = self.uncollected, self._work
        if not missing or work is None:
            return
        if not work.flown:
            _log.warning("%s: a row was not read; it is in no document", self.name)
            self._leave_out_rows()
        elif not work.is_excused and not (work.completing and work.run == self.daq.runs.latest_uid):
            raise CaptureError(f"{self.name}: {self._lost_rows_text(missing)}")

    def _require_documented(self) -> None:
        """Raise if a reading would leave out rows of a fly scan."""
        work = self._work
        if work is None or not work.flown:
            return
        if work.running and not work.is_excused:
            raise CaptureError(f"{self.name}: a fly scan is running; complete it first.")
        self._require_told()
        missing = self.uncollected
        if missing and not work.is_excused:
            raise CaptureError(f"{self.name}: {self._lost_rows_text(missing)}")

    def _require_told(self) -> None:
        """Raise a failure of the latest fly scan that no plan was told."""
        self._being_read = False
        work = self._work
        in_plan = calling_run_engine() is not None
        if work is not None and work.flown and work.failed and not work.held and in_plan:
            work.told = True
            raise CaptureError(f"{self.name} failed: {work.failure}") from work.failure

    def _require_declared(self) -> None:
        """Raise if a plan collects it from no stream."""
        work = self._work
        if work is None or not (work.flown and work.completing) or calling_task() is None:
            return
        if self.uncollected:
            work.told = True
            raise CaptureError(
                f"{self.name}: no stream was declared for it before complete(), as in bp.fly, "
                "fly_during_wrapper and SupplementalData(flyers=...). Use "
                "daqiri_ophyd.plans.capture_during_wrapper, or bps.declare_stream(detector, "
                "name=..., collect=True) before the kickoff."
            )

    def _require_row(self) -> None:
        """Raise if a plan reads it again without a new trigger: that reading would have no row."""
        was_read, self._being_read = self._being_read, False
        if was_read and not self.uncollected:
            raise CaptureError(
                f"{self.name} was not triggered since its last reading, so it has no new row. "
                "Trigger it before each reading, and put each reading into one stream."
            )

    def _fail(self, error: Exception) -> None:
        if self._work is not None:
            self._work.fail(error)

    def _raise_failure(self) -> None:
        """Raise FailedStatus for a failure that no status reports; wait until a status has."""
        work = self._work
        if work is None:
            return
        if work.failed:
            work.told = True
            raise FailedStatus(work.status) from work.failure
        work.status.wait_told()

    def _done(self, action: str) -> EngineStatus:
        status = EngineStatus(self, action=action, timeout=self.timeout.get())
        status.finish()
        return status
