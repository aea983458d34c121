"""Where the files of a capture go: directory, file names, and the address for readers."""

import re
import string
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Protocol

from ._errors import CaptureError

__all__ = ["PathInfo", "PathProvider", "PathTemplate", "expand_user", "make_directory"]

_FIELDS = ("date", "device", "plan", "port", "queue", "scan_id", "start", "uid", "unique")
_OF_RUN = {"scan_id", "start", "uid"}
# Names that leave a directory, and characters that readers cannot use in a URI.
_UNSAFE = re.compile(r"[/?#;\x00-\x1f\x7f]|^\.{1,2}$")


@dataclass(frozen=True, slots=True)
class PathInfo:
    """Directory and file names of a device, with the attributes of ophyd-async's ``PathInfo``.

    Parameters
    ----------
    directory_path : PurePath
        Directory of the files, absolute; created if it does not exist.
    filename : str
        First part of the file names.
    directory_uri : str, optional
        Address of the directory for readers, ``file://localhost/...``; None: as on this host.
    """

    directory_path: PurePath
    filename: str
    directory_uri: str | None = None


class PathProvider(Protocol):
    """Selects where a device writes; path providers of ophyd-async can be used, too."""

    def __call__(self, device_name: str, /) -> Any:
        """Return the `PathInfo` for a device; called at the first file of a stage and a run."""
        ...


class PathTemplate:
    """Path of a capture from templates, for one stage.

    Templates are format strings. Their fields are ``{date}`` (when the device was staged, with a
    format such as ``{date:%Y/%m/%d}``), ``{device}``, ``{port}``, ``{queue}`` of a capture,
    ``{plan}`` of a frame detector, and ``{unique}`` (8 characters, different for each stage). From
    the run come ``{scan_id}``, ``{uid}`` and any key of the start document: ``{start[sample]}``. In
    values, characters that are not allowed in a path or a URI become ``_``.

    Parameters
    ----------
    **names : str
        Values of ``device``, ``port``, ``queue`` and ``plan``.
    """

    def __init__(self, **names: str) -> None:
        self._values: dict[str, Any] = {
            "queue": "",
            "plan": "",
            "date": datetime.now(),
            "unique": uuid.uuid4().hex[:8],
            **names,
        }

    @staticmethod
    def check(template: str) -> str:
        """Return a template that can be expanded.

        Raises
        ------
        ValueError
            If it is not a format string or has an unknown field.
        """
        try:
            parsed = list(string.Formatter().parse(template))
        except ValueError as error:
            raise ValueError(f"{template!r} is not a template: {error}.") from None
        for _, field, _, _ in parsed:
            if field is not None and _name(field) not in _FIELDS:
                raise ValueError(
                    f"{template!r} has the field {field!r}; known are {', '.join(_FIELDS)}."
                )
        literal = "".join(text for text, _, _, _ in parsed)
        if template.startswith("/") or ".." in template.split("/"):
            raise ValueError(f"{template!r} leads out of the directory of captures.")
        if bad := re.search(r"[?#;\x00-\x1f\x7f]", literal):
            raise ValueError(
                f"{template!r} has {bad[0]!r}, which the address of a file cannot have."
            )
        return template

    @staticmethod
    def names_run(template: str) -> bool:
        """Return whether a template has a field of the run."""
        fields = (field for _, field, _, _ in string.Formatter().parse(template) if field)
        return any(_name(field) in _OF_RUN for field in fields)

    def expand(self, template: str, start: Mapping[str, Any] | None) -> str:
        """Return a template with its fields replaced by their values.

        Parameters
        ----------
        template : str
            The template.
        start : mapping or None
            Start document of the current run; None if it is not known.

        Raises
        ------
        CaptureError
            If the template has a field of the run and no run is known, a key that is not in the
            start document, or a key whose value is empty.
        """
        values = dict(self._values)
        if self.names_run(template):
            if start is None:
                raise CaptureError(
                    f"{values['device']}: the path {template!r} needs a run, and none is known. "
                    'Subscribe to the RunEngine: RE.subscribe(daq.run_started, "start").'
                )
            values |= {"uid": start["uid"], "scan_id": start.get("scan_id", ""), "start": start}
        try:
            return _Formatter().format(template, **values)
        except _EmptyError as error:
            raise CaptureError(
                f"{values['device']}: {error} is empty, and the path {template!r} has it. Give it "
                "a value in the metadata of the run."
            ) from None
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise CaptureError(
                f"{values['device']}: the path {template!r} cannot be made: {error!r}"
            ) from error


def _name(field: str) -> str:
    return re.split(r"[.\[]", field)[0]


class _EmptyError(Exception):
    """A field of the run has no value."""


class _Formatter(string.Formatter):
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        value, key = super().get_field(field_name, args, kwargs)
        if key in _OF_RUN and not str(value).strip():
            raise _EmptyError(field_name)
        return value, key

    def format_field(self, value: Any, format_spec: str) -> str:
        text = super().format_field(value, format_spec)
        return text if isinstance(value, datetime) else _UNSAFE.sub("_", text)


def expand_user(path: str) -> str:
    """Return a path with its ``~`` expanded; an empty one unchanged."""
    return str(Path(path).expanduser()) if path else path


def make_directory(path: Path, prefixes: Sequence[str], device: str) -> None:
    """Create the directory of a capture.

    Parameters
    ----------
    path : Path
        The directory.
    prefixes : sequence of str
        First parts of the file names.
    device : str
        Name of the device, for messages.

    Raises
    ------
    CaptureError
        If it cannot be created, or contains files of another capture with these names.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        there = sorted(
            file for prefix in prefixes for file in path.glob(f"{prefix}_{'[0-9]' * 6}*")
        )
    except OSError as error:
        text = f"{device}: cannot create {error.filename}: {error.strerror}"
        raise CaptureError(text) from error
    if there:
        raise CaptureError(
            f"{device}: {path} has files of another capture, such as {there[0].name}. Use a path "
            "that differs for each capture, with {unique} or {uid}."
        )
