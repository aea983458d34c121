"""Running recorders, their events and their end."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from daqiri_ophyd.engine import (
    RecordedFile,
    Recorder,
    RecorderSnapshot,
    default_pump,
)

from ..parts._ticker import default_ticker

__all__ = ["Recording"]

_log = logging.getLogger(__name__)


class Recording:
    """Reports the files of recorders, and stops all recorders at their limit or when one fails.

    The three functions are called on the thread of the event pump, or on the thread that calls
    `stop`, but never two at once.

    Parameters
    ----------
    recorders : sequence of Recorder
        Running recorders; several are those of a `RecorderGroup`.
    resumes : bool
        Whether a recorder continues by itself after an error.
    on_files : callable
        Called with each complete file; with several recorders, with one file of each.
    on_progress : callable
        Called several times a second with the combined snapshot of all recorders.
    on_end : callable
        Called once, after all files, with the final snapshot.
    on_error : callable
        Called with an exception of these functions, which no thread waits for.
    """

    def __init__(
        self,
        recorders: Sequence[Recorder],
        *,
        resumes: bool,
        on_files: Callable[[Sequence[RecordedFile]], None],
        on_progress: Callable[[RecorderSnapshot], None],
        on_end: Callable[[RecorderSnapshot], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._recorders = recorders
        self._resumes = resumes
        self._on_files = on_files
        self._on_progress = on_progress
        self._on_end = on_end
        self._on_error = on_error
        self.ending = ""
        """Why it is stopped: ``finish``, ``fail``, ``complete``; empty: nobody has stopped it."""
        self._refused = False
        self._seen = 0
        self._ended = False
        self._lock = threading.RLock()
        self._event_fds = [recorder.fileno() for recorder in recorders]
        for fd in self._event_fds:
            default_pump().add(fd, self._on_event)
        default_ticker().add(self._tick, on_error)
        # Files completed before the descriptors were watched are not signaled again.
        os.eventfd_write(self._event_fds[0], 1)

    def pause(self) -> None:
        """Discard packets that arrive; the clock of the time limit stops."""
        for recorder in self._recorders:
            recorder.pause()

    def resume(self) -> None:
        """Record again."""
        for recorder in self._recorders:
            recorder.resume()

    def refuse(self, reason: str) -> None:
        """Go on as on a full disk, for this reason; empty: write again."""
        if not reason and not self._refused:
            return
        self._refused = bool(reason)
        for recorder in self._recorders:
            recorder.refuse(reason)

    def end_in(self, seconds: float) -> None:
        """Stop after this time, s."""
        for recorder in self._recorders:
            recorder.end_in(seconds)

    def end(self, how: str) -> None:
        """Note why it is going to be stopped, unless that is known."""
        self.ending = self.ending or how

    def stop(self) -> None:
        """Record the bursts that the queues have delivered, complete the files. Idempotent."""
        self._stop_recorders()
        self._on_event()

    def snapshot(self) -> RecorderSnapshot:
        """Return the combined progress of all recorders."""
        return _together([recorder.snapshot() for recorder in self._recorders])

    def _stop_recorders(self) -> None:
        for recorder in self._recorders:
            recorder.stop()

    def _tick(self) -> None:
        with self._lock:
            if not self._ended:
                self._on_progress(self.snapshot())

    def _on_event(self) -> None:
        with self._lock:
            if self._ended:
                return
            snapshots = [recorder.snapshot() for recorder in self._recorders]
            # A failed recorder counts every packet as lost until it is stopped. At the limit of a
            # group, only the recorder that reaches it ends.
            failed = any(snapshot.failing for snapshot in snapshots) and not self._resumes
            if failed or not all(snapshot.running for snapshot in snapshots):
                self._stop_recorders()
                snapshots = [recorder.snapshot() for recorder in self._recorders]
            # Snapshots are read before files: if a snapshot shows that the recorders have ended,
            # the lists of files are complete.
            new = [recorder.files(self._seen) for recorder in self._recorders]
            rows = list(zip(*new, strict=False))
            self._seen += len(rows)
            surplus = [str(file.path) for files in new for file in files[len(rows) :]]
            for row in rows:
                self._tell(self._on_files, row)
            if any(snapshot.running for snapshot in snapshots):
                return
            self._ended = True
            for fd in self._event_fds:
                default_pump().remove(fd)
            default_ticker().remove(self._tick)
            last = _together(snapshots)
            if surplus:
                # After an error, the numbers of files of the queues differ.
                text = f"{len(surplus)} files are in no row, such as {surplus[0]}"
                error = "; ".join(filter(None, [last.error, text]))
                last = replace(last, failing=True, error=error)
            self._tell(self._on_end, last)

    def _tell(self, call: Callable[[Any], None], value: Any) -> None:
        """Call a function; its exception ends neither the thread of events nor the recording."""
        try:
            call(value)
        except Exception as error:
            _log.exception("A recording could not be told of.")
            self._on_error(error)


def _together(snapshots: Sequence[RecorderSnapshot]) -> RecorderSnapshot:
    return RecorderSnapshot(
        packets=sum(snapshot.packets for snapshot in snapshots),
        bytes=sum(snapshot.bytes for snapshot in snapshots),
        files=min(snapshot.files for snapshot in snapshots),
        dropped=sum(snapshot.dropped for snapshot in snapshots),
        left_out=sum(snapshot.left_out for snapshot in snapshots),
        running=any(snapshot.running for snapshot in snapshots),
        failing=any(snapshot.failing for snapshot in snapshots),
        error="; ".join(snapshot.error for snapshot in snapshots if snapshot.error),
        unreported=sum(snapshot.unreported for snapshot in snapshots),
        limit_reached=any(snapshot.limit_reached for snapshot in snapshots),
        frames=sum(snapshot.frames for snapshot in snapshots),
        missing=sum(snapshot.missing for snapshot in snapshots),
        flushed=min(snapshot.flushed for snapshot in snapshots),
        acquired=min(snapshot.acquired for snapshot in snapshots),
    )
