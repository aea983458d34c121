"""Captures in the Tiled writer of this process."""

import sys

__all__ = ["register_with_tiled"]


def register_with_tiled() -> None:
    """Register captures with Bluesky's `TiledWriter`, if this process has imported it.

    Whoever stores the documents of a run has done so before the run begins. Others are spared an
    import of seconds.
    """
    if "bluesky_tiled_plugins.writing.consolidators" in sys.modules:
        from ..catalog import register

        register()
