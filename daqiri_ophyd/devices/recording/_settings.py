"""Settings that captures and frame detectors share: where they write, and when they fail."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ophyd.device import Staged
from ophyd.ophydobj import Kind

from daqiri_ophyd.documents import directory_uri
from daqiri_ophyd.ship import split_address

from ..daq._configuration import find_named
from ..parts._base import EngineDevice
from ..parts._signals import EngineSignal, fact, reading, setting
from ..reductions import Reduction, reduction_of
from ._errors import CaptureError
from ._paths import PathTemplate, expand_user
from ._shipping import Shipping

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


def _checked_address(address: str) -> str:
    if address:
        split_address(address)
    return address.rstrip("/")


def _ship_root(device: "RecordingSettings") -> str:
    if device.daq.path_provider:
        return "/"
    if uri := device.uri.get():
        return urlparse(uri).path
    directory = device.directory.get()
    return str(Path(directory).resolve()) if directory else ""


class RecordingSettings(EngineDevice):
    """Settings of a device that writes files: where, and how it handles errors and losses.

    `path` and `file_prefix` are templates, see `PathTemplate`. If readers mount `directory`
    elsewhere, set `uri` to its address there; documents then have this address. A path provider of
    the engine's device (`Daq.path_provider`) replaces all four.

    With `ship_to`, the address of an object store, such as ``s3://bucket/prefix``, complete files
    are uploaded to it; the path of an object is that of the file below `directory`. Local files
    stay, unless `keep_shipped` is false. `unsent_bytes` and `unsent_age` are what waits for the
    store in this process; beyond `unsent_bytes_limit` or `unsent_age_limit` (0: none), recording
    goes on as on a full disk.
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
    ship_to = setting("", accept=_checked_address)
    keep_shipped = setting(True)
    unsent_bytes_limit = setting(0, "byte", minimum=0)
    unsent_age_limit = setting(0.0, "s", minimum=0.0, maximum=LONGEST_S)

    unsent_bytes = reading(0, "byte", kind=Kind.omitted)
    unsent_age = reading(0.0, "s", kind=Kind.omitted)

    FIXED = ("on_drop", "directory", "path", "file_prefix", "uri", "ship_to", "keep_shipped")
    """Settings that a run depends on from its beginning."""

    REDUCED = ""
    """What reductions are computed from: packets or frames."""

    COLUMNS: tuple[str, ...] = ()
    """Names of columns that are no component."""

    ship_root = fact(lambda device: _ship_root(device), "string")
    """Directory, as documents name it, whose place in the object store is `ship_to`."""

    reduction_table = fact(
        lambda device: json.dumps({n: str(r) for n, r in device.reductions.items()}), "string"
    )

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._reductions: dict[str, Reduction] = {}
        super().__init__(prefix, **kwargs)
        self.directory.put(str(self.daq.directory or ""))
        self.ship_to.put(self.daq.ship_to)
        self._shipping = Shipping(self)

    def refuse_change(self, signal: EngineSignal[Any]) -> None:
        """Raise if a setting is changed that the run already depends on."""
        if self._staged == Staged.yes and signal.attr_name in self.FIXED:
            raise CaptureError(f"{signal.name} cannot be changed while {self.name} is staged.")

    @property
    def reductions(self) -> dict[str, Reduction]:
        """Reductions of each file or frame by name; see `daqiri_ophyd.devices.reductions`.

        Assign instances of `Reduction`, or functions of the packets or of a frame that return a
        number.

        Raises
        ------
        CaptureError
            If the device is staged.
        ValueError, TypeError
            If a name is not an identifier or is in use, or a value is not a function or cannot be
            computed here.
        """
        return dict(self._reductions)

    @reductions.setter
    def reductions(self, reductions: Mapping[str, Reduction | Callable[..., float]]) -> None:
        if self._staged != Staged.no:
            raise CaptureError(f"reductions cannot be changed while {self.name} is staged.")
        # Databases do not tell A from a in names of columns.
        taken = {name.casefold() for name in (*self.component_names, *self.COLUMNS)}
        found = {}
        for name, given in dict(reductions).items():
            if not isinstance(name, str) or not name.isidentifier() or name.casefold() in taken:
                raise ValueError(
                    f"{self.name}: a reduction cannot be named {name!r}; accepted is an identifier "
                    "that no other column or setting has, in small or capital letters."
                )
            taken.add(name.casefold())
            reduction = reduction_of(given, f"{self.name}: reduction {name!r}")
            if reduction.of not in ("", self.REDUCED):
                raise ValueError(
                    f"{self.name}: reduction {name!r} is {reduction}, which is computed from "
                    f"{reduction.of}; accepted is one of {self.REDUCED}."
                )
            found[name] = reduction
        self._require_reductions(found)
        self._reductions = found

    def _require_reductions(self, reductions: Mapping[str, Reduction]) -> None:
        """Raise ValueError if the device cannot have these reductions."""

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
        flows, where = self._start_flows()
        try:
            flow = find_named(flows, name, "flow", f"{setting}: {where}")
        except LookupError as error:
            raise CaptureError(error.args[0]) from None
        if not flow["id"]:
            raise CaptureError(
                f"{setting}: flow {name!r} has id 0, as packets that match no flow. "
                "Give it an id of 1 or more."
            )
        return flow

    def _start_flows(self) -> tuple[list[dict[str, Any]], str]:
        """Return the flows with which a recording can begin, and what has them."""
        return self.daq.flows[self.port_name], f"port {self.port_name!r}"
