"""Recording to files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from daqiri_ophyd import _native

from ._errors import InvalidParameterError

__all__ = [
    "RecordMetadata",
    "RecordedFile",
    "Recorder",
    "RecorderGroup",
    "RecorderSnapshot",
    "metadata_text",
    "require_counts",
]


# Numbers of frames have at most 64 bits.
_NUMBERS = 2**64

RecordMetadata = Mapping[str, str | int | float]
"""Run and detector of recorded files, by key; see `Recorder.describe`."""


def metadata_text(metadata: RecordMetadata | None) -> dict[str, str]:
    """Return metadata as text, as the extension accepts it."""
    return {key: str(value) for key, value in (metadata or {}).items()}


def require_counts(numbers: Mapping[str, int]) -> None:
    """Raise `InvalidParameterError` if a number is negative; the extension does not accept it."""
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
        Packets in it, and their bytes on the wire. For a file of frames: packets whose data is in
        the frames, and bytes of the frames, uncompressed.
    t_first_ns, t_last_ns : int
        Time stamps of the first and last packet, ns since the epoch; -1 for an empty file.
    dropped : int
        Packets or frames that the queue or plan or the recorder lost since the previous file was
        completed.
    left_out : int
        Packets or frames that were left out on request in that time: filtered, flushed, received
        while paused, before ``start_flow``, beyond ``max_packets``.
    frames, missing : int
        Frames in it, and their missing packets; 0 for a file of packets.
    lost_before_engine : int
        Packets that the host lost before the engine in that time; see `PortCounters`.
    """

    path: Path
    packets: int
    bytes: int
    t_first_ns: int
    t_last_ns: int
    dropped: int
    left_out: int
    frames: int = 0
    missing: int = 0
    lost_before_engine: int = 0


