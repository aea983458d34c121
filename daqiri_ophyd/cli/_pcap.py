"""``daqiri-ophyd pcap info``, ``pcap check`` and ``pcap repair``."""

from pathlib import Path
from typing import Annotated

import typer

from ._limits import whole

app = typer.Typer(help="Show, check and repair pcap files.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="pcap files.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def info(
    files: Files,
    flows: Annotated[
        int, typer.Option(metavar="COUNT", help="Largest flows to list.", parser=whole())
    ] = 5,
    as_json: Json = False,
) -> None:
    """
    Show the contents of pcap files: counts, times, rates, flows, and their metadata files.

    Example: [bold]daqiri-ophyd pcap info daqiri-demo/captures/*/*/*/*/*.pcap[/bold]
    """
    from ._pcap_report import show_pcap

    show_pcap(files, flows, as_json)


@app.command()
def check(files: Files, as_json: Json = False) -> None:
    """
    Check whether files are sound, and report problems.

    Exit code 0: all files are sound; 1: problems that can be repaired; 2: a file cannot be read.

    Example: [bold]daqiri-ophyd pcap check *.pcap[/bold]
    """
    from ._pcap_report import check_pcap

    check_pcap(files, as_json)


@app.command()
def repair(
    files: Files,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write a repaired copy here instead, as classic pcap; for one file. Must not "
            "exist."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """
    Cut files to their complete packets and correct their metadata files.

    Sound files, and files that a recorder is writing, are not changed. FILE.repair.jsonl records
    the changes.

    Example: [bold]daqiri-ophyd pcap repair port0_000007.pcap[/bold]
    """
    if output is not None and len(files) > 1:
        raise typer.BadParameter(f"--output is for one file; {len(files)} are given")
    from ._pcap_report import repair_pcap

    repair_pcap(files, output, as_json)
