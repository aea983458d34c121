"""A recorder that is looked after."""

import os
import threading
from collections.abc import Callable

from daqiri_ophyd.engine import RecordedFile, Recorder, RecorderSnapshot, default_pump

from ._pulse import default_pulse
from ._stop_rule import StopRule

__all__ = ["Recording"]


class Recording:
    """Passes on what a recorder finishes, and ends it when its time has come or it fails.

    The three functions are called on the thread of the event pump, or on the one that calls
    `stop`; never two at once.

    Parameters
    ----------
    recorder : Recorder
        A running recorder.
    rule : StopRule
        When to end.
    resumes : bool
        Whether the recorder goes on by itself after an error.
    on_file : callable
        Called with each file that is complete.
    on_beat : callable
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
        on_beat: Callable[[RecorderSnapshot], None],
        on_end: Callable[[RecorderSnapshot], None],
    ) -> None:
        self._recorder = recorder
        self._rule = rule
        self._resumes = resumes
        self._on_file = on_file
        self._on_beat = on_beat
        self._on_end = on_end
        self._seen = 0
        self._ended = False
        self._lock = threading.RLock()
        self._bell = recorder.fileno()
        default_pump().add(self._bell, self._attend)
        default_pulse().add(self._beat)
        rule.arm(recorder.stop)
        # What was finished before the bell was watched does not ring it again.
        os.eventfd_write(self._bell, 1)

    def pause(self) -> None:
        """Discard what arrives; the time of the stop rule stands still."""
        self._rule.hold()
        self._recorder.pause()

    def resume(self) -> None:
        """Record again."""
        self._recorder.resume()
        self._rule.proceed()

    def end_in(self, seconds: float) -> None:
        """End after this time, s."""
        self._rule.end_in(seconds)

    def stop(self) -> None:
        """End now: what the queue has handed over is recorded, the file completed. Idempotent."""
        self._rule.cancel()
        self._recorder.stop()
        self._attend()

    def snapshot(self) -> RecorderSnapshot:
        """Return how far the recorder is."""
        return self._recorder.snapshot()

    def _beat(self) -> None:
        with self._lock:
            if not self._ended:
                self._on_beat(self._recorder.snapshot())

    def _attend(self) -> None:
        with self._lock:
            if self._ended:
                return
            snapshot = self._recorder.snapshot()
            if snapshot.failing and snapshot.running and not self._resumes:
                # It would count what arrives as lost until somebody ends it.
                self._recorder.stop()
                snapshot = self._recorder.snapshot()
            # In this order: all files of a recorder that has ended are seen.
            files = self._recorder.files(self._seen)
            self._seen += len(files)
            for file in files:
                self._on_file(file)
            if snapshot.running:
                return
            self._ended = True
            self._rule.cancel()
            default_pump().remove(self._bell)
            default_pulse().remove(self._beat)
            self._on_end(snapshot)
