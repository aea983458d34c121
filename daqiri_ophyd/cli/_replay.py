"""``daqiri-ophyd replay``."""

import re
from typing import Annotated

import typer

from ._data_directory import DATA, CatalogName, Data, Moved, moved_folders
from ._part import PlayOptions, with_play_options

# -1 is a run, not an option.
CONTEXT_SETTINGS = {"ignore_unknown_options": True}
_FROM_THE_END = re.compile(r"-[0-9]{1,5}")


@with_play_options
def replay(
    run: Annotated[
        str, typer.Argument(help="Run: uid or its first characters, scan id, or -1 for the latest.")
    ],
    config: Annotated[
        str, typer.Option(help="Configuration file, or name of a profile.")
    ] = "loopback",
    *,
    options: PlayOptions,
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Send the packets of a stored run again, with their original gaps.

    Example: [bold]daqiri-ophyd replay -1 --data daqiri-demo[/bold]
    """
    if run.startswith("-") and not _FROM_THE_END.fullmatch(run):
        raise typer.BadParameter(f"no such option: {run}")
    places = moved_folders(moved)
    from ._send_packets import open_sender, print_sent

    # First the engine: if it cannot be opened, nobody waits for the catalog.
    with open_sender(config, options) as sender:
        from ..catalog import capture_files, find_run
        from ._workspace import open_catalog

        with open_catalog(data, catalog, places, create=False) as runs:
            stored = find_run(runs.client, run)
            files = capture_files(stored)
            uid = stored.metadata["start"]["uid"]
        sent = sender.play(files, f"run {uid}", tells=not as_json)
        print_sent({"run": uid, **sent}, as_json)
