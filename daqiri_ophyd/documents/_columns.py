"""Columns of a row of capture files: their names, and their values from the files."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from daqiri_ophyd.engine import RecordedFile

from ._summary import FileSummary

__all__ = ["FILE_COUNTERS", "CountedFile", "files_column", "row_columns", "row_counters"]

FILE_COUNTERS = ("packets", "dropped", "bytes", "t_first_ns", "t_last_ns")
"""Counters of a file. In a row with several files, each file has columns for them."""


CountedFile: TypeAlias = RecordedFile | FileSummary
"""A capture file whose counters are known."""


def files_column(stem: str) -> str:
    """Return the column of files of a device, or of one of its queues."""
    return f"{stem}_files"


def row_counters(files: Sequence[CountedFile]) -> dict[str, Any]:
    """Return the counters of a row, by their names after that of the device.

    Parameters
    ----------
    files : sequence of CountedFile
        The files of the row, one of each queue of a port.
    """
    begins = [file.t_first_ns for file in files if file.t_first_ns >= 0]
    dropped = sum(file.dropped for file in files)
    # Of the port that all of them share.
    lost_before_engine = max(file.lost_before_engine for file in files)
    return {
        "packets": sum(file.packets for file in files),
        "dropped": dropped,
        "bytes": sum(file.bytes for file in files),
        "t_first_ns": min(begins, default=-1),
        "t_last_ns": max(file.t_last_ns for file in files),
        "lost_before_engine": lost_before_engine,
        "lossy": dropped + lost_before_engine > 0,
    }


def row_columns(device: str, files: Mapping[str, CountedFile]) -> dict[str, Any]:
    """Return all columns of counters that a row may have, with their values.

    Parameters
    ----------
    device : str
        Name of the device.
    files : mapping of str to CountedFile
        The files of the row, by their columns.
    """
    values: dict[str, Any] = {}
    for column, file in files.items():
        stem = column.removesuffix(files_column(""))
        values |= {f"{stem}_{name}": getattr(file, name) for name in FILE_COUNTERS}
    counters = row_counters(list(files.values()))
    return values | {f"{device}_{name}": value for name, value in counters.items()}
