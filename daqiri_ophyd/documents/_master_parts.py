"""The files of a master file: their forms, and the rows to which their frames belong."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._frame_metadata import told_by_frames
from ._opened_file import opened_file
from ._other_files import other_files
from ._sidecar import SidecarError, read_sidecar_content, sidecar_path

__all__ = [
    "Column",
    "Detector",
    "Join",
    "Part",
    "Recording",
    "detectors_of",
    "recordings_of",
    "require_facts",
    "require_one_form",
    "require_one_mode",
]

_INSTRUMENT = "/entry/instrument"
_NUMBERED = re.compile(r"(.*)_(\d{6,})")
Join: TypeAlias = Literal["number", "row"]
"""How recordings are joined."""
Spans: TypeAlias = list[tuple[slice, slice]]
"""Rows of a file, and of the master."""
Placed: TypeAlias = "list[tuple[Part, Spans]]"


@dataclass(frozen=True)
class Column:
    """A dataset with a value for each frame."""

    name: str
    shape: tuple[int, ...]  # of the value
    dtype: np.dtype[Any]
    fill: Any


@dataclass
class Part:
    """A file of frames."""

    path: Path
    facts: dict[str, Any]  # as in its metadata file

    @property
    def frames(self) -> int:
        """Number of its frames."""
        return int(self.facts["frames"])

    @property
    def mode(self) -> str:
        """Mode of its plan; empty: the plan as it is written."""
        return str(self.facts.get("mode", ""))


@dataclass
class Recording:
    """Files that follow each other."""

    parts: list[Part]
    plan: str = ""
    columns: list[Column] = field(default_factory=list)

    @property
    def frames(self) -> int:
        """Number of all frames."""
        return sum(part.frames for part in self.parts)

    @property
    def name(self) -> str:
        """Its first file, for messages."""
        return str(self.parts[0].path)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open a file that has the form of all."""
        for part in self.parts:
            if part.path.is_file():
                with opened_file(part.path) as file:
                    yield file
                return
        raise FileNotFoundError(
            f"{self.name}: none of the files of this recording is here. A master file needs one of "
            "them for the form of its frames: copy one from the object store."
        )

    def numbers(self, column: str = "batch") -> np.ma.MaskedArray[Any, Any]:
        """Return the numbers of its frames in a column.

        Raises
        ------
        ValueError
            If there is no such column, or a number is there twice.
        FileNotFoundError
            If a file is not here.
        """
        numbers_of = [c.name for c in self.columns if not c.shape and c.dtype == np.uint64]
        accepted = [name for name in numbers_of if name != "batch"]
        if column not in (*accepted, "batch"):
            several = any(c.name == column and c.shape for c in self.columns)
            why = ", which has several numbers for each frame" if several else ""
            raise ValueError(
                f"{self.name}: recordings cannot be joined by {column!r}{why}; accepted are the "
                "numbers of frames, and columns of its plan with one for each frame: "
                f"{', '.join(accepted) or 'none'}."
            )
        found, packets = [], []
        for part in self.parts:
            if not part.path.is_file():
                raise FileNotFoundError(
                    f"{part.path} is not here; recordings are joined by the numbers in their files."
                )
            with opened_file(part.path) as file:
                group = file["entry/data"]
                found.append(group[column][: part.frames].astype(np.uint64))
                packets.append(group["packets"][: part.frames])
        numbers = np.ma.array(np.concatenate(found), mask=np.concatenate(packets) == 0)
        if column == "batch":
            # Of a frame that did not come, the number is known if numbers have equal steps;
            # otherwise it has the one of the next frame.
            same = np.append(numbers.data[1:] == numbers.data[:-1], False)
            numbers.mask = numbers.mask & same
        values, counts = np.unique(numbers.compressed(), return_counts=True)
        if (counts > 1).any():
            twice = values[counts > 1][0]
            what = "frame number" if column == "batch" else column
            raise ValueError(
                f"{self.name}: {what} {twice} is there {counts.max()} times, as after a "
                "restart of the detector's counter; recordings are joined by numbers that differ. "
                "Join files of one acquisition each."
            )
        return numbers


