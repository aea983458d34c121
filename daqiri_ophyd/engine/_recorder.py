"""Recording to files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from daqiri_ophyd import _native

from ._errors import InvalidParameterError

__all__ = ["RecordedFile", "Recorder", "RecorderGroup", "RecorderSnapshot", "require_counts"]


def require_counts(numbers: Mapping[str, int]) -> None:
    """Raise `InvalidParameterError` if a number is negative; the extension takes none of those."""
    for name, value in numbers.items():
        if value < 0:
            raise InvalidParameterError(f"{name} is {value}; accepted is 0 or more")


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file that is complete on disk.

    Parameters
    ----------
    path : Path
        The file; its metadata file has the same name with ``.json`` appended.
    packets, bytes : int
        Packets in it, and their bytes on the wire.
    t_first_ns, t_last_ns : int
        Time stamps of the first and last packet, ns since the epoch; -1 for an empty file.
    dropped : int
        Packets that the queue or the recorder lost since the previous file was complete.
    left_out : int
        Packets that were left out on request in that time: filtered, flushed, received while
        paused, before ``start_flow``, beyond ``max_packets``.
    """

    path: Path
    packets: int
    bytes: int
    t_first_ns: int
    t_last_ns: int
    dropped: int
    left_out: int


@dataclass(frozen=True, slots=True)
class RecorderSnapshot:
    """Progress of a recorder.

    Parameters
    ----------
    packets, bytes : int
        Packets in files, and their bytes on the wire.
    files : int
        Files that are complete.
    dropped : int
        Packets that were taken from the queue and lost after an error.
    left_out : int
        Packets that were taken from the queue and left out on request: while paused, before
        ``start_flow``, beyond ``max_packets``.
    running : bool
        Whether it is running.
    failing : bool
        Whether packets cannot be written at the moment.
    error : str
        First error, with path and reason; empty: none.
    unreported : int
        Packets that the queue or the recorder lost and that are in the metadata of no file, because
        none could be written; known once the recorder has ended.
    """

    packets: int
    bytes: int
    files: int
    dropped: int
    left_out: int
    running: bool
    failing: bool
    error: str
    unreported: int


class RecorderGroup(_native.RecorderGroup):
    """Limits for recorders of several queues whose files belong together.

    When a file is full, all recorders complete theirs, even an empty one, and each ends with a
    file: all have equally many. When one of them ends at `max_packets`, stop the others.

    Parameters
    ----------
    max_packets : int
        Packets in the files of all recorders together, exactly; 0: no limit.
    roll_packets, roll_bytes : int
        Begin new files after this many packets, or bytes on the wire, in all of them together;
        what a recorder takes from its queue until it sees that is still in its file. 0: no limit.
    roll_seconds : float
        Begin new files this time after their first packet, s; 0: no limit.

    Raises
    ------
    InvalidParameterError
        If a number is negative, or the time too long.
    """

    def __init__(
        self,
        *,
        max_packets: int = 0,
        roll_packets: int = 0,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
    ) -> None:
        numbers = {
            "max_packets": max_packets,
            "roll_packets": roll_packets,
            "roll_bytes": roll_bytes,
        }
        require_counts(numbers)
        super().__init__(roll_seconds=roll_seconds, **numbers)


class Recorder:
    """Writes a receive queue to files; see `RxQueue.record`.

    It ends when it is stopped, at ``max_packets``, or when the engine is closed and all packets are
    written. An error does not end it: packets are then counted as dropped until it is stopped, or
    until a new file can be created. A context manager that stops it.
    """

    def __init__(self, native: _native.Recorder) -> None:
        self._native = native

    def stop(self) -> None:
        """Record the packets that the queue holds, complete the current file, end. Idempotent."""
        self._native.stop()

    def roll(self) -> None:
        """Record the packets that the queue holds and complete the current file.

        Raises
        ------
        NotReadyError
            If it has ended.
        GenericFailureError
            If packets cannot be written at the moment; the text is the first error.
        """
        self._native.roll()

    def pause(self) -> None:
        """Discard packets that arrive, counted as left out; files stay valid."""
        self._native.set_paused(True)

    def resume(self) -> None:
        """Record again."""
        self._native.set_paused(False)

    def snapshot(self) -> RecorderSnapshot:
        """Return the progress."""
        return RecorderSnapshot(*self._native.snapshot())

    def files(self, first: int = 0) -> list[RecordedFile]:
        """Return the files that are complete.

        Parameters
        ----------
        first : int
            Number of files to skip.

        Returns
        -------
        list of RecordedFile
            In the order they were written.
        """
        return [RecordedFile(Path(path), *rest) for path, *rest in self._native.files(first)]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for an event: a file is complete, or the recorder ends, fails or recovers.

        Parameters
        ----------
        timeout : float or None
            Longest wait, s. None: no limit.

        Returns
        -------
        bool
            Whether there was an event since the last True.

        Raises
        ------
        InvalidParameterError
            If the timeout is negative.
        """
        return self._native.wait(timeout)

    def fileno(self) -> int:
        """Return an eventfd that becomes readable at an event of `wait`, for `EventPump.add`.

        Read `files` and `snapshot` once after adding it: earlier events are not signalled again.
        """
        return self._native.fileno()

    @property
    def writer(self) -> str:
        """How packets are written to disk: ``buffered`` or ``direct``."""
        return self._native.writer

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __del__(self) -> None:
        if hasattr(self, "_native") and self._native.running:
            text = f"{self!r} was dropped; stop() it"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            self._native.stop()

    def __repr__(self) -> str:
        state = self.snapshot()
        return f"<Recorder {'running' if state.running else 'ended'}, {state.packets} packets>"
