"""``daqiri-ophyd frames info``, ``frames check`` and ``frames repair``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..documents import frame_facts, is_written
from ..engine import FrameFile, examine_frames
from ._frame_file import examine
from ._frame_file import repair as repair_file
from ._output import print_facts, print_json, print_line, print_message
from ._recorded_file import moment, repair_files, show_files

app = typer.Typer(help="Show, check and repair files of frames.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="HDF5 files of frames.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def info(files: Files, as_json: Json = False) -> None:
    """
    Show the contents of files of frames: counts, times, rates, layout.

    Example: [bold]daqiri-ophyd frames info frames_000000.h5[/bold]
    """
    show_files(files, describe, _print_info, as_json)


@app.command()
def check(files: Files, as_json: Json = False) -> None:
    """
    Check whether files are sound, and report problems.

    Exit code 0: all files are sound; 1: problems that can be repaired; 2: a file cannot be read.

    Example: [bold]daqiri-ophyd frames check *.h5[/bold]
    """
    found = [examine(path) for path in files]
    if as_json:
        print_json(
            {
                str(f.path): {
                    "state": f.state,
                    "problems": f.problems,
                    "frames": 0 if f.frames is None else f.frames.frames,
                    "being_written": f.written,
                }
                for f in found
            }
        )
    else:
        for f in found:
            f.print_problems()
            if f.frames is not None and not f.problems:
                print_line(f"{f.path}: sound, {_counted(f.frames)}{_writer(f.written)}")
        if any(f.code == 1 for f in found):
            print_message(
                "to cut files to their whole frames and correct their metadata: "
                "daqiri-ophyd frames repair FILE..."
            )
    code = max(f.code for f in found)
    if code:
        raise typer.Exit(code)


@app.command()
def repair(files: Files, as_json: Json = False) -> None:
    """
    Cut files to their whole frames, so that any program can open them; correct their metadata.

    Sound files, and files that a recorder is writing, are not changed. FILE.repair.jsonl records
    the changes.

    Example: [bold]daqiri-ophyd frames repair frames_000007.h5[/bold]
    """
    repair_files(files, repair_file, as_json)


def describe(path: Path) -> dict[str, Any]:
    """Return the contents of a file."""
    written = is_written(path)
    frames = examine_frames(path, live=written)
    duration = (frames.t_last_ns - frames.t_first_ns) / 1e9
    size = path.stat().st_size
    return {
        **{key: value for key, value in asdict(frames).items() if key != "path"},
        **frame_facts(frames),
        "file_bytes": size,
        "duration_s": duration,
        "frames_per_s": frames.frames / duration if duration > 0 else None,
        "being_written": written,
    }


def _counted(frames: FrameFile) -> str:
    empty = f", {frames.empty:,} of them without a packet" if frames.empty else ""
    return f"{frames.frames:,} frames{empty}"


def _writer(written: bool) -> str:
    return "; a recorder is writing it" if written else ""


def _print_info(name: str, found: dict[str, Any]) -> None:
    shape = " x ".join(map(str, found["shape"]))
    rows = [
        ("file", name),
        ("plan", found["plan"]),
        (
            "frames",
            f"{found['frames']:,} of {shape} {found['dtype']}{_writer(found['being_written'])}",
        ),
        ("packets", f"{found['packets']:,}, {found['missing']:,} missing"),
        ("bytes", f"{found['bytes']:,} of frames, {found['file_bytes']:,} in the file"),
        ("layout", f"{found['layout']}, compression {found['compression']}"),
    ]
    if found["frames"]:
        rows += [
            ("first", moment(found["t_first_ns"])),
            ("last", moment(found["t_last_ns"])),
            ("duration", f"{found['duration_s']:.9f} s"),
        ]
    if found["frames_per_s"]:
        rows.append(("rate", f"{found['frames_per_s']:,.1f} frames/s"))
    print_facts(rows)
