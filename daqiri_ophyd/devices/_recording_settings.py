"""Settings that captures and frame detectors share: where they write, and when they fail."""

import re
from pathlib import Path
from typing import Any

from bluesky.utils import FailedStatus
from ophyd.device import Staged

from daqiri_ophyd.documents import directory_uri

from ._base import EngineDevice
from ._configuration import find_named
from ._outcome import CaptureError
from ._paths import PathInfo, PathTemplate, expand_user
from ._signals import EngineSignal, setting
from ._status import EngineStatus

__all__ = ["LONGEST_S", "RecordingSettings"]

LONGEST_S = 3e9
"""Longest time limit of a recorder, s: a century."""


def _checked_directory(path: str) -> str:
    path = expand_user(path)
    if path:
        directory_uri(Path(path).absolute())
    return path


def _checked_prefix(template: str) -> str:
    for literal in re.split(r"\{[^}]*\}", PathTemplate.check(template)):
        if not re.fullmatch(r"[A-Za-z0-9_.-]*", literal):
            raise ValueError(
                f"{template!r} cannot begin a file name; accepted are letters, digits, '_', '.', "
                "'-' and fields such as {scan_id}."
            )
    if not template:
        raise ValueError("The file names need a prefix, such as {port}.")
    return template


def _checked_uri(uri: str) -> str:
    if uri and not uri.startswith("file://localhost/"):
        raise ValueError(
            f"{uri!r} is not the address of a directory; accepted is file://localhost/..."
        )
    return uri


class RecordingSettings(EngineDevice):
    """Settings of a device that writes files: where, and how it handles errors and losses.

    `path` and `file_prefix` are templates, see `PathTemplate`. If readers mount `directory`
    elsewhere, set `uri` to its address there; documents then have this address. A path provider of
    the engine's device (`Daq.path_provider`) replaces all four.
    """

    writer = setting("buffered", choices=("buffered", "direct", "auto"))
    durable = setting(False)
    on_error = setting("stop", choices=("stop", "resume"))
    on_drop = setting("fail", choices=("fail", "flag", "ignore"))
    timeout = setting(10.0, "s", minimum=0.001)
    linger = setting(0.1, "s", minimum=0.0, maximum=LONGEST_S)
    directory = setting("", accept=_checked_directory)
    path = setting("{date:%Y/%m/%d}/{unique}", accept=PathTemplate.check)
    file_prefix = setting("{port}", accept=_checked_prefix)
    uri = setting("", accept=_checked_uri)

    FIXED = ("on_drop", "directory", "path", "file_prefix", "uri")
    """Settings that a run depends on from its beginning."""

    _status: EngineStatus | None = None
    _failure: Exception | None = None
    _completing = False  # a status reports a failure

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        super().__init__(prefix, **kwargs)
        self.directory.put(str(self.daq.directory or ""))

    @property
    def is_recording(self) -> bool:
        """Whether a recording is running and not paused."""
        raise NotImplementedError

    @property
    def failed(self) -> bool:
        """Whether it has failed before `complete`; `collect` raises its error."""
        return self._failure is not None and not self._completing

    def pause_recording(self) -> None:
        """Discard packets that arrive from now on; the file stays valid."""
        raise NotImplementedError

    def resume_recording(self) -> None:
        """Continue recording after `pause_recording`."""
        raise NotImplementedError

    def refuse_change(self, signal: EngineSignal[Any]) -> None:
        """Raise if a setting is changed that the run already depends on."""
        if self._staged == Staged.yes and signal.attr_name in self.FIXED:
            raise CaptureError(f"{signal.name} cannot be changed while {self.name} is staged.")

    def require_staged(self) -> None:
        """Raise if the device is not staged."""
        if self._staged == Staged.no:
            raise CaptureError(
                f"{self.name} is not staged, so its files would belong to no run. Stage it, or "
                f"{self.daq.name}, first."
            )

    def raise_at_end(self, error: CaptureError) -> None:
        """Raise an error of `unstage`; while the engine is unstaged, after all parts are."""
        if self.daq.unstaging is None:
            raise error
        self.daq.unstaging.append(error)

    def find_start_flow(self, name: str) -> dict[str, Any]:
        """Return the flow with which a recording begins.

        Raises
        ------
        CaptureError
            If there is no such flow, or its id is 0.
        """
        setting = f"{self.name}_start_flow"
        try:
            where = f"{setting}: port {self.port_name!r}"
            flow = find_named(self.daq.flows[self.port_name], name, "flow", where)
        except LookupError as error:
            raise CaptureError(error.args[0]) from None
        if not flow["id"]:
            raise CaptureError(
                f"{setting}: flow {name!r} has id 0, as packets that match no flow. "
                "Give it an id of 1 or more."
            )
        return flow

    def require_directory(self, template: PathTemplate | None) -> PathTemplate:
        """Return the template; raise if no directory is set."""
        if template is None or not (self.directory.get() or self.daq.path_provider):
            raise CaptureError(
                f"{self.name} has no directory for its files: make_daq(..., directory=...), or set "
                f"{self.directory.name}."
            )
        return template

    def path_info(self, template: PathTemplate) -> PathInfo:
        """Return where to write now.

        Parameters
        ----------
        template : PathTemplate
            The values of this stage.

        Raises
        ------
        CaptureError
            If a template needs a value that is not known.
        """
        provider = self.daq.path_provider
        if provider is not None:
            return provider(self.name)
        root = Path(self.directory.get()).resolve()
        below = template.expand(self.path.get(), self.daq.start_document)
        if not (root / below).resolve().is_relative_to(root):
            raise CaptureError(f"{self.name}: the path {below!r} leads out of {root}.")
        name = template.expand(self.file_prefix.get(), self.daq.start_document)
        uri = self.uri.get()
        return PathInfo(
            root / below,
            re.sub(r"[^A-Za-z0-9_.-]", "_", name),
            f"{uri.rstrip('/')}/{below}" if uri else None,
        )

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        if self._status is not None:
            self._status.fail(error)

    def _raise_failure(self) -> None:
        """Raise FailedStatus for a failure that no status reports; wait until a status has."""
        failed, failure = self.failed, self._failure
        self._failure = None
        if failed:
            raise FailedStatus(self._status) from failure
        if self._status is not None:
            self._status.wait_told()
