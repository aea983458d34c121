"""Step: a capture, read back."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import PcapFile, ethernet
from ._bench import Bench
from ._frames import marks_of, size_of
from ._lanes import Lane
from ._step import StepFailedError, StepSkippedError
from ._traffic import Traffic

__all__ = ["capture_folder", "check_recorder"]

Rows = NDArray[np.uint8]

_PACKETS = 5000
_RATE = 20_000
_WANTED = 512
_SPARE = 64 << 20
_QUIET = 0.5


def capture_folder(folder: Path) -> Path:
    """Return the folder of a capture that is not read back yet; the next test removes it."""
    return folder / ".field-test-capture"


def check_recorder(bench: Bench) -> tuple[str, dict[str, Any]]:
    """Record packets of a lane to a file, and compare each of its bytes; the file is deleted.

    Raises
    ------
    StepFailedError
        If packets in the file differ; the file stays, in a folder that the text names.
    StepSkippedError
        If the disk lacks space, or the stream has no packets.
    """
    lane = bench.open_lanes()[0]
    if lane.stream:
        raise StepSkippedError("a TCP stream has no packets to compare with those of a file")
    size = min(size_of(lane, _WANTED), bench.largest([lane]))
    needed = _PACKETS * (size + 128) + _SPARE
    if (free := shutil.disk_usage(bench.folder).free) < needed:
        raise StepSkippedError(
            f"{bench.folder} has {free / 1e6:,.0f} MB free, and the step needs {needed / 1e6:,.0f}",
            again=True,
        )
    traffic = bench.traffic([lane], size)
    if len(lane.rx_queues) > 1:
        raise StepSkippedError(f"flow {lane.name} leads to several queues")
    traffic.discard()
    place = capture_folder(bench.folder)
    place.mkdir()
    try:
        return _read_back(bench, lane, traffic, size, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _read_back(
    bench: Bench, lane: Lane, traffic: Traffic, size: int, place: Path
) -> tuple[str, dict[str, Any]]:
    queue = bench.engine.port(lane.receiver).rx_queue(lane.rx_queues[0])
    # Of other senders, too.
    with queue.record(place, "field", max_packets=4 * _PACKETS) as recorder:
        traffic.send(_PACKETS, _RATE)
        recorder.wait(_QUIET)
    files = [each.path for each in recorder.files()]
    figures: dict[str, Any] = {"size": size, "writer": recorder.writer, "files": len(files)}
    found = [_payloads(path, size, lane.header is None) for path in files]
    rows: Rows = np.concatenate([np.zeros((0, size), np.uint8), *found])
    known, _ = marks_of(rows, 1, traffic.count)
    figures["strange"] = int(np.count_nonzero(~known))
    rows = rows[known]
    figures["packets"] = len(rows)
    figures["bytes"] = sum(path.stat().st_size for path in files)
    wanted = traffic.expected[np.arange(_PACKETS) % traffic.count]
    if rows.shape != wanted.shape:
        raise StepFailedError(
            f"{len(rows):,} of {_PACKETS:,} packets are in the files, which stay in {_keep(place)}",
            figures,
        )
    if not np.array_equal(rows, wanted):
        wrong = int(np.count_nonzero((rows != wanted).any(axis=1)))
        raise StepFailedError(f"{wrong:,} packets differ; files stay in {_keep(place)}", figures)
    return f"{len(rows):,} packets of {size} B, each byte read back ({recorder.writer})", figures


def _keep(place: Path) -> Path:
    """Give a capture a name that later tests do not use, and return it."""
    names = (place.with_name(f"capture-{number}") for number in itertools.count(1))
    kept = next(name for name in names if not name.exists() and not name.is_symlink())
    return place.rename(kept)


def _payloads(path: Path, size: int, of_socket: bool) -> Rows:
    """Return the packets of a size in a file as rows; of sockets without the headers of files."""
    with PcapFile(path) as packets:
        if not len(packets):
            return np.zeros((0, size), np.uint8)
        if of_socket:
            begin, length = ethernet.udp_payload(packets)
        else:
            begin, length = packets.offsets, packets.lengths
        first: NDArray[Any] = begin[length == size]
        places = first.reshape(-1, 1) + np.arange(size)
        return packets.data[places]
