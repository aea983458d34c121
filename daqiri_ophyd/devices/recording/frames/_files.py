"""Files of a frame detector in a stage: the recorder that writes them, and their rows."""

import logging
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import FrameStream, keep_frames
from daqiri_ophyd.engine import DaqiriError, RecordedFile, Recorder

from .._errors import CaptureError
from .._paths import PathInfo
from .._recording import Recording

__all__ = ["DetectorFiles", "FrameRecording"]

_log = logging.getLogger(__name__)


# Recorders that cannot end: dropping one would wait for it.
_abandoned: list[Any] = []


class FrameRecording(Recording):
    """Also reports progress at each event, which means that new frames can be read."""

    def _on_event(self) -> None:
        with self._lock:
            super()._on_event()
            if not self._ended:
                self._on_progress(self.snapshot())


class DetectorFiles:
    """Files of a stage. Readings share a recorder and a file that grows; a fly scan has its own.

    The recorder accepts frames only on request. All methods but `close` and `cut_torn` are called
    with the lock of the detector.

    Parameters
    ----------
    name : str
        Name of the detector.
    stream : FrameStream
        Documents of its rows.
    """

    def __init__(self, name: str, stream: FrameStream) -> None:
        self._name = name
        self.stream = stream
        self.recorder: Any = None  # Recorder or None
        self.recording: Recording | None = None
        self.flown = False
        self.next_number = 0  # of the next recorder's first file
        self.late: CaptureError | None = None  # error of a recorder while no status was open
        self._number = 0  # of this file
        self._seen = 0  # complete files of the recorder
        self._per_row = 1
        self._place: Any = None  # PathInfo, once it was opened
        # Files whose latest row is in documents that may be dropped; frames before it, a document.
        self._doubtful: list[tuple[Path, int, Any]] = []
        self._torn: tuple[Path, int] | None = None  # file that ends in a reading; frames before it

    def open(
        self,
        recorder: Recorder,
        place: PathInfo,
        *,
        flown: bool,
        per_row: int,
        per_file: int | None = None,
    ) -> None:
        """Continue with a recorder that waits, whose first file has number `next_number`.

        Parameters
        ----------
        recorder : Recorder
            The recorder.
        place : PathInfo
            Where its files are.
        flown : bool
            Whether it is that of a fly scan.
        per_row : int
            Frames that are read together.
        per_file : int, optional
            As for `FrameStream.begin`.
        """
        self._place = place
        self._number, self._seen = self.next_number, 0
        self._per_row = per_row
        self.flown = flown
        self.recorder = recorder
        self.stream.begin(
            self._path(self._number),
            uri=place.directory_uri,
            frames_per_row=per_row,
            flown=flown,
            per_file=per_file,
        )

    @property
    def torn(self) -> bool:
        """Whether a file ends in frames of no reading."""
        return self._torn is not None

    def close(self) -> None:
        """End the recorder; its file is complete."""
        recording = self.recording
        if recording is not None:
            recording.end("finish")
            recording.stop()

    def abandon(self) -> None:
        """Leave a recorder that cannot end; rows that are in no document are left out."""
        _abandoned.append((self.recorder, self.recording))
        self.stream.discard()
        self.ended()

    def ended(self) -> None:
        """Note that the recorder has ended."""
        self.recorder = self.recording = None
        self.next_number = self._number + 1

    def take_complete(self, file: RecordedFile) -> None:
        """Register a complete file; the files of a fly scan follow each other."""
        self._seen += 1
        if self.flown:
            self.register(file.path, file.frames)

    @property
    def has_one(self) -> bool:
        """Whether the recorder has one complete file."""
        return self._seen == 1

    def is_current(self, files: int) -> bool:
        """Return whether all of this number of complete files are registered."""
        return files == self._seen

    def register(self, path: Path, frames: int) -> None:
        """Register frames in a file, whose number may differ from the expected one."""
        self._number = max(self._number, int(path.stem.rpartition("_")[2]))
        if not frames:
            return
        if path != self.stream.current:
            self.stream.follow(path, uri=self._place.directory_uri)
        self.stream.grow(frames)

    def roll(self) -> None:
        """Continue with a new file for readings."""
        self.recorder.roll()
        self._begin_next()

    def split(self) -> None:
        """Move the reading that is in no document to a new file."""
        self.recorder.split(self.stream.documented * self._per_row)
        self.stream.discard()
        self._begin_next()
        self.stream.grow(self._per_row)

    def doubt(self) -> None:
        """Note that the latest row was dropped, unless its documents are saved later."""
        if self.stream.current is not None:
            frames = (self.stream.documented - 1) * self._per_row
            doubtful = (self.stream.current, frames, self.stream.latest_datum)
            if doubtful not in self._doubtful:
                self._doubtful.append(doubtful)

    def cut_dropped(self, *, last: bool = False) -> None:
        """Remove rows whose documents were dropped, from files that are complete.

        Parameters
        ----------
        last : bool
            Whether no document can be saved any more. Otherwise the latest row may still be.
        """
        doubtful, self._doubtful = self._doubtful, []
        if doubtful and not last:
            self._doubtful.append(doubtful.pop())
        for path, frames, datum in doubtful:
            if not datum["descriptor"]:
                self._cut(path, frames)

    def take_back(self) -> None:
        """Discard frames of readings that are in no document.

        Raises
        ------
        CaptureError
            If the recorder has ended or cannot write, so the file keeps frames of no reading.
        """
        self.stream.discard()
        try:
            if self.recorder is None:
                raise CaptureError("the recorder has ended")
            self.recorder.pause()
            self.recorder.rewind(self.stream.documented * self._per_row)
        except (CaptureError, DaqiriError) as error:
            self.note_torn()
            raise CaptureError(
                f"{self._name}: {self.stream.current} has frames of a reading that is in no "
                f"document ({error}). Stage the device again: its readings go to another file."
            ) from error

    def note_torn(self) -> None:
        """Note that the latest file has frames of no reading after its rows."""
        if self.stream.current is not None:
            self._torn = (self.stream.current, self.stream.whole)

    def cut_torn(self) -> None:
        """Remove an incomplete reading from a file: readers treat its rows as one stream."""
        torn, self._torn = self._torn, None
        if torn is not None:
            self._cut(*torn)

    def _cut(self, path: Path, frames: int) -> None:
        if not path.exists():
            return
        try:
            keep_frames(path, frames, reason="they are of no reading")
        except (DaqiriError, OSError, ValueError) as error:
            _log.warning("%s: %s has frames of no reading: %s", self._name, path, error)

    def _begin_next(self) -> None:
        self._number += 1
        self.stream.begin(
            self._path(self._number), uri=self._place.directory_uri, frames_per_row=self._per_row
        )

    def _path(self, number: int) -> Path:
        return Path(self._place.directory_path) / f"{self._place.filename}_{number:06d}.h5"
