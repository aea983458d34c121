"""Files and counters of a capture in one stream, one row per file."""

from __future__ import annotations

import threading
import time as _time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._sequence import CaptureFormat, CaptureSequence, StreamAsset, capture_data_key

if TYPE_CHECKING:
    from event_model.documents import DataKey

__all__ = ["CaptureStream"]


class CaptureStream:
    """Documents of a device that captures to files: one row per file, with its counters.

    With several data keys, such as for several queues, a row has one file for each.

    A device owns a stream and delegates Bluesky's hooks to it:

    ========================== ===================================================================
    device                     stream
    ========================== ===================================================================
    ``stage``                  `begin`, with the directory of this run
    ``trigger`` (step scan)    `discard`, before the file of this reading begins
    a file is finished         `append`, with the counters at that moment
    ``describe`` (step scan)   `describe`, besides the device's own signals
    ``describe_collect`` (fly) `describe_collect`
    ``collect_asset_docs``     `collect_asset_docs`
    ``collect_pages`` (fly)    `collect_pages`
    ========================== ===================================================================

    Counters are events, so the device must have ``collect_pages`` and no ``get_index``: with
    ``get_index`` the RunEngine collects no events. A stream of several flyers cannot have events:
    after `share`, counters are read from the files, as separate documents, and the device needs a
    ``get_index`` that returns `index`. A reading of a step scan must finish exactly one file.

    `append` may be called from a thread other than the rest.

    Parameters
    ----------
    sources : mapping of str to str
        Source of the packets, such as ``daqiri://port0/rx/0``, by the name of the files' key in
        descriptors, such as ``port0_capture_files``.
    counters : mapping of str to DataKey
        Scalars that a fly scan stores for each file, by their full name in descriptors. At least
        one is required, because the RunEngine numbers the rows of a fly scan by them.

    Raises
    ------
    ValueError
        If there are no counters.
    """

    def __init__(self, sources: Mapping[str, str], counters: Mapping[str, DataKey]) -> None:
        self._sources = dict(sources)
        if not counters:
            raise ValueError(
                f"The stream of {self._name!r} needs at least one counter for each file."
            )
        self._counters = dict(counters)
        self._sequences: list[CaptureSequence] = []
        self._lock = threading.Lock()  # guards the rows
        self._rows: list[tuple[float, dict[str, Any]]] = []
        self._first_row = 0
        self._collected = range(0)
        self._announced = True
        self._fields: dict[str, str] = {}
        self._first_shared = 0
        self._counter_sequences: list[CaptureSequence] = []

    def begin(
        self,
        directory: str | Path,
        *prefixes: str,
        format: CaptureFormat = "pcap",
        uri: str | None = None,
    ) -> list[CaptureSequence]:
        """Start again with the files of a new run.

        Parameters are those of `CaptureSequence`, with a prefix for each data key. Returns the
        sequences, whose ``path(index)`` is the path of a file.
        """
        sequences = [
            CaptureSequence(key, directory, prefix, format=format, uri=uri)
            for key, prefix in zip(self._sources, prefixes, strict=True)
        ]
        self._first_shared = -self.index  # continues, as that of other flyers does
        with self._lock:
            self._sequences = sequences
            self._rows.clear()
            self._first_row = 0
            self._collected = range(0)
        self._counter_sequences = []
        return sequences

    def share(self, fields: Mapping[str, str]) -> None:
        """Share the stream of a fly scan with other flyers; `index` counts from here.

        Parameters
        ----------
        fields : mapping of str to str
            Fields of the files, as in `CaptureSequence`, by the names of all counters.

        Raises
        ------
        ValueError
            If there are several data keys, or the names differ from those that were declared.
        """
        if len(self._sources) > 1 or fields.keys() != self._counters.keys():
            raise ValueError(
                f"Fields {sorted(fields)} for the stream of {self._name!r}; accepted are one file "
                f"for each row, and {sorted(self._counters)}."
            )
        self._fields = dict(fields)
        self._first_shared = self._sequences[0].emitted if self._sequences else 0
        self._counter_sequences = []

    @property
    def index(self) -> int:
        """Files of fly scans finished since `share`."""
        return self.finished - self._first_shared

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
        if not self._sequences:
            return []
        indices = range(self._sequences[0].emitted, self.finished)
        return [path for index in indices for path in self.paths(index)]

    def paths(self, index: int) -> list[Path]:
        """Return the paths of the files with this index, one for each data key."""
        return [sequence.path(index) for sequence in self._begun()]

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
                f"Counters {sorted(values)} for a file of {self._name!r}, "
                f"declared are {sorted(self._counters)}."
            )
        row = (_time.time() if time is None else time, values)
        with self._lock:
            self._rows.append(row)
            return self._first_row + len(self._rows) - 1

    def announce(self) -> None:
        """Name the directory in the next `collect_asset_docs`, even if no file is complete.

        For fly scans: the files can then be found if the process is killed.
        """
        self._announced = False

    def discard(self) -> None:
        """Leave out the files that are in no document yet.

        After a pause the RunEngine repeats the interrupted reading. Files of the first attempt stay
        on disk but are not part of the stream.
        """
        finished = self.finished
        self._first_shared += finished - self._begun()[0].emitted
        for sequence in self._begun():
            sequence.skip(finished)
        self._counter_sequences = []
        self._forget(finished)
        self._collected = range(0)

    def describe(self) -> dict[str, DataKey]:
        """Return the data keys of the files, for a step scan."""
        return {key: capture_data_key(source) for key, source in self._sources.items()}

    def describe_collect(self) -> dict[str, DataKey]:
        """Return the data keys of files and counters, for a fly scan."""
        counters = self._counters
        if self._fields:
            counters = {name: _external(key) for name, key in counters.items()}
        return {**self.describe(), **counters}

    def collect_asset_docs(
        self, index: int | None = None, *, shared: bool = False
    ) -> Iterator[StreamAsset]:
        """Yield the documents of the files finished since the last call.

        Parameters
        ----------
        index : int, optional
            Yield files up to this `index`; default: all files.
        shared : bool
            Whether counters have documents, too: in a fly scan, after `share`.
        """
        begun = sequences = self._begun()
        if shared:
            if not self._counter_sequences:
                counted = [begun[0].counter(name, field) for name, field in self._fields.items()]
                self._counter_sequences = counted
            sequences = [*begun, *self._counter_sequences]
        else:
            self._counter_sequences = []
        if not self._announced:
            self._announced = True
            yield from [sequence.announce() for sequence in sequences]
        start, stop = begun[0].emitted, self.finished
        if index is not None:
            stop = max(start, min(stop, self._first_shared + index))
        if not shared:
            self._first_shared += stop - start  # of readings, which other flyers do not have
        self._forget(stop if shared else start)
        self._collected = range(0) if shared else range(start, stop)
        for sequence in sequences:
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

    @property
    def _name(self) -> str:
        return ", ".join(self._sources)

    def _begun(self) -> list[CaptureSequence]:
        if not self._sequences:
            raise RuntimeError(f"The stream of {self._name!r} has no run; stage its device.")
        return self._sequences

    def _forget(self, stop: int) -> None:
        """Drop rows before index ``stop``; only rows not collected yet are kept."""
        with self._lock:
            if stop > self._first_row:
                del self._rows[: stop - self._first_row]
                self._first_row = stop


def _external(key: DataKey) -> DataKey:
    """Return the data key of a counter that is read from files."""
    external: Any = {**key, "external": "STREAM:"}
    return external
