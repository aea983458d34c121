"""``daqiri-ophyd run``."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

# All arguments after the script belong to the script, even if they look like options.
CONTEXT_SETTINGS = {"allow_interspersed_args": False}
_IMPORTABLE = str(Path(__file__).parents[1] / "compat" / "importable")


def run(
    script: Annotated[str, typer.Argument(help="Python script; -: standard input.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the script.")
    ] = None,
) -> None:
    """
    Run a script written for DAQIRI's Python bindings, like python SCRIPT.

    The script, and processes that it starts, can import the module daqiri. Everything after SCRIPT
    belongs to the script; the exit code is that of the script.

    Example: [bold]daqiri-ophyd run bench.py loopback.yaml --seconds 5[/bold]
    """
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_IMPORTABLE}{os.pathsep}{path}" if path else _IMPORTABLE
    os.execv(sys.executable, [sys.executable, "--", script, *(arguments or [])])
