"""A stream of an unfinished run: its rows and its files."""

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
    placed: list[Path | None] = field(default_factory=list)  # by row; None: not readable
    new: list[Path] = field(default_factory=list)


@dataclass
class Stream:
    """Content of a stream, derived from the existing documents."""

    descriptor: dict[str, Any]
    rows: int = 0
    has_readings: bool = False  # rows are known to be those of a step scan
    series: dict[str, Series] = field(default_factory=dict)
    frames: list[FrameColumns] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Keys whose values are in events."""
        return [k for k, value in self.descriptor["data_keys"].items() if "external" not in value]

    @property
    def is_flown(self) -> bool:
        """Whether files contain whole rows; values of other devices are only in lost events."""
        alone = len(self.descriptor["object_keys"]) == 1
        return not self.has_readings and (alone or not self.columns)

    def frames_of(self, key: str) -> FrameColumns | None:
        """Return the frame detector of a data key."""
        return next((frames for frames in self.frames if key in frames.columns), None)
