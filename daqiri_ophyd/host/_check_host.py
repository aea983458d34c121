"""Running the checks on a host."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._check import Context
from ._finding import Report
from ._needs import Needs
from ._platform import Platform, detect_platform
from ._root import require_host
from .checks import CHECKS
from .facts import Facts

__all__ = ["check_host"]


def check_host(
    config: Mapping[str, Any] | None = None,
    *,
    platform: Platform | str = "auto",
    only: Iterable[str] = (),
    root: str | os.PathLike[str] = "/",
    folder: str | os.PathLike[str] = ".",
) -> Report:
    """Check whether a host is ready; changes nothing.

    Parameters
    ----------
    config : mapping, optional
        A valid configuration of the engine, from `NetworkConfig.to_dict`. The checks then look at
        its cores, ports and memory regions; without one, at the whole host.
    platform : str
        Which remedies to name: for ``generic``, ``igx``, ``spark``, ``gpunetio``, or ``auto`` to
        detect it.
    only : iterable of str
        Names of the checks to run; empty: all.
    root : path
        Root of the host's file system: ``/``, or the folder of a recorded host.
    folder : path
        Directory for captures.

    Returns
    -------
    Report
        A result per check, in the order of `CHECKS`.

    Raises
    ------
    ValueError
        If the platform or a check is unknown, or the root is not that of a host.
    """
    chosen = list(only)
    if unknown := [name for name in chosen if name not in CHECKS]:
        raise ValueError(f"no check is called {unknown[0]!r}; there are: {', '.join(CHECKS)}")
    require_host(root)
    facts = Facts(root)
    if platform != "auto" and platform not in list(Platform):
        raise ValueError(f"platform is {platform!r}; accepted are auto, {', '.join(Platform)}")
    kind = detect_platform(facts) if platform == "auto" else Platform(platform)
    context = Context(facts, Needs.of(config), kind, os.path.abspath(folder))
    results = tuple(
        each.run(context) for name, each in CHECKS.items() if not chosen or name in chosen
    )
    return Report(str(kind), facts.identity(), results)
