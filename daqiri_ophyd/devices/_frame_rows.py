"""Files of the readings of a frame detector."""

import time
from typing import Any

from daqiri_ophyd.engine import DaqiriError, RecorderSnapshot

from ._frame_outcome import Acquisition
from ._frame_recording import RecordingFrames
from ._outcome import CaptureError
from ._status import EngineStatus

__all__ = ["FrameRows"]


class FrameRows(RecordingFrames):
    """Readings of frames in one growing file for each stream.

    Readers treat all rows of a file as rows of one stream. Only the RunEngine knows the stream of a
    reading. The detector infers it from two calls: the RunEngine requests the data keys once for
    each stream, after its first ``trigger`` and before the documents of that reading, and it
    completes the documents that it collects.

    Parameters are those of `FrameSettings`.
    """

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._flight: int | None = None  # frames of each fly scan, as prepared
        self._streams: set[tuple[str, str]] = set()  # runs and descriptors of readings
        self._completes = False  # whether the RunEngine completes documents
        self._fresh = False  # the next reading begins a file
        self._file_begun = 0.0
        super().__init__(prefix, **kwargs)

    def _ready_file(self) -> None:
        """Ensure that a recorder waits with the file of the next reading."""
        _, is_new = self._begin_files()
        self._note_latest()
        if is_new or self._recorder is None or self._flown or self._torn is not None:
            self._close()
            self._cut_torn()
            self._open(flown=False)
        elif self._begun().documented and (self._fresh or self._is_shared or self._is_full):
            self._roll()
        else:
            return
        self._fresh = False
        self._file_begun = time.monotonic()

    def _take_back(self) -> EngineStatus | None:
        try:
            if self._stream is not None:
                self._note_latest()
        except DaqiriError as error:
            self._note_torn()
            raise CaptureError(f"{self.name}: {error}") from error
        return super()._take_back()

    def _is_short(self, acquisition: Acquisition, snapshot: RecorderSnapshot) -> bool:
        return self._flight is not None and snapshot.acquired < acquisition.wanted

    def _note_latest(self) -> None:
        """Determine the stream of the latest reading; discard the reading if it has none."""
        stream = self._begun()
        latest = stream.latest
        if latest is None or self._flown or self._recorder is None:
            return
        run, descriptor = latest
        if descriptor:
            self._completes = True
            self._streams = {known for known in self._streams if known[0] == run} | {latest}
        elif stream.documented == 1:
            self._fresh = True  # its file is in no collected document
        elif self._completes:
            stream.retract()
            self._recorder.rewind(stream.documented * self._per_row)

    @property
    def _is_shared(self) -> bool:
        """Whether the run has readings in several streams; the next may belong to any of them."""
        return len(self._streams) > 1

    @property
    def _is_full(self) -> bool:
        frames = self._begun().documented * self._per_row
        limits = [
            (self.roll_frames.get(), frames),
            (self.roll_bytes.get(), frames * self.frame_bytes),
            (self.roll_seconds.get(), time.monotonic() - self._file_begun),
        ]
        return any(limit and value >= limit for limit, value in limits)

    def _begin_stream(self) -> None:
        """Begin a file for a stream, with the reading not collected yet or the next one."""
        stream = self._begun()
        if self._flown or self._recorder is None or not stream.documented:
            return
        if not stream.uncollected:
            self._fresh = True
            return
        with self._state:
            self._recorder.split(stream.documented * self._per_row)
            stream.discard()
            self._follow_roll()
            stream.grow(self._per_row)
        self._file_begun = time.monotonic()

    def _close(self) -> None:
        """End the recorder of readings."""
        with self._state:
            recording = self._recording
            self._ending = self._ending or "finish"
        if recording is not None:
            recording.stop()
