"""Bluesky's magics in a session; `%ct` counts each detector once, and stores the run."""

from typing import Any

from bluesky import RunEngine
from bluesky import plans as bp
from bluesky.magics import BlueskyMagics, get_labeled_devices
from IPython.core.magic import Magics, line_magic, magics_class

from ..devices import Capture

__all__ = ["register"]


def register(shell: Any, run_engine: RunEngine) -> None:
    """Register the magics in a shell; `%ct` uses the RunEngine."""
    shell.register_magics(BlueskyMagics)
    shell.register_magics(_CountMagics(shell, run_engine))


@magics_class
class _CountMagics(Magics):
    def __init__(self, shell: Any, run_engine: RunEngine) -> None:
        super().__init__(shell)
        self._names: dict[str, Any] = shell.user_ns
        self._run_engine = run_engine

    @line_magic
    def ct(self, line: str) -> None:
        """Count all detectors, or those with the given labels or names; the run is stored.

        Of a port that makes frames, these are the frames, unless its capture is named.
        """
        names = self._names
        labeled = get_labeled_devices(user_ns=names)
        counted: dict[int, Any] = {}
        for word in line.split() or ["detectors"]:
            found = [device for _, device in labeled.get(word, [])]
            if not found and hasattr(names.get(word), "read"):
                found = [names[word]]
            elif not found:
                raise ValueError(
                    f"{word!r} is neither a device nor a label; labels: {', '.join(labeled)}"
                )
            # Each once: a detector is found by its short name, and in the device tree.
            counted |= {id(device): device for device in found if not _makes_frames(device)}
        self._run_engine(bp.count(list(counted.values())))


def _makes_frames(device: Any) -> bool:
    """Return whether it is the capture of a port that has frame detectors."""
    return isinstance(device, Capture) and bool(device.parent.frames.component_names)
