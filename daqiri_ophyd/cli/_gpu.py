"""``daqiri-ophyd gpu check``."""

from pathlib import Path
from typing import Annotated

import typer

from . import _limits

app = typer.Typer(help="Check whether a GPU assembles correct frames.", no_args_is_help=True)
# Without a callback, Typer turns a single command into the whole program.
app.callback()(lambda: None)


@app.command()
def check(
    folder: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory for cuFile.", exists=True, file_okay=False),
    ] = Path("."),
    seconds: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time for each rate.", parser=_limits.seconds(0, 60)),
    ] = 0.03,
    size: Annotated[
        float,
        typer.Option(
            "--bytes",
            metavar="BYTES",
            help="Size of the packets of a launch, for rates.",
            parser=_limits.number(8192),
        ),
    ] = 512 * 2**20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Assemble frames on the first GPU, compare them with the CPU's, write them with cuFile, measure.

    Packets of several layouts and types go over a loopback to reorder plans. Their frames, in
    pinned memory and in GPU memory, must be identical to those of NumPy and of a plan on the CPU.
    Exit code 1: there is no GPU, or a result is wrong.

    Example: [bold]daqiri-ophyd gpu check --folder /data[/bold]
    """
    from ._gpu_check import check_gpu

    check_gpu(folder, seconds, size, as_json)
