"""Capture of a port: records the packets of a receive queue to files."""

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import StreamAsset

from ._capture_prepared import PreparedCapture
from ._outcome import CaptureError
from ._row_worker import RowWorker
from ._signals import DataKeys, Readings
from ._status import EngineStatus, StageStatus
from ._tiled import register_with_tiled

__all__ = ["Capture"]

_log = logging.getLogger(__name__)


class Capture(PreparedCapture):
    """Records the packets of receive queues to files, in step scans and on the fly.

    ======================= ======================================================================
    hook                    what happens
    ======================= ======================================================================
    ``stage``               opens the engine; files of this run go to a new directory
    ``prepare``             accepts a `CaptureTrigger`: the number of files for each kickoff and of
                            packets in each file, until ``unstage``, which restores the settings
    ``trigger`` (step scan) flushes the queue and records one file; done when `num_packets` or
                            `acquire_time` is reached
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

    # --- Readings

    def describe(self) -> DataKeys:
        """Return the data keys of a step scan: counters, and the file."""
        return {**self._counter_keys(), **self._stream.describe()}

    def read(self) -> Readings:
        """Return the counters of the latest file."""
        reading = super().read()
        if self.on_drop.get() == "flag":
            reading.update(self.lossy.read())
        columns = self._columns
        reduced = {name: self._reduced.get(name, math.nan) for name in columns.reduced}
        for name, value in (columns.of_queues(self._latest, reading) | reduced).items():
            reading[name] = {"value": value, "timestamp": self.packets.timestamp}
        return reading

    @property
    def hints(self) -> dict[str, Any]:
        """Columns to plot: the hinted counters, and reductions."""
        hints = super().hints
        return {**hints, "fields": [*hints.get("fields", ()), *self._columns.reduced]}

    def describe_collect(self) -> DataKeys:
        """Return the data keys of a fly scan, which are those of a step scan."""
        self._declared_prepared = self._trigger is not None
        return dict(self._stream.describe_collect())

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
        """
        self._raise_failure()
        if self._place is not None:
            shared = self._trigger is not None and self._rolling
            yield from self._stream.collect_asset_docs(index, shared=shared)

    @property
    def uncollected(self) -> list[Path]:
        """Complete files that are in no document yet."""
        return self._stream.uncollected

    def collect_pages(self) -> Iterator[dict[str, Any]]:
        """Yield the counters of the same files, as event pages."""
        if self._place is not None:
            yield from self._stream.collect_pages()

    # --- Step and fly scans

    def stage(self) -> list[object] | StageStatus:
        """Open the engine if it is closed, and start a new set of files.

        Returns a status if the engine is opened on a thread; see `Daq.stage_part`.
        """
        register_with_tiled()
        return self.daq.stage_part(self, self._stage)

    def _stage(self) -> list[object]:
        staged: list[object] = super().stage()
        self._place = None
        self._failure = self._status = self._declared_prepared = None
        self._template = self.path_template()
        if self._reductions:
            if self.format.get() != "pcap":
                super().unstage()
                raise CaptureError(f"{self.name}: reductions need format 'pcap'.")
            self._worker = RowWorker(f"{self.name}-reductions")
        # After `stage_sigs` have been set: they affect the data keys of the stream.
        self._stream = self._new_stream()
        return staged

    def unstage(self) -> list[object]:
        """Stop recording; the engine stays open.

        Raises
        ------
        CaptureError
            If files of a completed fly scan are in no document. Files in no document are only
            logged if the fly scan failed or was interrupted, if another capture has no row for
            them because it failed, or if they belong to readings that were never read.
        """
        with self._state:
            status = self._status
            lost = self._rolling and self._completing and not self._held
            lost = lost and (status is None or not status.done or status.success)
            lost = lost and not self._another_failed()
        try:
            self.stop(success=True)
        finally:
            if self._worker is not None:
                self._worker.close()
                self._worker = None
            if self._adopted is not None:
                unused, self._adopted = self._adopted.directory, None
                _log.warning("%s: the recording in %s was not continued", self.name, unused)
            try:
                self._end_preparation()
            finally:
                unstaged: list[object] = super().unstage()
        missing = self._stream.uncollected
        if missing:
            self._stream.discard()
            text = f"{self.name}: {len(missing)} files are in no document, such as {missing[0]}"
            error = CaptureError(
                f"{text}. Collect until the status of complete() is done, or use the plan "
                "daqiri_ophyd.plans.capture_during. Captures that share a stream have to write "
                "equally many files."
            )
            if lost:
                self.raise_at_end(error)
            else:
                _log.warning(text)
        return unstaged

    def trigger(self) -> EngineStatus:
        """Record one file.

        Raises
        ------
        CaptureError
            If the device is not staged, neither `num_packets` nor `acquire_time` is set, the device
            is prepared for several files, or no file can be created.
        """
        # After a pause the RunEngine triggers the interrupted reading again. The file of the
        # interrupted attempt is not part of the run.
        self.stop(success=True)
        self.require_staged()
        self._require_as_prepared(files=1)
        if not self.limited:
            raise CaptureError(
                f"{self.name}: a reading needs a limit. Set num_packets or acquire_time."
            )
        self.daq.stop_interrupted()
        if self._place is not None:
            if self._status is not None and self._status.success and not self._held:
                for path in self._stream.uncollected:
                    _log.warning("%s: %s was not read; it is in no document", self.name, path)
            self._stream.discard()
        return self._start(rolling=False)

    def kickoff(self) -> EngineStatus:
        """Start recording.

        Raises
        ------
        CaptureError
            If the device is not staged or is already recording, a setting has changed since
            `prepare`, or no file can be created.
        """
        self.require_staged()
        if self._recording is not None:
            raise CaptureError(f"{self.name}: a capture is running; complete it first.")
        self._require_as_prepared()
        # No timeout before `complete`: no plan waits for packets yet.
        self._start(rolling=True).pause_timeout()
        started = EngineStatus(self, action="starting to capture", timeout=self.timeout.get())
        started.finish()
        return started

    def complete(self) -> EngineStatus:
        """Return the status of the capture; a capture without a limit stops after `linger`."""
        with self._state:
            recording, status, first = self._recording, self._status, not self._completing
            if status is None:
                raise CaptureError(f"{self.name}: no capture to complete; kick it off first.")
            self._completing = True
        if first:
            status.resume_timeout()
            if recording is not None and not self.limited:
                recording.end_in(self.linger.get())
        return status

    async def pause(self) -> None:
        """Pause the engine; see `Daq.pause`."""
        await self.daq.pause()

    def resume(self) -> None:
        """Resume the engine; see `Daq.resume`."""
        self.daq.resume()
