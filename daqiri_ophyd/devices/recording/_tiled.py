"""Captures in the Tiled writer of this process."""

import sys

__all__ = ["register_with_tiled"]


def register_with_tiled() -> None:
    """Register captures with Bluesky's `TiledWriter`, if this process has imported it.

    A process that stores the documents of a run has imported it before the run begins. Other
    processes are spared an import that takes seconds.
    """
    if "bluesky_tiled_plugins.writing.consolidators" in sys.modules:
        from daqiri_ophyd.catalog import register

        register()
