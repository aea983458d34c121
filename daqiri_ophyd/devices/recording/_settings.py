"""Settings that captures and frame detectors share: where they write, and when they fail."""

import re
from pathlib import Path
from typing import Any

from ophyd.device import Staged

from daqiri_ophyd.documents import directory_uri

from ..daq._configuration import find_named
from ..parts._base import EngineDevice
from ..parts._signals import EngineSignal, setting
from ._errors import CaptureError
from ._paths import PathTemplate, expand_user

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

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        super().__init__(prefix, **kwargs)
        self.directory.put(str(self.daq.directory or ""))

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
