"""``daqiri-ophyd stats``."""

from typing import Annotated

import typer

from ._limits import seconds, whole


def stats(
    config: Annotated[
        str | None,
        typer.Argument(help="Open this configuration or profile, and receive packets."),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option(metavar="PID", help="Show only the engines of this process.", parser=whole(1)),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time between updates.", parser=seconds(0.05)),
    ] = 1.0,
    count: Annotated[
        int,
        typer.Option(metavar="COUNT", help="Number of updates; 0: until Ctrl-C.", parser=whole()),
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each engine and update.")
    ] = False,
) -> None:
    """
    Show rates, drops, pool levels and lateness of running engines, updated in place.

    Without a configuration, it shows all running engines of this user. Engines that do not answer
    are listed with the reason.

    Example: [bold]daqiri-ophyd stats --interval 0.5[/bold]
    """
    if config is not None and pid is not None:
        raise typer.BadParameter("--pid selects running engines; omit CONFIG")
    from ._stats_engines import show_engines

    show_engines(config, pid, interval, count, as_json)
