"""Packet acquisition for Bluesky.

`daqiri_ophyd.setup` is `daqiri_ophyd.plans.setup`: it prepares a RunEngine for a session.
"""

from typing import Any

__version__: str


def __getattr__(name: str) -> Any:
    # Either takes longer than all else that this imports; `setup` needs Bluesky.
    if name == "setup":
        from importlib import import_module

        return import_module(f"{__name__}.plans").setup
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("daqiri-ophyd")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0"
