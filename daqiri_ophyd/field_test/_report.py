"""The report of a field test as JSON: its contents, and its file."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._step import StepResult, StepStatus

__all__ = ["REPORT_SCHEMA", "outcome_of", "read_report", "write_text"]

SCHEMA_NAME = "daqiri-ophyd field-test"
SCHEMA_VERSION = 1

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
REPORT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Report of daqiri-ophyd field-test",
    "type": "object",
    "required": [
        *("schema", "schema_version", "version", "configuration", "settings", "started"),
        *("updated", "interrupted", "result", "counts", "host", "ports", "published", "steps"),
    ],
    "properties": {
        "schema": {"const": SCHEMA_NAME},
        "schema_version": {"const": SCHEMA_VERSION},
        "version": _TEXT,
        "configuration": {
            "type": "object",
            "required": ["name", "sha256", "text"],
            "properties": {
                "name": _TEXT,
                "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "text": _TEXT,
            },
        },
        "settings": {
            "type": "object",
            "required": ["seconds", "limit_s", "traffic_bytes"],
            "properties": {
                "seconds": {"type": "number"},
                "limit_s": {"type": "number"},
                "traffic_bytes": _COUNT,
            },
        },
        "started": _TEXT,
        "updated": _TEXT,
        "interrupted": {"type": "boolean"},
        "result": {"enum": ["passed", "failed", "incomplete"]},
        "counts": {
            "type": "object",
            "properties": {str(status): _COUNT for status in StepStatus},
        },
        "host": {"type": "object"},
        "ports": {"type": "array", "items": {"type": "object", "required": ["port", "address"]}},
        "published": {"type": "object", "required": ["source", "url"]},
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "group", "status", "text", "figures", "again", "seconds"],
                "properties": {
                    "name": _TEXT,
                    "group": _TEXT,
                    "status": {"enum": [str(status) for status in StepStatus]},
                    "text": {"type": "string", "minLength": 1},
                    "figures": {"type": "object"},
                    "again": {"type": "boolean"},
                    "seconds": {"type": "number", "minimum": 0},
                },
                "additionalProperties": False,
            },
        },
    },
}
"""JSON Schema of reports."""


def outcome_of(steps: Sequence[StepResult], planned: int) -> tuple[str, dict[str, int]]:
    """Return the result of a test, and how many steps had which result.

    ``failed``: a step failed; ``incomplete``: another run goes on; else ``passed``.
    """
    counts = Counter(str(step.status) for step in steps)
    found = {str(status): counts[str(status)] for status in StepStatus}
    if counts[str(StepStatus.FAILED)]:
        return "failed", found
    if len(steps) < planned or any(step.again for step in steps):
        return "incomplete", found
    return "passed", found


def read_report(path: Path) -> dict[str, Any] | None:
    """Return the report in a file; None: there is none.

    Raises
    ------
    ValueError
        If the file has something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if (
        not isinstance(found, Mapping)
        or found.get("schema") != SCHEMA_NAME
        or found.get("schema_version") != SCHEMA_VERSION
    ):
        raise ValueError(
            f"{path} is no report of this version of the test; choose another folder, or remove it"
        )
    return dict(found)


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is always whole: the text before, or this one.

    Raises
    ------
    OSError
        With the name of the file.
    """
    made = None
    try:
        number, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(number, "w", encoding="utf-8") as file:
            os.fchmod(number, 0o644)
            file.write(text)
            file.flush()
            os.fsync(number)
        os.replace(made, path)
    except BaseException as error:
        if made is not None:
            with suppress(OSError):
                os.unlink(made)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
