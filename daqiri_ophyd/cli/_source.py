"""Configurations named on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import daqiri_ophyd.profiles as profiles

from ._interface import interface_configuration, interfaces

if TYPE_CHECKING:
    from ..engine import NetworkConfig

CONFIG_HELP = "Configuration file, name of a profile, or a network interface of this host."


def _find(name: str) -> Path | None:
    """Return the file of that name, or of the profile; None if there is neither."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        return path
    return profiles.path(name) if name in profiles.names() else None


def config_path(name: str) -> Path:
    """
    Return the configuration file for an argument: a path, or a profile of the package.

    Raises
    ------
    typer.BadParameter
        If the argument is neither.
    """
    if (path := _find(name)) is not None:
        return path
    raise typer.BadParameter(
        f"no configuration file {name!r}; give a path, or one of the profiles "
        f"{', '.join(profiles.names())}"
    )


def load_source(
    name: str,
    udp_ports: Sequence[int] = (),
    hosts: Sequence[str] = (),
    packet_filter: str | None = None,
) -> "NetworkConfig":
    """
    Load the configuration for an argument: a path, a profile, or a network interface.

    Parameters
    ----------
    name : str
        The argument. A file precedes a profile of the same name, which precedes an interface.
    udp_ports, hosts, packet_filter
        Packets to receive on a network interface; as for `interface_configuration`.

    Raises
    ------
    typer.BadParameter
        If the argument is none of these, or packets are selected for a configuration.
    ConfigError
        If the configuration has errors.
    """
    from ..engine import load_config

    path = _find(name)
    if path is None and name in interfaces():
        return load_config(interface_configuration(name, udp_ports, hosts, packet_filter))
    if path is None:
        raise typer.BadParameter(
            f"no configuration file {name!r}; give a path, one of the profiles "
            f"{', '.join(profiles.names())}, or one of the network interfaces "
            f"{', '.join(interfaces())}"
        )
    if udp_ports or hosts or packet_filter is not None:
        raise typer.BadParameter(
            f"--udp-port, --host and --filter require a network interface; {name!r} is a "
            "configuration, which already selects the packets"
        )
    return load_config(path)


def interface_with(config: "NetworkConfig", side: Literal["rx", "tx"], name: str | None) -> str:
    """
    Return the interface with this name, or the first, that has receive or transmit queues.

    Raises
    ------
    typer.BadParameter
        If there is no such interface.
    """
    able = [i.name for i in config.interfaces if getattr(i, side).queues]
    if name is None and able:
        return able[0]
    if name in able:
        return str(name)
    verb = "receive" if side == "rx" else "send"
    asked = f"interface {name!r} cannot {verb}" if name else f"nothing can {verb}"
    raise typer.BadParameter(f"{asked}; interfaces with {side} queues: {', '.join(able) or 'none'}")
