"""Where a device writes in a stage, and in each of its runs."""

import re
from pathlib import Path

from ._errors import CaptureError
from ._paths import PathInfo, PathTemplate
from ._settings import RecordingSettings

__all__ = ["Destination"]


class Destination:
    """Directory and file names of a device: determined once for each stage and each run.

    Parameters
    ----------
    device : RecordingSettings
        The device.
    template : PathTemplate
        The values of this stage.
    """

    def __init__(self, device: RecordingSettings, template: PathTemplate) -> None:
        self._device = device
        self._template = template
        self._run: str | None = None
        self.place: PathInfo | None = None

    def find(self) -> tuple[PathInfo, bool]:
        """Return where to write now, and whether that is new; `use` accepts it.

        Raises
        ------
        CaptureError
            If no directory is set, or a template needs a value that is not known.
        """
        device = self._device
        if not (device.directory.get() or device.daq.path_provider):
            raise CaptureError(
                f"{device.name} has no directory for its files: make_daq(..., directory=...), or "
                f"set {device.directory.name}."
            )
        if len(device.daq.runs.open) > 1 and self._names_run:
            raise CaptureError(
                f"{device.name}: {len(device.daq.runs.open)} runs are open, and its path needs one "
                "to be named after. Use a path and a file_prefix without scan_id, uid and start."
            )
        if self.place is not None and device.daq.runs.latest_uid == self._run:
            return self.place, False
        place = self._place()
        return place, place != self.place

    def require_run(self) -> None:
        """Raise `CaptureError` if a template is named after a run, and none is open."""
        if self._names_run and self._device.daq.runs.current is None:
            raise CaptureError(
                f"{self._device.name}: with an external trigger, prepare() begins its files, and "
                "their path is named after a run: prepare it after open_run, or use a path and a "
                "file_prefix without scan_id, uid and start."
            )

    def use(self, place: PathInfo) -> None:
        """Write there from now on, for the rest of the run."""
        self.place, self._run = place, self._device.daq.runs.latest_uid

    @property
    def _names_run(self) -> bool:
        settings = (self._device.path.get(), self._device.file_prefix.get())
        return self._device.daq.path_provider is None and any(map(PathTemplate.names_run, settings))

    def _place(self) -> PathInfo:
        device, template = self._device, self._template
        provider = device.daq.path_provider
        if provider is not None:
            place: PathInfo = provider(device.name)
            return place
        root = Path(device.directory.get()).resolve()
        below = template.expand(device.path.get(), device.daq.runs.latest)
        if not (root / below).resolve().is_relative_to(root):
            raise CaptureError(f"{device.name}: the path {below!r} leads out of {root}.")
        name = template.expand(device.file_prefix.get(), device.daq.runs.latest)
        uri = device.uri.get()
        return PathInfo(
            root / below,
            re.sub(r"[^A-Za-z0-9_.-]", "_", name),
            f"{uri.rstrip('/')}/{below}" if uri else None,
        )
