"""Common parts of reports on recorded files and of their repairs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import typer

from ..documents import (
    SidecarError,
    no_link,
    read_sidecar,
    sidecar_part,
    sidecar_path,
    write_sidecar,
)
from ..engine import DaqiriError
from ._output import print_error, print_json, print_line


@dataclass
class FileExamination:
    """
    Result of checking a file.

    Parameters
    ----------
    path
        The file.
    unreadable
        Why it cannot be read; empty if it can.
    metadata
        Problems of the metadata file, one sentence each.
    content
        Contents of the metadata file, if it is valid.
    leftover
        Hidden file that a killed recorder left next to it; None if there is none.
    written
        Whether a recorder is writing the file.
    """

    path: Path
    unreadable: str = ""
    metadata: list[str] = field(default_factory=list)
    content: dict[str, Any] | None = None
    leftover: Path | None = None
    written: bool = False

    @property
    def damages(self) -> list[str]:
        """Damage to repair in the file itself, one sentence each."""
        raise NotImplementedError  # differs with the format

    @property
    def problems(self) -> list[str]:
        """All problems, one sentence each."""
        killed = ""
        if self.leftover is not None:
            name = self.leftover.name
            killed = f"its recorder was killed, so its losses are not known: {name} is left"
        return [text for text in (self.unreadable, *self.damages, *self.metadata, killed) if text]

    @property
    def code(self) -> int:
        """Exit code: 0 sound, 1 can be repaired, 2 cannot be read."""
        return 2 if self.unreadable else 1 if self.problems else 0

    @property
    def state(self) -> str:
        """The exit code as a word."""
        return ("sound", "repairable", "unreadable")[self.code]

    def print_problems(self) -> None:
        """Print each problem, with the name of the file."""
        for problem in self.problems:
            print_error(f"{self.path}: {problem}" if str(self.path) not in problem else problem)


def show_files(
    files: list[Path],
    describe: Callable[[Path], dict[str, Any]],
    show: Callable[[str, dict[str, Any]], None],
    as_json: bool,
) -> None:
    """Print the contents of files; report files that cannot be read as errors."""
    found: dict[str, dict[str, Any]] = {}
    failed = False
    for path in files:
        try:
            found[str(path)] = describe(path)
        except (DaqiriError, SidecarError, OSError) as error:
            failed = True
            print_error(str(error))
    if as_json:
        print_json(found)
    else:
        for name, facts in found.items():
            show(name, facts)
    if failed:
        raise typer.Exit(1)


def repair_files(files: list[Path], repair: Callable[[Path], list[str]], as_json: bool) -> None:
    """Repair files, and print the repairs."""
    done: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    for path in files:
        try:
            done[str(path)] = repair(path)
        except (DaqiriError, OSError, ValueError) as error:
            failed[str(path)] = str(error)
    if as_json:
        print_json({"done": done, "failed": failed})
    else:
        for name, steps in done.items():
            for step in steps or ["sound, not changed"]:
                print_line(f"{name}: {step}")
        for error in failed.values():
            print_error(error)
    if failed:
        raise typer.Exit(1)


def arrival_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a table for the first and the last arrival in a file, UTC, to the ns."""
    return [
        ("first", _moment(found["t_first_ns"])),
        ("last", _moment(found["t_last_ns"])),
        ("duration", f"{found['duration_s']:.9f} s"),
    ]


def run_rows(run: Mapping[str, Any], detector: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a table for the run of a file, as far as it is known."""
    scan = " ".join(str(run[key]) for key in ("scan_id", "plan_name") if key in run)
    rows = [
        ("run", run.get("uid")),
        ("scan", scan),
        ("title", run.get("title")),
        ("sample", run.get("sample")),
        ("experiment", run.get("experiment_identifier")),
        ("started", run.get("start_time")),
        ("detector", detector.get("name")),
    ]
    return [(name, str(value)) for name, value in rows if value]


def _moment(ns: int) -> str:
    seconds, rest = divmod(ns, 10**9)
    return f"{np.datetime64(seconds, 's')}.{rest:09d}Z"


def leftover_of(path: Path) -> Path | None:
    """Return the hidden file that a killed recorder left next to a file; None if there is none."""
    part = sidecar_part(path)
    return part if part.is_file() and not part.is_symlink() else None


def compare_metadata(
    found: FileExamination,
    facts: Mapping[str, Any],
    as_in_file: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda content: content,
) -> None:
    """
    Note differences between the metadata file and the file.

    Parameters
    ----------
    found
        Result that receives the contents and problems of the metadata file.
    facts
        Values that are both in the file and in its metadata.
    as_in_file
        Converts contents to the file's resolution, such as times with fewer digits.
    """
    name = sidecar_path(found.path).name
    try:
        if read_sidecar(found.path) is None:
            return
        content = found.content = json.loads(sidecar_path(found.path).read_bytes())
    except (SidecarError, OSError) as error:
        found.metadata.append(str(error))
        return
    said = as_in_file(content)
    for key, value in facts.items():
        if key not in said:
            found.metadata.append(f"{name} has no {key}, the file has {value}")
        elif said[key] != value:
            shown = content.get(key, said[key])
            found.metadata.append(f"{name} has {key} = {shown}, the file has {value}")


def correct_metadata(found: FileExamination, facts: Mapping[str, Any], target: Path) -> list[str]:
    """
    Write the file's values to the metadata file of ``target``; other keys are kept.

    Parameters
    ----------
    found
        Result of checking the file and its metadata file.
    facts
        Values that are both in the file and in its metadata.
    target
        The file, or its repaired copy.

    Returns
    -------
    list of str
        The repairs.
    """
    source, to = sidecar_path(found.path), sidecar_path(target)
    if found.content is not None:
        write_sidecar(target, found.content | dict(facts))
        said = "; ".join(found.metadata)
        return [f"{to.name} corrected: {said}" if said else f"{to.name} records the cut"]
    if not found.metadata:
        return []
    aside = to.with_name(to.name + ".unusable")
    if to == source:
        source.replace(aside)
    else:
        with open(aside, "xb", opener=no_link) as file:
            file.write(source.read_bytes())
    return [f"the invalid metadata file is now {aside.name}; losses are not known"]
