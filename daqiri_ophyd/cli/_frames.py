"""``daqiri-ophyd frames info``, ``check``, ``repair``, ``master`` and ``correct``."""

from math import inf
from pathlib import Path
from typing import Annotated

import typer

from ._limits import number

app = typer.Typer(
    help="Show, check, repair, join and correct files of frames.", no_args_is_help=True
)

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


@app.command()
def master(
    files: Files,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write. Default: FILE_master.h5, beside the first file."),
    ] = None,
    pixel_mask: Annotated[
        str | None,
        typer.Option(help="Mask to add: NAME.npy or NAME.h5:/DATASET.", metavar="SOURCE"),
    ] = None,
    dark: Annotated[str | None, typer.Option(help="Dark frame to add.", metavar="SOURCE")] = None,
    flatfield: Annotated[
        str | None, typer.Option(help="Flat field to add.", metavar="SOURCE")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(help="Value to add to /entry/run; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    by_row: Annotated[
        bool,
        typer.Option("--by-row", help="Join recordings row by row, not by the numbers of frames."),
    ] = False,
    join: Annotated[
        str | None,
        typer.Option(
            help="Join recordings by a column of their plans, such as a pulse id, not by the "
            "numbers of frames.",
            metavar="COLUMN",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """
    Write one file in which the frames of several are one dataset: a master of virtual datasets.

    Files that follow each other are in the order of their numbers. Recordings of several receivers
    are joined by the numbers of frames; rows that one lacks have its fill value and 0 packets.

    Example: [bold]daqiri-ophyd frames master images_0*.h5[/bold]
    """
    from ._frames_master import make_master

    references = {"pixel_mask": pixel_mask, "dark": dark, "flatfield": flatfield}
    if by_row and join is not None:
        raise typer.BadParameter(
            "found beside --by-row; accepted is one of them.", param_hint="--join"
        )
    way = "row" if by_row else "number"
    make_master(files, output, references, attribute or [], way, join or "batch", as_json)


@app.command()
def correct(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="HDF5 file of frames, or a master.")],
    output: Annotated[
        Path | None,
        typer.Option(help="File to write. Default: FILE_corrected.h5, beside it."),
    ] = None,
    pixel_mask: Annotated[
        str | None,
        typer.Option(
            help="Mask: NAME.npy or NAME.h5:/DATASET. Default: that of the master.",
            metavar="SOURCE",
        ),
    ] = None,
    dark: Annotated[
        str | None,
        typer.Option(help="Dark frame. Default: that of the master.", metavar="SOURCE"),
    ] = None,
    flatfield: Annotated[
        str | None,
        typer.Option(help="Flat field. Default: that of the master.", metavar="SOURCE"),
    ] = None,
    fill: Annotated[
        float,
        typer.Option(
            help="Value of pixels that are masked or did not arrive.",
            parser=number(-inf, inf, nan=True),
        ),
    ] = float("nan"),
    as_json: Json = False,
) -> None:
    """
    Write a file of corrected frames: (frame - dark) / flatfield, without masked pixels.

    Frames are float32. Pixels that are masked, or whose packets did not arrive, are not a number.
    The file itself is not changed.

    Example: [bold]daqiri-ophyd frames correct images_000000_master.h5[/bold]
    """
    from ._frames_correct import correct_frames

    references = {"pixel_mask": pixel_mask, "dark": dark, "flatfield": flatfield}
    given = {name: source for name, source in references.items() if source is not None}
    correct_frames(file, output, given, fill, as_json)
