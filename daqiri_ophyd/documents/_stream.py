"""Files and counters of a capture in one stream, one row per file."""

import threading
import time as _time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from event_model.documents import DataKey

from ._sequence import CaptureFormat, CaptureSequence, StreamAsset, capture_data_key

__all__ = ["CaptureStream"]


class CaptureStream:
    """Documents of a device that captures to files: one row per file, with its counters.

    A device owns one and delegates Bluesky's hooks to it:

    ========================== ===================================================================
    device                     stream
    ========================== ===================================================================
    ``stage``                  `begin`, with the directory of this run
    ``trigger`` (step scan)    `discard`, before the file of this reading begins
    a file is finished         `append`, with the counters at that moment
    ``describe`` (step scan)   `describe`, beside the device's own signals
    ``describe_collect`` (fly) `describe_collect`
    ``collect_asset_docs``     `collect_asset_docs`
    ``collect_pages`` (fly)    `collect_pages`
    ========================== ===================================================================

    The device must have ``collect_pages`` and no ``get_index``: with ``get_index`` the RunEngine
    collects the files only and leaves the counters out. A reading of a step scan must finish
    exactly one file.

    `append` may be called from another thread than the rest.

    Parameters
    ----------
    data_key : str
        Name of the files' key in descriptors, such as ``port0_capture_files``.
    source : str
        Source of the packets, such as ``daqiri://port0/rx/0``.
    counters : mapping of str to DataKey
        Scalars that a fly scan stores for each file, by their full name in descriptors; at least
        one, because the RunEngine numbers the rows of a fly scan by them.

    Raises
    ------
    ValueError
        If there are no counters.
    """

    def __init__(self, data_key: str, source: str, counters: Mapping[str, DataKey]) -> None:
        if not counters:
            raise ValueError(
                f"The stream of {data_key!r} needs at least one counter for each file."
            )
        self._data_key = data_key
        self._source = source
        self._counters = dict(counters)
        self._sequence: CaptureSequence | None = None
        self._lock = threading.Lock()  # guards the rows
        self._rows: list[tuple[float, dict[str, Any]]] = []
        self._first_row = 0
        self._collected = range(0)

    def begin(
        self,
        directory: str | Path,
        prefix: str = "capture",
        *,
        format: CaptureFormat = "pcap",
        uri: str | None = None,
    ) -> CaptureSequence:
        """Start over with the files of a new run.

        Parameters are those of `CaptureSequence`, which is returned; its ``path(index)`` is the
        path of a file.
        """
        sequence = CaptureSequence(self._data_key, directory, prefix, format=format, uri=uri)
        with self._lock:
            self._sequence = sequence
            self._rows.clear()
            self._first_row = 0
            self._collected = range(0)
        return sequence

    @property
    def counters(self) -> frozenset[str]:
        """Names of the counters of each file."""
        return frozenset(self._counters)

    @property
    def finished(self) -> int:
        """Files finished in this run."""
        with self._lock:
            return self._first_row + len(self._rows)

    @property
    def uncollected(self) -> list[Path]:
        """Finished files that are in no document and were not discarded."""
        if self._sequence is None:
            return []
        return [self.path(index) for index in range(self._sequence.emitted, self.finished)]

    def path(self, index: int) -> Path:
        """Return the path of the file with this index."""
        return self._begun().path(index)

    def append(self, counters: Mapping[str, Any], time: float | None = None) -> int:
        """Add the row of a file that is complete on disk.

        Parameters
        ----------
        counters : mapping of str to scalar
            A value for each counter, at the moment the file was finished.
        time : float, optional
            Time of that moment, s since the epoch; default: now.

        Returns
        -------
        int
            Index of the file.

        Raises
        ------
        ValueError
            If the names differ from those that were declared.
        RuntimeError
            If no run has begun.
        """
        self._begun()
        values = dict(counters)
        if values.keys() != self._counters.keys():
            raise ValueError(
                f"Counters {sorted(values)} for a file of {self._data_key!r}, "
                f"declared are {sorted(self._counters)}."
            )
        row = (_time.time() if time is None else time, values)
        with self._lock:
            self._rows.append(row)
            return self._first_row + len(self._rows) - 1

    def discard(self) -> None:
        """Leave out the files that are in no document yet.

        After a pause the RunEngine takes the interrupted reading again. Files of the first attempt
        stay on disk but are not part of the stream.
        """
        finished = self.finished
        self._begun().skip(finished)
        self._forget(finished)
        self._collected = range(0)

    def describe(self) -> dict[str, DataKey]:
        """Return the data key of the files, for a step scan."""
        return {self._data_key: capture_data_key(self._source)}

    def describe_collect(self) -> dict[str, DataKey]:
        """Return the data keys of files and counters, for a fly scan."""
        return {**self.describe(), **self._counters}

    def collect_asset_docs(self) -> Iterator[StreamAsset]:
        """Yield the documents of the files finished since the last call."""
        sequence = self._begun()
        start, stop = sequence.emitted, self.finished
        self._forget(start)
        self._collected = range(start, stop)
        yield from sequence.emit(stop)

    def collect_pages(self) -> Iterator[dict[str, Any]]:
        """Yield one event page: the counters of the files in the last `collect_asset_docs`."""
        with self._lock:
            rows = self._rows[: len(self._collected)]
        self._forget(self._collected.stop)
        self._collected = range(0)
        if not rows:
            return
        times = [time for time, _ in rows]
        yield {
            "time": times,
            "data": {name: [values[name] for _, values in rows] for name in self._counters},
            "timestamps": dict.fromkeys(self._counters, times),
        }

    def _begun(self) -> CaptureSequence:
        if self._sequence is None:
            raise RuntimeError(f"The stream of {self._data_key!r} has no run; stage its device.")
        return self._sequence

    def _forget(self, stop: int) -> None:
        """Drop rows before index ``stop``; only rows not collected yet are kept."""
        with self._lock:
            if stop > self._first_row:
                del self._rows[: stop - self._first_row]
                self._first_row = stop
