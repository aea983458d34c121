"""Less work for the hundreds of catalogs that tests open, each of which is a server."""

import functools
import gc
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["collect_cycles_seldom", "keep_what_catalogs_share"]


def collect_cycles_seldom() -> None:
    """Let the collector leave what is imported alone, and wait for more work.

    It takes a third of the time that opening a catalog takes otherwise.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def keep_what_catalogs_share() -> None:
    """Compute once what is the same for all servers and clients of a process.

    A server's routes have thousands of dependencies, which FastAPI analyses with each server: half
    of the time that it takes to open a catalog. Most are functions of Tiled's modules. Each client
    reads the certificates of the system.
    """
    # Here, since a host that tests the engine alone has neither.
    import fastapi.dependencies.utils
    import httpx._transports.default

    utilities = fastapi.dependencies.utils
    utilities.get_dependant = _with_known_dependants(utilities.get_dependant)
    transports = httpx._transports.default  # noqa: SLF001
    transports.create_ssl_context = functools.cache(transports.create_ssl_context)


def _with_known_dependants(analyse: Callable[..., Any]) -> Callable[..., Any]:
    """Analyse each function of a module once for each use; FastAPI does not change the result."""
    known: dict[tuple[Any, ...], Any] = {}

    def get_dependant(*, call: Callable[..., Any], **options: Any) -> Any:
        module = sys.modules.get(getattr(call, "__module__", ""))
        if getattr(module, getattr(call, "__qualname__", ""), None) is not call:
            return analyse(call=call, **options)  # one of a server
        values = (tuple(each) if isinstance(each, list) else each for each in options.values())
        use = (call, *options, *values)
        if use not in known:
            known[use] = analyse(call=call, **options)
        return known[use]

    return get_dependant
