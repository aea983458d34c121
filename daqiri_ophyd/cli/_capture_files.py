"""Contents of the files of a capture."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ..documents import read_sidecar
from ..engine import PcapFile

_UDP = 17
# Packets of a file whose headers are read.
_CHECKED = 10_000


def read_arrivals(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return arrival times (ns) and lengths (bytes) of all packets of capture files."""
    times, lengths = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    for file in files:
        with PcapFile(file) as pcap:
            times.append(pcap.timestamps)
            lengths.append(pcap.lengths)
    return np.concatenate(times), np.concatenate(lengths)


def summarize(files: list[Path], run: str) -> dict[str, Any]:
    """Return the totals of a capture, with the losses in the recorder's metadata."""
    times, lengths = read_arrivals(files)
    sidecars = [each for file in files if (each := read_sidecar(file)) is not None]
    dropped: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    # Recorders of several queues have counted the losses of the same port.
    by_queue: dict[str, Counter[str]] = {}
    for sidecar in sidecars:
        dropped.update(sidecar.dropped_by_reason)
        left_out.update(sidecar.left_out_by_reason)
        counted = by_queue.setdefault(sidecar.queue, Counter(total=0))
        counted.update(total=sidecar.lost_before_engine)
        counted.update(sidecar.lost_before_engine_by_reason)
    lost = max(by_queue.values(), key=lambda counted: counted["total"], default=Counter(total=0))
    return {
        "run": run,
        "received": int(times.size),
        "bytes": int(lengths.sum()),
        "dropped": sum(sidecar.dropped for sidecar in sidecars),
        "dropped_by_reason": dict(dropped),
        "left_out": left_out.total(),
        "left_out_by_reason": dict(left_out),
        "lost_before_engine": lost.pop("total"),
        "lost_before_engine_by_reason": dict(lost),
        "files": [str(file) for file in files],
    }


def has_fragments(files: list[Path]) -> bool:
    """Whether there are first fragments of UDP datagrams among the first packets of files."""
    for file in files:
        with PcapFile(file) as pcap:
            columns = pcap[:_CHECKED].to_columns(["transport", "udp_length"])
        if np.any((columns["transport"] == _UDP) & (columns["udp_length"] == 0)):
            return True
    return False
