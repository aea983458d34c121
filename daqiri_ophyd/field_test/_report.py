"""The report of a field test as JSON: its contents, and its file."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ._step import StepResult, StepStatus

__all__ = ["REPORT_SCHEMA", "outcome_of", "part_of", "read_report", "write_text"]

SCHEMA_NAME = "daqiri-ophyd field-test"
SCHEMA_VERSION = 1

# Reports have some hundred kB.
_MOST_BYTES = 64 << 20
_LONGEST_REASON = 200

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_NUMBER = {"type": "number", "minimum": -1e18, "maximum": 1e18}
_SHARE = {"anyOf": [_NUMBER, {"type": "null"}]}
_PORTS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["port", "address"],
        "properties": {"port": _TEXT, "address": _TEXT},
    },
}
_LOSSES = {"type": "object", "additionalProperties": _COUNT}
# Of those that the page shows.
_FIGURES = {
    "type": "object",
    "properties": {
        "ports": _PORTS,
        "addresses": {"type": "object"},
        "losses": _LOSSES,
        "trials": {
            "type": "array",
            "items": {"type": "object", "properties": {"losses": _LOSSES}},
        },
        "size": _COUNT,
        "queues": {"anyOf": [_COUNT, {"type": "array", "items": _TEXT}]},
        "packets_per_s": _NUMBER,
        "Gb_per_s": _NUMBER,
        "limited_by": _TEXT,
        "arrived": _COUNT,
        "verified": _COUNT,
        "share_of_link": _SHARE,
        "share_of_pcie": _SHARE,
        "published_Gb_per_s": _SHARE,
    },
}
_RATE = {
    "properties": {
        "figures": {
            "properties": {"queues": _COUNT},
            "dependentRequired": {
                "packets_per_s": [
                    *("size", "queues", "Gb_per_s", "limited_by", "arrived", "verified")
                ]
            },
        }
    }
}
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
                "seconds": _NUMBER,
                "limit_s": _NUMBER,
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
        "ports": _PORTS,
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
                    "figures": _FIGURES,
                    "again": {"type": "boolean"},
                    "seconds": {**_NUMBER, "minimum": 0},
                },
                "additionalProperties": False,
                "if": {"properties": {"group": {"const": "rate"}}},
                "then": _RATE,
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
    found = {
        str(status): counts[str(status)]
        for status in StepStatus
        if counts[str(status)] or status is not StepStatus.INTERRUPTED
    }
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
        If the file has something else; the text names the file, and what was found.
    OSError
        If the file cannot be read.
    """
    try:
        # Opening a named pipe would wait for a writer.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    state = os.fstat(number)
    if not stat.S_ISREG(state.st_mode):
        os.close(number)
        raise ValueError(f"{path} is {_kind_of(state.st_mode)}, not a file")
    with open(number, "rb") as file:
        if state.st_size > _MOST_BYTES:
            raise ValueError(
                f"{path} has {state.st_size / 1e6:,.0f} MB; reports have at most "
                f"{_MOST_BYTES / 1e6:,.0f}"
            )
        data = file.read(_MOST_BYTES)
    try:
        found = json.loads(data.decode(), parse_constant=_reject)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON document ({error})") from None
    _require_report(path, found)
    return found


def _kind_of(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _reject(name: str) -> NoReturn:
    raise ValueError(f"found {name}; accepted are finite numbers")


def _require_report(path: Path, found: Any) -> None:
    """Raise ValueError if this is no report, or one of another version."""
    if not isinstance(found, dict) or found.get("schema") != SCHEMA_NAME:
        raise ValueError(f"{path} is no report of a field test")
    if found.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"{path} is a report with schema_version {found.get('schema_version')!r:.40}; this "
            f"version of the test reads {SCHEMA_VERSION}"
        )
    # Imported late: it takes as long as all else of the test.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(REPORT_SCHEMA).iter_errors(found))
    if error is not None:
        what = error.message
        if len(what) > _LONGEST_REASON:
            what = f"{what[: _LONGEST_REASON // 2]} ... {what[-_LONGEST_REASON // 2 :]}"
        raise ValueError(f"{path} is no report of a field test: {error.json_path}: {what}")


def part_of(path: Path) -> Path:
    """Return the file that becomes another one when it is whole.

    One test at a time uses a folder, and the next one removes what is left of a killed one.
    """
    return path.with_name(f".{path.name}.new")


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is always whole: the text before, or this one.

    Raises
    ------
    OSError
        With the name of the file.
    """
    part = part_of(path)
    try:
        part.unlink(missing_ok=True)
        # Of links that others put there, too.
        with open(part, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
