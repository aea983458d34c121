"""Packet acquisition for Bluesky."""

from typing import Any

__version__: str


def __getattr__(name: str) -> Any:
    # Reading the version takes longer than all else that this imports.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("daqiri-ophyd")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0"