@dataclass
class Detector:
    """A detector of the master: a recording, or several whose frames take turns."""

    name: str
    plan: str
    columns: list[Column]
    rows: int
    recordings: list[Recording]
    placed: Placed
    numbers: NDArray[np.uint64] | None = None  # of all rows, if they are joined
    joined: str = "batch"  # the column of these numbers

    def opened(self) -> Any:
        """Open a file that has the form of all."""
        return self.recordings[0].opened()

    def fill_of(self, column: Column) -> Any:
        """Return the value in rows of no file: as for a frame of which no packet came."""
        if column.name == "lossy":
            return True
        if column.name == "missing":
            return self._packets_of_frame()
        if column.dtype.kind == "f" and column.name != "data":
            return math.nan
        return column.fill if column.name == "data" else column.dtype.type(0)

    def _packets_of_frame(self) -> int:
        with self.opened() as file:
            group = file["entry/data"]
            if not len(group["packets"]):
                return 0
            return int(group["packets"][0]) + int(group["missing"][0])

    def first_number(self) -> int | None:
        """Return the number of the first frame; None: its file is not here."""
        if self.numbers is not None:
            return int(self.numbers[0]) if self.joined == "batch" else None
        first = self.placed[0][0].path
        if not first.is_file():
            return None
        with opened_file(first) as file:
            return int(file["entry/data/batch"][0])


def recordings_of(files: Iterable[Path]) -> list[Recording]:
    """Return files by recording: those of a folder with one prefix, by their numbers.

    Raises
    ------
    ValueError
        If there are no frames, or a file is given twice.
    OSError
        If one cannot be read.
    """
    found: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for path in files:
        name = _NUMBERED.fullmatch(path.stem)
        prefix, number = (name[1], int(name[2])) if name else (path.stem, 0)
        found.setdefault((path.parent.resolve(), prefix), []).append((number, path))
    recordings = []
    for numbered in found.values():
        numbered.sort()
        for (number, path), (following, _) in zip(numbered, numbered[1:], strict=False):
            if number == following:
                raise ValueError(f"{path} is given twice.")
        parts = [Part(path, _facts_of(path)) for _, path in numbered]
        recordings.append(Recording([part for part in parts if part.frames]))
    recordings = [recording for recording in recordings if recording.parts]
    if not recordings:
        raise ValueError("A master file needs frames: the files have none.")
    return recordings


def _facts_of(path: Path) -> dict[str, Any]:
    """Return what the metadata file has, or the file, if a killed recorder wrote none."""
    told = read_sidecar_content(path)
    if "parts" in told:
        raise ValueError(f"{path} is a master file itself; name the files that recorders wrote.")
    if {"frames", "t_first_ns", "t_last_ns"} <= told.keys():
        require_facts(path, told)
        return told
    return told_by_frames(path)


def require_facts(path: Path, told: dict[str, Any]) -> None:
    """Raise SidecarError if a metadata file has a wrong kind of value."""
    numbers = ("frames", "packets", "missing", "bytes", "dropped")
    times = ("t_first_ns", "t_last_ns") if told.get("frames") else ()
    kinds: dict[str, type] = dict.fromkeys((*numbers, *times), int)
    kinds |= dict.fromkeys(("configuration", "reorder_plan", "mode"), str)
    for key, kind in kinds.items():
        value = told.get(key, kind())
        if type(value) is not kind or (kind is int and not 0 <= value < 2**63):
            accepted = "whole numbers of 63 bits" if kind is int else "texts"
            raise SidecarError(
                f"{sidecar_path(path)}: its {key!r} is {value!r}; accepted are {accepted}. If it "
                "was edited, remove it: what it has to tell is read from the frames then."
            )


