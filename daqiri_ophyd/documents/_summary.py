"""Summary of one capture file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["SUMMARY_DTYPE", "FileSummary"]

SUMMARY_DTYPE = np.dtype(
    [
        ("packets", "<u8"),
        ("bytes", "<u8"),
        ("t_first_ns", "<i8"),
        ("t_last_ns", "<i8"),
        ("dropped", "<u8"),
    ]
)
"""Type of the record of a capture file in catalogs."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """Summary of one complete capture file.

    Parameters
    ----------
    path : Path
        The file.
    packets : int
        Packets in the file.
    bytes : int
        Packet bytes on the wire; record headers not counted.
    t_first_ns, t_last_ns : int
        Timestamps of the first and the last packet, ns since the epoch; -1 in an empty file.
    dropped : int
        Packets lost while this was the current file.
    lost_before_engine : int
        Packets that the host lost before the engine in that time; not in the record.
    """

    path: Path
    packets: int
    bytes: int
    t_first_ns: int = -1
    t_last_ns: int = -1
    dropped: int = 0
    lost_before_engine: int = 0

    def record(self) -> np.ndarray:
        """Return the summary as an array of shape ``()`` and dtype `SUMMARY_DTYPE`."""
        values = tuple(getattr(self, name) for name in SUMMARY_DTYPE.names or ())
        return np.array(values, SUMMARY_DTYPE)
