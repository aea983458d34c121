"""``daqiri-ophyd replay``."""

from typing import Annotated

import typer

from ._data_directory import (
    DATA,
    RUN_SETTINGS,
    CatalogName,
    Data,
    Moved,
    Readable,
    Run,
    moved_folders,
)
from ._part import PlayOptions, with_play_options

CONTEXT_SETTINGS = RUN_SETTINGS


@with_play_options
def replay(
    run: Run,
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE|PROFILE", help="Configuration to send with: file, or name of a profile."
        ),
    ] = "loopback",
    *,
    options: PlayOptions,
    data: Data = DATA,
    catalog: CatalogName = None,
    moved: Moved = None,
    readable: Readable = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Send the packets of a stored run again, with their original gaps.

    Example: [bold]daqiri-ophyd replay -1 --data daqiri-demo[/bold]
    """
    places = moved_folders(moved)
    from ._send_packets import open_sender, print_sent

    # First the engine: if it cannot be opened, nobody waits for the catalog.
    with open_sender(config, options) as sender:
        from ..catalog import find_run, stored_files
        from ._workspace import open_catalog

        with open_catalog(data, catalog, places, readable, create=False) as runs:
            stored = find_run(runs.client, run)
            files = stored_files(stored)
            uid = stored.metadata["start"]["uid"]
        sent = sender.play(files, f"run {uid}", tells=not as_json)
        print_sent({"run": uid, **sent}, as_json)
