"""``daqiri-ophyd frames info``, ``frames check`` and ``frames repair``."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Show, check and repair files of frames.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="HDF5 files of frames.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def info(files: Files, as_json: Json = False) -> None:
    """
    Show the contents of files of frames: counts, times, rates, layout.

    Example: [bold]daqiri-ophyd frames info frames_000000.h5[/bold]
    """
    from ._frames_report import show_frames

    show_frames(files, as_json)


@app.command()
def check(files: Files, as_json: Json = False) -> None:
    """
    Check whether files are sound, and report problems.

    Exit code 0: all files are sound; 1: problems that can be repaired; 2: a file cannot be read.

    Example: [bold]daqiri-ophyd frames check *.h5[/bold]
    """
    from ._frames_report import check_frames

    check_frames(files, as_json)


@app.command()
def repair(files: Files, as_json: Json = False) -> None:
    """
    Cut files to their whole frames, so that any program can open them; correct their metadata.

    Sound files, and files that a recorder is writing, are not changed. FILE.repair.jsonl records
    the changes.

    Example: [bold]daqiri-ophyd frames repair frames_000007.h5[/bold]
    """
    from ._frames_report import repair_frames

    repair_frames(files, as_json)
