"""A running recorder, its events and its end."""

import os
import threading
from collections.abc import Callable

from daqiri_ophyd.engine import RecordedFile, Recorder, RecorderSnapshot, default_pump

from ._stop_rule import StopRule
from ._ticker import default_ticker

__all__ = ["Recording"]


class Recording:
    """Reports the files of a recorder, and stops it at its limit or when it fails.

    The three functions are called on the thread of the event pump, or on the one that calls
    `stop`; never two at once.

    Parameters
    ----------
    recorder : Recorder
        A running recorder.
    rule : StopRule
        When to stop.
    resumes : bool
        Whether the recorder continues by itself after an error.
    on_file : callable
        Called with each complete file.
    on_progress : callable
        Called several times a second with a snapshot.
    on_end : callable
        Called once, after all files, with the last snapshot.
    """

    def __init__(
        self,
        recorder: Recorder,
        rule: StopRule,
        *,
        resumes: bool,
        on_file: Callable[[RecordedFile], None],
        on_progress: Callable[[RecorderSnapshot], None],
        on_end: Callable[[RecorderSnapshot], None],
    ) -> None:
        self._recorder = recorder
        self._rule = rule
        self._resumes = resumes
        self._on_file = on_file
        self._on_progress = on_progress
        self._on_end = on_end
        self._seen = 0
        self._ended = False
        self._lock = threading.RLock()
        self._event_fd = recorder.fileno()
        default_pump().add(self._event_fd, self._on_event)
        default_ticker().add(self._tick)
        rule.arm(recorder.stop)
        # Files completed before the descriptor was watched do not signal it again.
        os.eventfd_write(self._event_fd, 1)

    def pause(self) -> None:
        """Discard packets that arrive; the stop rule's clock stops."""
        self._rule.pause()
        self._recorder.pause()

    def resume(self) -> None:
        """Record again."""
        self._recorder.resume()
        self._rule.resume()

    def end_in(self, seconds: float) -> None:
        """Stop after this time, s."""
        self._rule.end_in(seconds)

    def stop(self) -> None:
        """Record the bursts that the queue has delivered, complete the file, stop. Idempotent."""
        self._rule.cancel()
        self._recorder.stop()
        self._on_event()

    def snapshot(self) -> RecorderSnapshot:
        """Return the recorder's progress."""
        return self._recorder.snapshot()

    def _tick(self) -> None:
        with self._lock:
            if not self._ended:
                self._on_progress(self._recorder.snapshot())

    def _on_event(self) -> None:
        with self._lock:
            if self._ended:
                return
            snapshot = self._recorder.snapshot()
            if snapshot.failing and snapshot.running and not self._resumes:
                # A failed recorder counts every packet as lost until it is stopped.
                self._recorder.stop()
                snapshot = self._recorder.snapshot()
            # The snapshot before the files: once it says that the recorder has ended, the list of
            # files is complete.
            files = self._recorder.files(self._seen)
            self._seen += len(files)
            for file in files:
                self._on_file(file)
            if snapshot.running:
                return
            self._ended = True
            self._rule.cancel()
            default_pump().remove(self._event_fd)
            default_ticker().remove(self._tick)
            self._on_end(snapshot)
