"""A stream of a run that was not closed: its rows, and its files."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._unfinished_frames import FrameColumns

__all__ = ["Series", "Stream"]


@dataclass
class Series:
    """The files of one data key of a stream."""

    key: str
    resource: dict[str, Any] = field(default_factory=dict)
    next_number: int = 0
    placed: list[Path | None] = field(default_factory=list)  # row by row; None: not readable
    new: list[Path] = field(default_factory=list)


@dataclass
class Stream:
    """What is known of a stream, from the documents that there are."""

    descriptor: dict[str, Any]
    rows: int = 0
    has_readings: bool = False  # rows are those of a step scan, as documents prove
    series: dict[str, Series] = field(default_factory=dict)
    frames: list[FrameColumns] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Keys whose values are in events."""
        return [k for k, value in self.descriptor["data_keys"].items() if "external" not in value]

    @property
    def is_flown(self) -> bool:
        """Whether files can tell all of a row; other devices' values are in lost events only."""
        alone = len(self.descriptor["object_keys"]) == 1
        return not self.has_readings and (alone or not self.columns)

    def frames_of(self, key: str) -> FrameColumns | None:
        """Return the frame detector that a data key is of."""
        return next((frames for frames in self.frames if key in frames.columns), None)
