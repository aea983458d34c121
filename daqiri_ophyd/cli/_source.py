"""Configurations named on the command line."""

from pathlib import Path

import typer

from .. import profiles


def config_path(name: str) -> Path:
    """
    Return the file that an argument names: a path, or a profile of the package.

    Raises
    ------
    typer.BadParameter
        If it is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    if name in profiles.names():
        return profiles.path(name)
    raise typer.BadParameter(
        f"no configuration file {name!r}; give a path, or one of the profiles "
        f"{', '.join(profiles.names())}"
    )
