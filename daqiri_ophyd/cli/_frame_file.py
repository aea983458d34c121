"""Checking and repairing a file of frames and its metadata file."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from ..documents import SidecarError, frame_facts, is_master, is_written, logged, require_no_links
from ..engine import DaqiriError, FrameFile, cut_frames, examine_frames
from ._frames_master import missing_parts
from ._recorded_file import FileExamination, compare_metadata, correct_metadata, leftover_of


@dataclass
class Examination(FileExamination):
    """
    Result of checking a file of frames.

    Parameters
    ----------
    frames
        Its contents; None if it cannot be read.
    damage
        Damage to repair in the file, one sentence each.
    is_master
        Whether its frames are in other files.
    """

    frames: FrameFile | None = None
    damage: list[str] = field(default_factory=list)
    is_master: bool = False

    @property
    def damages(self) -> list[str]:
        """Damage to repair in the file itself, one sentence each."""
        return self.damage


def examine(path: Path) -> Examination:
    """Check a file and its metadata file."""
    if _is_master(path):
        found = Examination(path, is_master=True)
        try:
            missing = missing_parts(path)
        except SidecarError as error:
            found.unreadable = str(error)
            return found
        if missing:
            found.unreadable = (
                f"{path}: {len(missing)} of its files are not where it names them, such as "
                f"{missing[0]}; their rows have the fill value"
            )
        return found
    found = Examination(path, written=is_written(path))
    try:
        frames = found.frames = examine_frames(path, live=found.written)
    except DaqiriError as error:
        found.unreadable = str(error)
        return found
    if not found.written:
        found.damage = _damage(frames)
        compare_metadata(found, frame_facts(frames))
        found.leftover = leftover_of(path)
    return found


def _is_master(path: Path) -> bool:
    try:
        return is_master(path)
    except SidecarError:
        return False  # reported with the file


def _damage(frames: FrameFile) -> list[str]:
    found = []
    if frames.marked:
        found.append("it is marked as open for writing, as a killed writer leaves it")
    longer = {n: length for n, length in frames.lengths.items() if length != frames.frames}
    if longer:
        told = ", ".join(f"{name} {length:,}" for name, length in longer.items())
        found.append(f"{frames.frames:,} frames are whole, and its datasets are longer: {told}")
    return found


def repair(path: Path) -> list[str]:
    """
    Cut a file to its whole frames, remove its mark, and correct its metadata file.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    list of str
        The repairs; empty if the file is sound and was not changed.

    Raises
    ------
    ValueError
        If it cannot be read, or a recorder is writing it.
    OSError
        If it cannot be written.
    """
    found = examine(path)
    if found.written or is_written(path):
        raise ValueError(f"{path} is being written by a recorder; stop the recorder first")
    if found.is_master and not found.unreadable:
        return []
    if found.frames is None:
        raise ValueError(found.unreadable)
    if not found.problems:
        return []
    require_no_links(path)
    done = []
    if found.damage or found.leftover is not None:
        done += _cut(path, found.frames, found.damage)
    if found.leftover is not None:
        found.leftover.unlink(missing_ok=True)
        done.append(f"{found.leftover.name}, which its recorder left, is removed")
    if found.metadata:
        done += correct_metadata(found, frame_facts(found.frames), path)
    return done


def _cut(path: Path, frames: FrameFile, damage: list[str]) -> list[str]:
    entry = {
        "file": str(path),
        "frames_kept": frames.frames,
        "lengths": frames.lengths,
        "reason": "; ".join(damage),
    }
    with logged(path, entry) if damage else nullcontext():
        # Also frees space that the recorder had allocated after the end.
        cut_frames(path, frames.frames)
    done = []
    if frames.marked:
        done.append("the mark of its writer is removed")
    if set(frames.lengths.values()) != {frames.frames}:
        done.append(f"cut to {frames.frames:,} frames, of up to {max(frames.lengths.values()):,}")
    return done
