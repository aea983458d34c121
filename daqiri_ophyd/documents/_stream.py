"""Files and counters of a capture in one stream, row by row."""

import threading
import time as _time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from event_model.documents import DataKey

from ._sequence import CaptureFormat, CaptureSequence, StreamAsset, capture_data_key

__all__ = ["CaptureStream"]


class CaptureStream:
    """Documents of a device that captures to files: one row per file, counters beside it.

    A device owns one and passes on what Bluesky asks:

    ========================== ===================================================================
    device                     stream
    ========================== ===================================================================
    ``stage``                  `begin`, with the directory of this run
    ``trigger`` (step scan)    `discard`, before the file of this reading is begun
    a file is finished         `append`, with the counters at that moment
    ``describe`` (step scan)   `describe`, beside the device's own signals
    ``describe_collect`` (fly) `describe_collect`
    ``collect_asset_docs``     `collect_asset_docs`
    ``collect_pages`` (fly)    `collect_pages`
    ========================== ===================================================================

    The device has to have ``collect_pages`` and no ``get_index``: with ``get_index`` the RunEngine
    takes the files only and leaves the counters out. A reading of a step scan has to finish
    exactly one file.

    `append` may be called from another thread than the rest.

    Parameters
    ----------
    data_key : str
        Name of the files' key in descriptors, such as ``port0_capture_files``.
    source : str
        What the packets came from, such as ``daqiri://port0/rx/0``.
    counters : mapping of str to DataKey
        Scalars that a fly scan stores for each file, by their full name in descriptors; at least
        one, because the RunEngine numbers the rows of a flight by them.

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
        self._lock = threading.Lock()  # over the rows
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

        Parameters are those of `CaptureSequence`, which is returned; its ``path(index)`` says where
        the next file belongs.
        """
        sequence = CaptureSequence(self._data_key, directory, prefix, format=format, uri=uri)
        with self._lock:
            self._sequence = sequence
            self._rows.clear()
            self._first_row = 0
            self._collected = range(0)
        return sequence

    @property
    def finished(self) -> int:
        """Files finished in this run."""
        with self._lock:
            return self._first_row + len(self._rows)

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
            When that was, in seconds since the epoch; default now.

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
        """Leave files out that no document speaks of yet.

        After a pause the RunEngine takes the interrupted reading again; what its first try
        finished stays on disk, outside of the stream.
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
            raise RuntimeError(f"The stream of {self._data_key!r} has not begun; stage its device.")
        return self._sequence

    def _forget(self, stop: int) -> None:
        """Drop rows before index ``stop``; a long run keeps only what is not collected yet."""
        with self._lock:
            if stop > self._first_row:
                del self._rows[: stop - self._first_row]
                self._first_row = stop
