"""``daqiri-ophyd shell``."""

from importlib.util import find_spec
from typing import Annotated

import typer

from ._data_directory import DATA, CatalogName, Data
from ._source import CONFIG_HELP, load_source


def shell(
    config: Annotated[str, typer.Argument(help=CONFIG_HELP)],
    data: Data = DATA,
    catalog: CatalogName = None,
) -> None:
    """
    Open an IPython session with a RunEngine, the devices of a configuration, and a catalog.

    Runs of all plans are stored, with a table, progress bars and, where there is a display, plots.
    Of profiles of this machine, packets are simulated. Without a terminal, standard input is run as
    a script. Ctrl-D ends the session.

    Example: [bold]daqiri-ophyd shell jungfrau[/bold]
    """
    loaded = load_source(config)
    if find_spec("IPython") is None:
        raise RuntimeError(
            "IPython is not installed, and the session needs it: pip install ipython"
        )
    from ._shell_session import run_session

    if not run_session(config, loaded, data, catalog):
        raise typer.Exit(1)
