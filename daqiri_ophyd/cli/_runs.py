"""``daqiri-ophyd runs``, ``runs show`` and ``runs export``."""

import re
from pathlib import Path
from typing import Annotated

import typer

from ._data_directory import DATA, CatalogName, Data, Moved

app = typer.Typer(help="List, show and export the runs of a catalog.", invoke_without_command=True)
# -1 is a run, not an option.
_RUN = {"ignore_unknown_options": True}
_FROM_THE_END = re.compile(r"-[0-9]{1,5}")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def _run_name(text: str) -> str:
    """Return the name of a run; raise if it is an option."""
    if text.startswith("-") and not _FROM_THE_END.fullmatch(text):
        raise typer.BadParameter(f"no such option: {text}")
    return text


Run = Annotated[
    str,
    typer.Argument(
        help="Run: uid or its first characters, scan id, or -1 for the latest.",
        callback=_run_name,
    ),
]


@app.callback()
def runs(
    context: typer.Context,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Number of runs to list, the latest.", min=1)
    ] = 20,
    data: Data = DATA,
    catalog: CatalogName = None,
    as_json: Json = False,
) -> None:
    """
    List, show and export the runs of a catalog.

    Example: [bold]daqiri-ophyd runs --data daqiri-demo[/bold]
    """
    if context.invoked_subcommand is None:
        from ._runs_report import list_runs

        list_runs(count, data, catalog, as_json)


@app.command(context_settings=_RUN)
def show(
    run: Run,
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    as_json: Json = False,
) -> None:
    """
    Show a run: metadata, streams, files and losses.

    Example: [bold]daqiri-ophyd runs show -1 --data daqiri-demo[/bold]
    """
    from ._runs_report import show_run

    show_run(run, data, catalog, moved, as_json)


@app.command(context_settings=_RUN)
def export(
    run: Run,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="New directory for the files.", file_okay=False)
    ],
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    as_json: Json = False,
) -> None:
    """
    Copy a run to a directory that needs no catalog: its files, documents and tables.

    Example: [bold]daqiri-ophyd runs export -1 run1 --data daqiri-demo[/bold]
    """
    from ._run_export import export_run

    export_run(run, directory, data, catalog, moved, as_json)