def require_one_form(recordings: Sequence[Recording], *, all_files: bool) -> None:
    """Find the plan and the columns of each recording, in its first file or in all that are here.

    Raises
    ------
    ValueError
        If a file is none of frames, takes data from others, or differs from the first.
    OSError
        If it cannot be read.
    """
    for recording in recordings:
        first: Path | None = None
        for part in recording.parts:
            if not part.path.is_file():
                continue  # in an object store
            with opened_file(part.path) as file:
                plan, columns = _form_of(file, part)
            if first is None:
                first, recording.plan, recording.columns = part.path, plan, columns
            elif plan != recording.plan or _differ(columns, recording.columns):
                raise ValueError(
                    f"{part.path} has {_told(plan, columns)}, and {first} has "
                    f"{_told(recording.plan, recording.columns)}; accepted are files of one "
                    "recording."
                )
            if not all_files:
                break
        if first is None:
            with recording.opened():
                pass


def require_one_mode(recordings: Sequence[Recording]) -> None:
    """Raise ValueError if files of one plan are of several of its modes.

    Their frames may have one shape, and differ in what their pixels are.
    """
    seen: dict[str, Part] = {}
    for recording in recordings:
        # Of several interfaces, each may have a plan of that name, in a mode of its own. Files of
        # killed recorders do not name the interface.
        known = (part.facts.get("reorder_plan") for part in recording.parts)
        plan = next(filter(None, known), recording.plan)
        for part in recording.parts:
            first = seen.setdefault(plan, part)
            if part.mode != first.mode:
                raise ValueError(
                    f"{first.path} has frames of mode {first.mode!r} of plan {plan!r}, and "
                    f"{part.path} of mode {part.mode!r}; accepted are files of one mode ('': the "
                    "plan as it is written). Write a master of those of each: daqiri-ophyd frames "
                    "master FILE... --output NAME.h5"
                )


def _form_of(file: Any, part: Part) -> tuple[str, list[Column]]:
    for name, _, other in other_files(file):
        raise ValueError(
            f"{part.path}: its object {name!r} takes data from another file, {other}; name the "
            "files that recorders wrote."
        )
    try:
        (plan,) = file[_INSTRUMENT]
        group = file["entry/data"]
        columns = [
            Column(name, each.shape[1:], each.dtype, each.fillvalue)
            for name, each in group.items()
            if each.ndim
        ]
        lengths = {name: len(group[name]) for name in ("batch", "data", *group)}
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{part.path} is no file of frames: {error}.") from error
    if short := next((n for n, length in lengths.items() if length < part.frames), None):
        raise ValueError(
            f"{part.path}: its dataset {short!r} has {lengths[short]} rows, and its metadata file "
            f"counts {part.frames} frames. Repair it first: daqiri-ophyd frames repair {part.path}"
        )
    return plan, columns


def _differ(one: Sequence[Column], other: Sequence[Column]) -> bool:
    # NaN as a fill value differs from itself.
    return [(c.name, c.shape, c.dtype) for c in one] != [(c.name, c.shape, c.dtype) for c in other]


def _told(plan: str, columns: Sequence[Column]) -> str:
    (data,) = (column for column in columns if column.name == "data")
    others = ", ".join(
        f"{column.name}{list(column.shape) if column.shape else ''}"
        for column in columns
        if column.name != "data"
    )
    shape = " x ".join(map(str, data.shape))
    return f"frames of {shape} {data.dtype} of plan {plan!r} with the columns {others}"


