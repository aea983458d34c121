"""Files of frames in any state: after a kill, or written by another program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import GenericFailureError, InvalidParameterError
from ._native_path import native_path
from ._plugins import plugin_folder

__all__ = ["FrameFile", "cut_frames", "examine_frames"]

_PROCESS = Path(__file__).with_name("_frame_process.py")
# Long enough for a file on a slow disk.
_SECONDS = 600
_OF_DETECTOR = ("detector", "count_time", "x_pixel_size", "y_pixel_size", "distance")


@dataclass(frozen=True, slots=True)
class FrameFile:
    """
    Contents of a file of frames.

    Parameters
    ----------
    path : Path
        The file.
    plan : str
        The reorder plan.
    layout, compression : str
        ``chunked``, or ``contiguous`` for files of earlier versions and other programs; ``none``,
        ``bitshuffle-lz4``, or numbers of other filters.
    dtype : str
        NumPy name of the type of the elements; empty: NumPy has no such type.
    shape : tuple of int
        Shape of a frame.
    frame_bytes : int
        Bytes of a frame, uncompressed.
    marked : bool
        Whether the file is marked as being written.
    lengths : dict of str to int
        Length of each dataset, frames.
    frames : int
        Frames up to the last one that is whole in all datasets.
    empty : int
        Frames among them without a packet.
    packets, missing : int
        Packets in these frames, and missing packets.
    t_first_ns, t_last_ns : int
        Arrival time of the first and last packet, ns since the epoch; -1: no frames.
    run, detector : dict
        Run, and device that recorded, as far as the file has them: as in its metadata file.
    configuration : str
        YAML of the engine's configuration; empty: not in the file.
    mode : str
        Mode of the plan; empty: the plan as it is written.
    """

    path: Path
    plan: str
    layout: str
    compression: str
    dtype: str
    shape: tuple[int, ...]
    frame_bytes: int
    marked: bool
    lengths: dict[str, int]
    frames: int
    empty: int
    packets: int
    missing: int
    t_first_ns: int
    t_last_ns: int
    run: dict[str, str | int] = field(default_factory=dict)
    detector: dict[str, str | float] = field(default_factory=dict)
    configuration: str = ""
    mode: str = ""


def examine_frames(path: str | Path, *, live: bool = False) -> FrameFile:
    """
    Read the contents of a file of frames.

    The HDF5 library reads it in a separate process, so a broken file cannot harm this one.

    Parameters
    ----------
    path : str or Path
        The file.
    live : bool
        Whether a recorder is writing it.

    Returns
    -------
    FrameFile
        Its contents.

    Raises
    ------
    InvalidParameterError
        If it is not a file of frames, or HDF5 cannot read it; the message names the file.
    GenericFailureError
        If the process that reads it cannot be started, or fails.
    """
    found = _answer("examine", Path(path), "live" if live else "dead")
    found["shape"] = tuple(found["shape"])
    metadata = {key: _value(key, text) for key, text in found.pop("metadata").items()}
    found["detector"] = {
        "name" if key == "detector" else key: metadata.pop(key)
        for key in _OF_DETECTOR
        if key in metadata
    }
    found["run"] = metadata
    return FrameFile(Path(path), **found)


def _value(key: str, text: str) -> str | int | float:
    """Return a value as `Recorder.describe` has it; as text, if another program wrote it so."""
    try:
        if key == "scan_id":
            return int(text)
        return float(text) if key in _OF_DETECTOR[1:] else text
    except ValueError:
        return text


def cut_frames(path: str | Path, frames: int) -> None:
    """
    Cut all datasets of a file to a number of frames, and remove the mark of a writer.

    Parameters
    ----------
    path : str or Path
        The file; no process may be writing it.
    frames : int
        Frames to keep, at most `FrameFile.frames`.

    Raises
    ------
    InvalidParameterError
        If it cannot be changed; the message names the file.
    GenericFailureError
        If the process that changes it cannot be started, or fails.
    """
    _answer("cut", Path(path), str(frames))


def _answer(task: str, path: Path, value: str) -> dict[str, Any]:
    file = native_path(path.absolute())
    command = [sys.executable, "-P", str(_PROCESS), task, file, value, plugin_folder()]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidParameterError(
            f"{path} is damaged: HDF5 did not finish reading it within {_SECONDS} s"
        ) from None
    except OSError as error:
        raise GenericFailureError(
            f"{path} cannot be read: the Python of sys.executable, {sys.executable!r}, cannot be "
            f"started ({error.strerror})"
        ) from error
    if done.returncode < 0:
        what = f"signal {signal.Signals(-done.returncode).name}"
        raise InvalidParameterError(f"{path} is damaged: HDF5 crashed on it ({what})")
    if done.returncode > 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise GenericFailureError(
            f"{path} cannot be read: the process that reads it failed ({lines[-1]})"
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise InvalidParameterError(answer["refused"])
    return answer
