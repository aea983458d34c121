"""``daqiri-ophyd runs``, ``runs show`` and ``runs export``."""

from pathlib import Path
from typing import Annotated

import typer

from ._data_directory import DATA, RUN_SETTINGS, CatalogName, Data, Moved, Readable, Run
from ._limits import whole

app = typer.Typer(help="List, show and export the runs of a catalog.", invoke_without_command=True)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.callback()
def runs(
    context: typer.Context,
    count: Annotated[
        int,
        typer.Option(
            "--count",
            "-n",
            metavar="COUNT",
            help="Number of runs to list, the latest.",
            parser=whole(1),
        ),
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


@app.command(context_settings=RUN_SETTINGS)
def show(
    run: Run,
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    readable: Readable = None,
    as_json: Json = False,
) -> None:
    """
    Show a run: metadata, streams, files and losses.

    Example: [bold]daqiri-ophyd runs show -1 --data daqiri-demo[/bold]
    """
    from ._runs_report import show_run

    show_run(run, data, catalog, moved, readable, as_json)


@app.command(context_settings=RUN_SETTINGS)
def export(
    run: Run,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="New directory for the files.", file_okay=False)
    ],
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    readable: Readable = None,
    as_json: Json = False,
) -> None:
    """
    Copy a run to a directory that needs no catalog: its files, documents and tables.

    Example: [bold]daqiri-ophyd runs export -1 run1 --data daqiri-demo[/bold]
    """
    from ._run_export import export_run

    export_run(run, directory, data, catalog, moved, readable, as_json)