def detectors_of(
    recordings: Sequence[Recording], join: Join, column: str = "batch"
) -> list[Detector]:
    """Return the detectors, and the rows of their frames.

    Raises
    ------
    ValueError
        If a recording has a number twice, or other rows than the first.
    OSError
        If a file cannot be read.
    """
    if join == "row" or (len(recordings) == 1 and column == "batch"):
        return _of_rows(recordings)
    numbers = [recording.numbers(column) for recording in recordings]
    known = [each.compressed() for each in numbers]
    every = np.unique(np.concatenate(known))
    if not len(every):
        raise ValueError(f"{recordings[0].name} and following: no frame has a {column}.")
    groups = _taking_turns(recordings, known)
    names = _names([recordings[members[0]] for members in groups])
    detectors = []
    for name, members in zip(names, groups, strict=True):
        own = [recordings[index] for index in members]
        placed: Placed = []
        for index, recording in zip(members, own, strict=True):
            begin = 0
            for part in recording.parts:
                of_part = numbers[index][begin : begin + part.frames]
                sources = np.flatnonzero(~np.ma.getmaskarray(of_part))
                rows = np.searchsorted(every, of_part.compressed())
                placed.append((part, list(_spans(rows, sources))))
                begin += part.frames
        detectors.append(
            Detector(name, own[0].plan, own[0].columns, len(every), own, placed, every, column)
        )
    return detectors


def _of_rows(recordings: Sequence[Recording]) -> list[Detector]:
    """Return a detector for each recording, row by row."""
    rows = recordings[0].frames
    detectors = []
    for name, each in zip(_names(recordings), recordings, strict=True):
        if each.frames != rows:
            raise ValueError(
                f"{each.name} and following have {each.frames} frames, and {recordings[0].name} "
                f"and following {rows}; recordings that are joined by rows have equally many."
            )
        placed: Placed = []
        begin = 0
        for part in each.parts:
            placed.append((part, [(slice(0, part.frames), slice(begin, begin + part.frames))]))
            begin += part.frames
        detectors.append(Detector(name, each.plan, each.columns, rows, [each], placed))
    return detectors


def _taking_turns(
    recordings: Sequence[Recording], numbers: Sequence[NDArray[np.uint64]]
) -> list[list[int]]:
    """Return recordings in groups: of one plan, with different frames."""
    groups: list[tuple[NDArray[np.uint64], list[int]]] = []
    for index, recording in enumerate(recordings):
        for at, (taken, members) in enumerate(groups):
            other = recordings[members[0]]
            same = recording.plan == other.plan and not _differ(recording.columns, other.columns)
            same = same and recording.parts[0].mode == other.parts[0].mode
            if same and not np.isin(numbers[index], taken).any():
                groups[at] = (np.concatenate([taken, numbers[index]]), [*members, index])
                break
        else:
            groups.append((numbers[index], [index]))
    return [members for _, members in groups]


def _names(recordings: Sequence[Recording]) -> list[str]:
    """Return names of detectors: those of their plans, with a number if several have it."""
    plans = [recording.plan for recording in recordings]
    names: list[str] = []
    for order, plan in enumerate(plans):
        name = plan if plans.count(plan) == 1 else f"{plan}_{order}"
        # A plan may have the name that one of several gets.
        while name in names or (name != plan and name in plans):
            name += "_"
        names.append(name)
    return names


def _spans(
    rows: NDArray[np.intp], sources: NDArray[np.intp] | None = None
) -> Iterator[tuple[slice, slice]]:
    """Yield runs of rows with equal steps: rows of the file (all of them), and of the master."""
    sources = np.arange(len(rows)) if sources is None else sources
    steps, follows = np.diff(rows), np.diff(sources) == 1
    goes_on = follows & (steps > 0)
    # Where a run ends, at the latest, that has begun before.
    ends = np.flatnonzero(~goes_on | (np.diff(steps, prepend=steps[:1]) != 0))
    begin = 0
    while begin < len(rows):
        step, count = 1, 1
        if begin < len(steps) and goes_on[begin]:
            step = int(steps[begin])
            after = np.searchsorted(ends, begin, side="right")
            count += (int(ends[after]) if after < len(ends) else len(steps)) - begin
        first = int(rows[begin])
        source = int(sources[begin])
        yield (
            slice(source, source + count),
            slice(first, first + (count - 1) * step + 1, step),
        )
        begin += count
