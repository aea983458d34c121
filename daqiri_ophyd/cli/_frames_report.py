"""Reports on files of frames, and their repair."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from ..documents import frame_facts, is_master, is_written
from ..engine import FrameFile, examine_frames
from ._frame_file import examine, repair
from ._frames_master import describe_master, master_report
from ._output import print_facts, print_json, print_line, print_message
from ._recorded_file import arrival_rows, repair_files, run_rows, show_files


def show_frames(files: list[Path], as_json: bool) -> None:
    """Print the contents of files."""
    show_files(files, describe, _print_info, as_json)


def check_frames(files: list[Path], as_json: bool) -> None:
    """Report problems of files; exit with the code of the worst."""
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
            if f.is_master and not f.problems:
                print_line(master_report(f.path))
            elif f.frames is not None and not f.problems:
                print_line(f"{f.path}: sound, {_counted(f.frames)}{_writer(f.written)}")
        if any(f.code == 1 for f in found):
            print_message(
                "to cut files to their whole frames and correct their metadata: "
                "daqiri-ophyd frames repair FILE..."
            )
    code = max(f.code for f in found)
    if code:
        raise typer.Exit(code)


def repair_frames(files: list[Path], as_json: bool) -> None:
    """Repair files, and print the repairs."""
    repair_files(files, repair, as_json)


def describe(path: Path) -> dict[str, Any]:
    """Return the contents of a file."""
    if is_master(path):
        found = describe_master(path)
    else:
        written = is_written(path)
        frames = examine_frames(path, live=written)
        found = {
            **{key: value for key, value in asdict(frames).items() if key != "path"},
            **frame_facts(frames),
            "file_bytes": path.stat().st_size,
            "being_written": written,
        }
    duration = (found["t_last_ns"] - found["t_first_ns"]) / 1e9
    rate = found["frames"] / duration if duration > 0 else None
    return {**found, "duration_s": duration, "frames_per_s": rate}


def _counted(frames: FrameFile) -> str:
    empty = f", {frames.empty:,} of them without a packet" if frames.empty else ""
    return f"{frames.frames:,} frames{empty}"


def _writer(written: bool) -> str:
    return "; a recorder is writing it" if written else ""


def _print_info(name: str, found: dict[str, Any]) -> None:
    shape = " x ".join(map(str, found["shape"]))
    mode = f", mode {found['mode']}" if found["mode"] else ""
    rows = [
        ("file", name),
        *run_rows(found["run"], found["detector"]),
        ("plan", f"{found['plan']}{mode}"),
        (
            "frames",
            f"{found['frames']:,} of {shape} {found['dtype']}{_writer(found['being_written'])}",
        ),
        ("packets", f"{found['packets']:,}, {found['missing']:,} missing"),
        ("bytes", f"{found['bytes']:,} of frames, {found['file_bytes']:,} in the file"),
        ("layout", f"{found['layout']}, compression {found['compression']}"),
    ]
    if "parts" in found:
        absent = len(found["missing_parts"])
        rest = f", {absent} of them not here" if absent else ""
        rows.append(("master of", f"{len(found['parts'])} files{rest}"))
    if found["frames"]:
        rows += arrival_rows(found)
    if found["frames_per_s"]:
        rows.append(("rate", f"{found['frames_per_s']:,.1f} frames/s"))
    print_facts(rows)
