"""``daqiri-ophyd info``."""

import os
import platform
from typing import Annotated, Any

import typer

import daqiri_ophyd.profiles as profiles

from ._output import print_facts, print_json


def facts() -> dict[str, Any]:
    """Return version, system, engines and profiles of this installation."""
    from ..engine import capabilities, engine_facts, version

    return {
        "version": version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": sorted(os.sched_getaffinity(0)),
        "engines": capabilities(),
        "engine_facts": engine_facts(),
        "profiles": {name: str(profiles.path(name)) for name in profiles.names()},
    }


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Show the version, the engines of this build, and the included profiles.

    Example: [bold]daqiri-ophyd info --json[/bold]
    """
    found = facts()
    if as_json:
        print_json(found)
        return
    print_facts(
        [
            ("daqiri-ophyd", found["version"]),
            ("Python", found["python"]),
            ("system", found["system"]),
            ("cores", ", ".join(map(str, found["cores"]))),
            *((f"engine {name}", state) for name, state in found["engines"].items()),
            *(
                (f"{engine} {name}", value)
                for engine, each in found["engine_facts"].items()
                for name, value in each.items()
            ),
            *((f"profile {name}", path) for name, path in found["profiles"].items()),
        ]
    )
