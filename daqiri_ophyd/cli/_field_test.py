"""``daqiri-ophyd field-test``."""

from pathlib import Path
from typing import Annotated

import typer

from . import _limits
from ._source import load_source


def _folder(text: str | Path) -> Path:
    """Return the folder of an option; Typer gives the default as a path."""
    accepted = "accepts a folder, which is made if it does not exist"
    if text == "":
        raise typer.BadParameter(f"found ''; {accepted}")
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise typer.BadParameter(f"found {str(path)!r}, which is no folder; {accepted}")
    return path


def _group(text: str) -> str:
    from ..field_test import GROUPS

    if text not in GROUPS:
        raise typer.BadParameter(f"found {text!r:.80}; accepts {', '.join(GROUPS)}")
    return text


def field_test(
    config: Annotated[
        str,
        typer.Argument(
            help="Configuration file or profile, with a port that sends and one that receives."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder for the report.", parser=_folder
        ),
    ] = Path("field-test"),
    seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Time of each trial of a rate.",
            parser=_limits.seconds(0.05, 60),
        ),
    ] = 1.0,
    limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Longest time of all steps.", parser=_limits.seconds(1)
        ),
    ] = 1200.0,
    traffic: Annotated[
        float,
        typer.Option(
            metavar="GB", help="Most bytes to send, GB.", parser=_limits.number(0.001, 1e6)
        ),
    ] = 1000.0,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Do steps of this name only; repeatable.", parser=_group),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Begin anew, not with the steps that are left; with --only, do these again and "
            "keep the others.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """
    Test each feature of a configuration on this host and its cards, and write a report.

    It sends to the ports, and to multicast groups, that the configuration names, and to no others.
    The report is written after each step that passed or failed, and at the end, as JSON and HTML;
    the same command goes on where it ended, and repeats steps that failed. Exit code 0: no step
    failed, and none is left; 130: ended by Ctrl-C.

    Example: [bold]daqiri-ophyd field-test cards.yaml --output cards-2[/bold]
    """
    from ._field_test_run import run_field_test

    run_field_test(
        load_source(config),
        output,
        name=config,
        seconds=seconds,
        limit=limit,
        traffic=round(traffic * 1e9),
        only=only or (),
        again=again,
        as_json=as_json,
    )
