"""``daqiri-ophyd frames master``, and masters in reports on files of frames."""

from pathlib import Path
from typing import Any, Literal

import typer

from ..documents import (
    is_master,
    load_reference,
    read_master,
    write_master,
)
from ..engine import DaqiriError, examine_frames
from ._output import print_error, print_json, print_line


def make_master(
    files: list[Path],
    output: Path | None,
    references: dict[str, str | None],
    attributes: list[str],
    join: Literal["number", "row"],
    column: str,
    as_json: bool,
) -> None:
    """Write a master of files, and print what it has."""
    masters = [file for file in files if is_master(file)]
    try:
        if len(masters) == len(files):
            raise ValueError(
                f"{masters[0]} is a master file itself; name the files that recorders wrote."
            )
        # A pattern finds the master of an earlier call, or of the recording, too.
        files = [file for file in files if file not in masters]
        values = dict(_attribute(each) for each in attributes)
        given = {name: source for name, source in references.items() if source}
        shape = examine_frames(files[0]).shape if given else ()
        loaded = {name: load_reference(name, source, shape) for name, source in given.items()}
        path = write_master(
            files, output, attributes=values, references=loaded, join=join, column=column
        )
    except (OSError, DaqiriError, ValueError) as error:
        print_error(reason_of(error))
        raise typer.Exit(1) from None
    told = read_master(path)
    if as_json:
        print_json({str(path): {"frames": told["frames"], "parts": told["parts"]}})
    else:
        print_line(f"{path}: {_counted(told)}{_in_detectors(path)}")


def _in_detectors(path: Path) -> str:
    """Tell that recordings were put beside each other: files that should take turns may overlap."""
    import h5py

    with h5py.File(path, locking=False) as master:
        names = list(master["entry/instrument"])
    return f", {len(names)} detectors: {', '.join(names)}" if len(names) > 1 else ""


def reason_of(error: Exception) -> str:
    """Return what an error says, with the file that it is about."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _attribute(text: str) -> tuple[str, str | float | int]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ValueError(f"--attribute is {text!r}; accepted is NAME=VALUE, such as energy=12.4.")
    for number in (int, float):
        try:
            found = number(value)
        except ValueError:
            continue
        if isinstance(found, int) and not -(2**63) <= found < 2**64:
            raise ValueError(
                f"--attribute {key} is {value}; accepted are whole numbers of 64 bits, from "
                f"{-(2**63)} to {2**64 - 1}, numbers with a decimal point, and texts."
            )
        return key, found
    return key, value


def _counted(told: dict[str, Any]) -> str:
    return f"{told['frames']:,} frames of {len(told['parts'])} files"


def missing_parts(path: Path) -> list[str]:
    """Return the files of a master that are not where it names them."""
    parts = read_master(path)["parts"]
    return [part for part in parts if not (path.parent / part).is_file()]


def describe_master(path: Path) -> dict[str, Any]:
    """Return what the metadata file of a master has, and the files that are here."""
    told = read_master(path)
    here = [path.parent / part for part in told["parts"] if (path.parent / part).is_file()]
    if not here:
        raise FileNotFoundError(
            f"{path}: none of its {len(told['parts'])} files is here, such as {told['parts'][0]}"
        )
    form = examine_frames(here[0])
    counts = ("frames", "packets", "missing", "bytes", "t_first_ns", "t_last_ns")
    return {
        **{key: getattr(form, key) for key in ("plan", "layout", "compression", "dtype", "shape")},
        "run": told.get("run", {}),
        "detector": told.get("detector", {}),
        "mode": told.get("mode", ""),
        **{key: told[key] for key in counts},
        "parts": told["parts"],
        "missing_parts": missing_parts(path),
        "file_bytes": path.stat().st_size + sum(part.stat().st_size for part in here),
        "being_written": False,
    }


def master_report(path: Path) -> str:
    """Return one line about a sound master."""
    return f"{path}: sound master, {_counted(read_master(path))}"
