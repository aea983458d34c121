"""Contents of the files of a capture."""

from pathlib import Path
from typing import Any

import numpy as np

from ..documents import read_sidecar
from ..engine import PcapFile


def read_arrivals(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return arrival times (ns) and lengths (bytes) of all packets of capture files."""
    times, lengths = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    for file in files:
        with PcapFile(file) as pcap:
            times.append(pcap.timestamps)
            lengths.append(pcap.lengths)
    return np.concatenate(times), np.concatenate(lengths)


def summarize(files: list[Path], run: str) -> dict[str, Any]:
    """Return the totals of a capture, with the drops in the recorder's metadata."""
    times, lengths = read_arrivals(files)
    sidecars = [read_sidecar(file) for file in files]
    return {
        "run": run,
        "received": int(times.size),
        "bytes": int(lengths.sum()),
        "dropped": sum(sidecar.dropped for sidecar in sidecars if sidecar is not None),
        "files": [str(file) for file in files],
    }
