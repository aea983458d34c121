"""Configurations named on the command line."""

from pathlib import Path
from typing import Literal

import typer

import daqiri_ophyd.profiles as profiles

from ..engine import NetworkConfig


def config_path(name: str) -> Path:
    """
    Return the configuration file for an argument: a path, or a profile of the package.

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


def interface_with(config: NetworkConfig, side: Literal["rx", "tx"], name: str | None) -> str:
    """
    Return the interface with this name, or the first, that has receive or transmit queues.

    Raises
    ------
    typer.BadParameter
        If there is none.
    """
    able = [i.name for i in config.interfaces if getattr(i, side).queues]
    if name is None and able:
        return able[0]
    if name in able:
        return str(name)
    verb = "receive" if side == "rx" else "send"
    asked = f"interface {name!r} cannot {verb}" if name else f"nothing can {verb}"
    raise typer.BadParameter(f"{asked}; interfaces with {side} queues: {', '.join(able) or 'none'}")
