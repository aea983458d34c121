"""Why a run could not be stored, for one line in place of a traceback."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow

from ._backup import Documents

__all__ = ["failures_in", "reason_of", "unstorable_value"]

_LONGEST = 60
_storing = threading.local()


class _Note(logging.Filter):
    """Notes the error of a failure that TiledWriter logs, while a writer of this package stores."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        found: list[BaseException] | None = getattr(_storing, "errors", None)
        if found is None or not record.exc_info or record.exc_info[1] is None:
            return True
        found.append(record.exc_info[1])
        return False


logging.getLogger("bluesky_tiled_plugins.writing.tiled_writer").addFilter(_Note())


@contextmanager
def failures_in(errors: list[BaseException]) -> Iterator[None]:
    """Add the errors that TiledWriter would log in this thread to a list."""
    _storing.errors = errors
    try:
        yield
    finally:
        _storing.errors = None


def unstorable_value(documents: Documents) -> str:
    """Return the first value that the table of its stream cannot have; empty: there is none.

    Parameters
    ----------
    documents : list of (str, dict)
        The documents of a run.
    """
    streams: dict[str, str] = {}
    columns: dict[tuple[str, str], list[Any]] = {}
    for name, doc in documents:
        if name == "descriptor":
            streams[doc["uid"]] = doc.get("name", "")
        elif name in ("event", "event_page"):
            stream = streams.get(doc["descriptor"], "")
            for key, value in doc["data"].items():
                rows = value if name == "event_page" else [value]
                columns.setdefault((stream, key), []).extend(rows)
    for (stream, key), values in columns.items():
        row = _first_unstorable(values)
        if row is not None:
            value = _short(values[row])
            return f"field {key!r} of stream {stream!r}: the value {value} in row {row + 1}"
    return ""


def _first_unstorable(values: list[Any]) -> int | None:
    if _is_storable(values):
        return None
    # The first row that those before it do not go with.
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _is_storable(values[: middle + 1]) else (low, middle)
    return low


def _is_storable(values: list[Any]) -> bool:
    try:
        kind = pyarrow.array(values).type
    except (pyarrow.ArrowException, OverflowError, ValueError, TypeError):
        return False
    return not pyarrow.types.is_struct(kind)


def reason_of(errors: list[BaseException]) -> str:
    """Return the first line of the first error, for the middle of a sentence; empty: none."""
    for error in errors:
        return (str(error).strip().splitlines() or [repr(error)])[0].rstrip(".")
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
