"""``daqiri-ophyd catalog browse``, ``catalog recover`` and ``catalog ship``."""

import html
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ._advice import as_options
from ._data_directory import (
    DATA,
    CatalogName,
    Data,
    Moved,
    Readable,
    captures_of,
    moved_folders,
)
from ._output import print_error, print_json, print_line, print_message
from ._ship import ship_orders

app = typer.Typer(help="Browse and maintain a catalog.", no_args_is_help=True)


@app.command()
def browse(
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    readable: Readable = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
) -> None:
    """
    Show the runs on a web page, until Ctrl-C; the address has the catalog's key.

    Example: [bold]daqiri-ophyd catalog browse --data daqiri-demo[/bold]
    """
    from threading import Event

    from ._workspace import open_catalog

    with open_catalog(data, catalog, moved_folders(moved), readable, create=False) as opened:
        page = opened.page()
        print_line(page)
        if show:
            _open(page)
        if not opened.is_served_here:
            return
        print_message("Ctrl-C ends the server")
        with suppress(KeyboardInterrupt):
            Event().wait()


@app.command()
def recover(
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    readable: Readable = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Close the runs of processes that were killed, with all captures that are on disk.

    Runs in progress and recovered runs are not changed.

    Example: [bold]daqiri-ophyd catalog recover --data daqiri-demo[/bold]
    """
    from ..catalog import recover_runs
    from ._workspace import open_catalog

    failed = False
    found = []
    with open_catalog(data, catalog, moved_folders(moved), readable, create=False) as opened:
        for run in recover_runs(opened, _mend):
            run.problem = as_options(run.problem)
            found.append(run)
            failed = failed or bool(run.problem)
            if as_json:
                continue
            for step in run.mended:
                print_line(step)
            for path in run.unlisted:
                print_line(f"{path}: in no document of run {run.uid}")
            if run.problem:
                print_error(f"run {run.uid}: {run.problem}")
            else:
                print_line(f"run {run.uid}: {run.reason}")
    if as_json:
        print_json({run.uid: {k: v for k, v in asdict(run).items() if k != "uid"} for run in found})
    elif not found:
        print_line("no unfinished run")
    # What is complete now is uploaded, too.
    failed = bool(ship_orders(captures_of(data), as_json=True)["problems"]) or failed
    if failed:
        raise typer.Exit(1)


@app.command()
def ship(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of captures. Default: that of the data directory.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Upload all files of the folder that are in no store yet, to s3://BUCKET/PREFIX. "
            "Default: only those whose recording has ship_to.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep/--remove", help="With --to: keep local files, or remove them."),
    ] = True,
    data: Data = DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Upload files of captures and frames to their object store.

    Continues what a process that was killed, or a store that was away, has left. Ctrl-C leaves
    the rest for the next time. Exit code 1: some files are not in the store.

    Example: [bold]daqiri-ophyd catalog ship --data daqiri-demo[/bold]
    """
    captures = captures_of(data)
    folder = (folder or captures).resolve()
    if to is not None:
        from ..ship import order_all, split_address

        try:
            split_address(to)
        except ValueError as error:
            raise typer.BadParameter(f"--to: {error}") from None
        # The path of an object is that below the captures, as for devices.
        root = captures if folder.is_relative_to(captures) else folder
        order_all(folder, to, keep=keep, root=root)
    found = ship_orders(folder, as_json=as_json)
    if as_json:
        print_json(found)
    if found["problems"]:
        raise typer.Exit(1)


def _open(page: str) -> None:
    """Open a page in a browser, whose command line everybody on this host can read."""
    import atexit
    import tempfile
    import webbrowser

    # Only its owner can read it.
    with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False) as file:
        file.write(f'<meta http-equiv="refresh" content="0; url={html.escape(page)}">\n')
    atexit.register(Path(file.name).unlink, missing_ok=True)
    webbrowser.open(Path(file.name).as_uri())


def _mend(path: Path) -> list[str]:
    """Repair a file; return the repairs."""
    from . import _frame_file, _pcap_file

    return _frame_file.repair(path) if path.suffix == ".h5" else _pcap_file.repair(path, None)