@dataclass(frozen=True, slots=True)
class RecorderSnapshot:
    """Progress of a recorder.

    Parameters
    ----------
    packets, bytes : int
        Packets in files, and their bytes on the wire, also of those that are not `flushed` yet. For
        frames: packets whose data is in them, and bytes of the frames, uncompressed.
    files : int
        Complete files.
    dropped : int
        Packets or frames that were taken from the queue or plan and lost after an error.
    left_out : int
        Packets or frames that were taken and left out on request: while paused, before
        ``start_flow``, beyond ``max_packets``.
    running : bool
        Whether the recorder is running.
    failing : bool
        Whether packets cannot be written at the moment.
    error : str
        First error, with path and cause; empty: none.
    unreported : int
        Lost packets or frames that are in no metadata file, because none could be written; known
        once the recorder has ended.
    limit_reached : bool
        Whether it has ended at ``max_packets`` or at the end of its time.
    frames, missing : int
        Frames in files, and their missing packets; 0 for a recorder of packets.
    flushed : int
        Packets or frames of the current file that other processes can already read, and that a
        killed process leaves.
    acquired : int
        Frames of the completed acquisition (`Recorder.acquire`); 0: none is complete.
    path : Path or None
        The current file, which is not complete yet; None: there is none.
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
    limit_reached: bool
    frames: int = 0
    missing: int = 0
    flushed: int = 0
    acquired: int = 0
    path: Path | None = None


class RecorderGroup(_native.RecorderGroup):
    """Limits for recorders of several queues, or reorder plans, whose files belong together.

    For recorders of reorder plans, all numbers are frames.

    When a file is full, all recorders complete theirs, even an empty one, and each ends with a
    file, so all have the same number of files. When one of them ends at a limit, stop the others.

    Parameters
    ----------
    max_packets : int
        Packets in the files of all recorders together, exactly; 0: no limit.
    roll_packets, roll_bytes : int
        Begin new files after this many packets, or bytes on the wire, in all files together.
        Packets that a recorder takes before it notices this are still in its file. 0: no limit.
    roll_seconds : float
        Begin new files this time after their first packet, s; 0: no limit.
    max_seconds : float
        End this time after the first recorder started, s; 0: no limit. The clock stops while one
        of them is paused.

    Raises
    ------
    InvalidParameterError
        If a number is negative or the time is too long.
    """

    def __init__(
        self,
        *,
        max_packets: int = 0,
        roll_packets: int = 0,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
        max_seconds: float = 0.0,
    ) -> None:
        numbers = {
            "max_packets": max_packets,
            "roll_packets": roll_packets,
            "roll_bytes": roll_bytes,
        }
        require_counts(numbers)
        super().__init__(roll_seconds=roll_seconds, max_seconds=max_seconds, **numbers)


class Recorder:
    """Writes a receive queue, or a reorder plan's frames, to files.

    See `RxQueue.record` and `ReorderPlan.record`.

    It ends when it is stopped, at ``max_packets`` or after ``max_seconds``, or when the engine is
    closed and all packets are written. An error does not end it: packets are then counted as
    dropped until it is stopped, or until a new file can be created. It is a context manager that
    stops the recorder.
    """

    def __init__(self, native: _native.Recorder) -> None:
        self._native = native

    def stop(self) -> None:
        """Record the packets that the queue holds, complete the file, and end. Idempotent."""
        self._native.stop()

    def roll(self) -> None:
        """Record the packets that the queue holds and complete the current file.

        Raises
        ------
        NotReadyError
            If the recorder has ended.
        GenericFailureError
            If packets cannot be written at the moment; the message is the first error.
        """
        self._native.roll()

    def pause(self) -> None:
        """Discard arriving packets, counted as left out; files stay valid, the clock stops."""
        self._native.set_paused(True)

    def resume(self) -> None:
        """Record again."""
        self._native.set_paused(False)

    def refuse(self, reason: str) -> None:
        """Treat files as on a full disk: packets are counted as lost (``write_error``).

        Parameters
        ----------
        reason : str
            The error of the recorder. Empty: write again; a recorder with ``on_error="resume"``
            then continues in another file.
        """
        self._native.refuse(reason)

    def describe(self, metadata: RecordMetadata) -> None:
        """Set the run and the detector that files report.

        They are in the files that begin from now on. The current file has them if its run was not
        known; a file belongs to one run. Without effect once the recorder has ended.

        Parameters
        ----------
        metadata : mapping
            Of the run: ``uid``, ``scan_id`` (int), ``plan_name``, ``start_time`` (ISO 8601),
            ``title``, ``sample``, ``experiment_identifier``. Of the detector: ``detector`` (its
            name), ``count_time`` (s), ``x_pixel_size``, ``y_pixel_size``, ``distance`` (m). All are
            optional; values of the detector are in the next file of frames, not in the current one.

        Raises
        ------
        InvalidParameterError
            If a key is not one of those, or a value is not a number.
        """
        self._native.describe(metadata_text(metadata))

    def acquire(self, frames: int, *, first_number: int | None = None) -> int:
        """Record exactly the next frames whose first packets arrive from now on.

        They are counted by their numbers, from ``first_number``, or from the first one that comes:
        one that does not come is a row of the plan's fill value, with 0 packets.

        Once they are in the file and other processes can read them, ``acquired`` of `snapshot` is
        their number, and there is an event for `wait` and `fileno`. The call ends an earlier
        acquisition.

        Parameters
        ----------
        frames : int
            Number of frames; 0: all, until the next `acquire` or `rewind`.
        first_number : int, optional
            Number of the first frame, for a detector that counts from there in each acquisition.
            Then row 0 is this frame also if it does not come; packets with earlier numbers count as
            ``early``. Without it, row 0 is the first frame that comes.

        Returns
        -------
        int
            ``lost + skipped`` of the plan's counters at the beginning of the acquisition; the
            difference from later values is the loss during it.

        Raises
        ------
        InvalidParameterError
            If a number is negative, the plan has no such number, or the recorder was not started
            with ``held``. An acquisition in progress goes on.
        NotReadyError
            If the recorder has ended.
        """
        require_counts({"frames": frames, "first_number": first_number or 0})
        if first_number is not None and first_number >= _NUMBERS:
            raise InvalidParameterError(
                f"first_number is {first_number}; accepted is less than {_NUMBERS}"
            )
        return self._native.acquire(frames, first_number)

    def rewind(self, frames: int) -> None:
        """Discard the latest frames of the current file, and end an acquisition.

        The discarded frames are counted as left out (``rewound`` in the metadata file).

        Parameters
        ----------
        frames : int
            Frames that the file keeps.

        Raises
        ------
        InvalidParameterError
            If the file has fewer frames, or the recorder was not started with ``held``.
        NotReadyError
            If the recorder has ended.
        GenericFailureError
            If the file cannot be written; the message is the first error.
        """
        require_counts({"frames": frames})
        self._native.rewind(frames)

    def split(self, frames: int) -> None:
        """Complete the current file with its first frames; the next one begins with the others.

        It ends an acquisition.

        Parameters
        ----------
        frames : int
            Frames that the file keeps.

        Raises
        ------
        InvalidParameterError, NotReadyError, GenericFailureError
            As for `rewind`.
        """
        require_counts({"frames": frames})
        self._native.split(frames)

    def end_in(self, seconds: float) -> None:
        """Set the time from now after which the recorder and its group end.

        Parameters
        ----------
        seconds : float
            Time, s; it replaces the rest of ``max_seconds``.

        Raises
        ------
        InvalidParameterError
            If the time is negative or too long.
        """
        self._native.end_in(seconds)

    def snapshot(self) -> RecorderSnapshot:
        """Return the progress."""
        native = self._native.snapshot()
        path = native[-1]
        return RecorderSnapshot(*native[:-1], path=Path(path) if path else None)

    def files(self, first: int = 0) -> list[RecordedFile]:
        """Return the complete files.

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
        """Wait for an event: a file is complete, frames are acquired, the recorder ends or fails.

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

        Read `files` and `snapshot` once after adding it: earlier events are not signaled again.
        """
        return self._native.fileno()

    @property
    def writer(self) -> str:
        """Method of writing files to disk: ``buffered``, ``direct`` or ``cufile``."""
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
        what = f"{state.frames} frames" if state.frames else f"{state.packets} packets"
        return f"<Recorder {'running' if state.running else 'ended'}, {what}>"
