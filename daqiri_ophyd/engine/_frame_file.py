"""Files of frames as they are found: after a kill, or made by others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._errors import InvalidParameterError

__all__ = ["FrameFile", "cut_frames", "examine_frames"]

_CODE = "from daqiri_ophyd.engine._frame_process import main; main()"
# For a file on a slow disk.
_SECONDS = 600


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
        ``chunked`` or ``contiguous``; ``none``, ``bitshuffle-lz4``, or numbers of other filters.
    dtype : str
        Type of the elements, as numpy names it; empty: it has no such type.
    shape : tuple of int
        Shape of a frame.
    frame_bytes : int
        Bytes of a frame, uncompressed.
    marked : bool
        Whether the file says that somebody writes it.
    lengths : dict of str to int
        How many frames each dataset is long.
    frames : int
        Frames up to the last one that is whole in all datasets.
    empty : int
        Frames before it without a packet.
    packets, missing : int
        Packets in these frames, and packets that they lack.
    t_first_ns, t_last_ns : int
        When the first and the last of the packets arrived, ns since the epoch; -1: no frames.
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


def examine_frames(path: str | Path, *, live: bool = False) -> FrameFile:
    """
    Find out what a file of frames holds.

    The HDF5 library reads it in a process of its own: a broken file does not harm this one.

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
        If it is no file of frames, or HDF5 cannot read it; the text names the file.
    """
    found = _answer("examine", Path(path), "live" if live else "dead")
    found["shape"] = tuple(found["shape"])
    return FrameFile(Path(path), **found)


def cut_frames(path: str | Path, frames: int) -> None:
    """
    Cut all datasets of a file to so many frames, and remove the mark that somebody writes it.

    Parameters
    ----------
    path : str or Path
        The file; nobody may be writing it.
    frames : int
        `FrameFile.frames`, at most.

    Raises
    ------
    InvalidParameterError
        If it cannot be changed; the text names the file.
    """
    _answer("cut", Path(path), str(frames))


def _answer(task: str, path: Path, value: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-c", _CODE, task, str(path.absolute()), value]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidParameterError(
            f"{path} is damaged: HDF5 was not done with it after {_SECONDS} s"
        ) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        if done.returncode < 0:
            lines = [f"signal {signal.Signals(-done.returncode).name}"]
        raise InvalidParameterError(f"{path} is damaged: HDF5 crashed on it ({lines[-1]})")
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise InvalidParameterError(answer["refused"])
    return answer
