"""Rows of a capture: files, counters and reductions, in the order of the files."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import CaptureStream
from daqiri_ophyd.engine import RecordedFile

from ...parts._signals import DataKeys
from .._errors import CaptureError
from .._paths import PathInfo, make_directory
from ._columns import CaptureColumns
from ._row_worker import RowWorker

__all__ = ["CaptureRows"]


class CaptureRows:
    """Makes a row of the files that are complete, one of each queue.

    Parameters
    ----------
    device : str
        Name of the capture.
    columns : CaptureColumns
        Names of its columns.
    keys : dict
        Data keys of its counters.
    """

    def __init__(self, device: str, columns: CaptureColumns, keys: DataKeys) -> None:
        self._device = device
        self.columns = columns
        self.stream = CaptureStream(columns.files, keys)
        self.latest: Sequence[RecordedFile] = ()
        self.reduced: dict[str, float] = {}
        self._begun = False
        self._lock = threading.Lock()  # guards the files without a row
        self._waiting: deque[Sequence[RecordedFile]] = deque()
        self._worker: RowWorker | None = None

    def start_worker(self) -> None:
        """Make rows on a thread from now on, because reductions take time."""
        self._worker = RowWorker(f"{self._device}-reductions")

    def close(self) -> None:
        """End the thread, after the rows of files that are complete."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def in_order(
        self, call: Callable[[Any], None], failed: Callable[[Exception], Any], value: Any
    ) -> None:
        """Call a function after the rows so far, on the thread that makes rows, if there is one.

        On that thread, ``failed`` is called with an exception that it raises.
        """
        if self._worker is None:
            call(value)
        else:
            self._worker.submit(partial(call, value), failed)

    def add(
        self,
        call: Callable[[Sequence[RecordedFile]], None],
        failed: Callable[[Exception], Any],
        files: Sequence[RecordedFile],
    ) -> None:
        """Note complete files, which have no row yet, and call what makes it; see `in_order`."""
        with self._lock:
            self._waiting.append(files)
        self.in_order(call, failed, files)

    def claim(self, files: Sequence[RecordedFile]) -> bool:
        """Return whether these files still need a row; the caller appends it."""
        with self._lock:
            if not self._waiting or self._waiting[0] is not files:
                return False
            self._waiting.popleft()
            return True

    def abandon(self) -> list[Sequence[RecordedFile]]:
        """Return the files without a row; reductions of them that end later are ignored."""
        with self._lock:
            files = list(self._waiting)
            self._waiting.clear()
            return files

    def busy(self) -> float:
        """Return how long the reductions of a row have been computed, s; 0: none are."""
        return 0.0 if self._worker is None else self._worker.busy()

    def wait(self, seconds: float) -> bool:
        """Wait for the rows of the files that are complete; return False on timeout."""
        return self._worker is None or self._worker.wait(seconds)

    # --- Files

    def begin(self, place: PathInfo, format: Any, *, is_new: bool = True) -> None:
        """Continue with files in a directory, which is created if it is new.

        Raises
        ------
        CaptureError
            If files are in no document yet, or the directory cannot be used.
        """
        if missing := self.stream.uncollected:
            raise CaptureError(f"{self._device}: {missing[0]} was not collected before the next.")
        directory, prefixes = Path(place.directory_path), self.columns.prefixes(place.filename)
        if is_new:
            make_directory(directory, prefixes, self._device)
        self.stream.begin(directory, *prefixes, format=format, uri=place.directory_uri)
        self._begun = True

    @property
    def begun(self) -> bool:
        """Whether there are files."""
        return self._begun

    @property
    def files(self) -> list[Path]:
        """Complete files, in the order of their rows and queues."""
        if not self._begun:
            return []
        return [path for row in range(self.stream.finished) for path in self.stream.paths(row)]

    def require_expected(self, files: Sequence[RecordedFile]) -> None:
        """Raise `CaptureError` if files are not those of the next row."""
        for file, expected in zip(files, self.stream.paths(self.stream.finished), strict=True):
            if file.path != expected:
                # The number of a file is its row: a reader would open the existing file instead.
                raise CaptureError(
                    f"{expected} existed before this capture, which continues in "
                    f"{file.path.name}; move it out of the directory of the run"
                )

    def reduce(self, files: Sequence[RecordedFile]) -> tuple[dict[str, float], CaptureError | None]:
        """Return the reductions of files, NaN if one fails, and its error."""
        try:
            return self.columns.reduce(files), None
        except CaptureError as error:
            return dict.fromkeys(self.columns.reduced, math.nan), error

    def append(
        self, files: Sequence[RecordedFile], counters: Mapping[str, Any], reduced: dict[str, float]
    ) -> None:
        """Append the row of complete files.

        Parameters
        ----------
        files : sequence of RecordedFile
            A file of each queue.
        counters : mapping
            Sums of their counters, by the names of columns.
        reduced : dict of str to float
            Their reductions.
        """
        self.latest, self.reduced = files, reduced
        values = {**counters, **self.columns.of_queues(files, counters), **reduced}
        declared = self.stream.counters
        self.stream.append({name: values[name] for name in values if name in declared}, time.time())

    def readings(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the counters of each queue and the reductions of the latest row."""
        reduced = {name: self.reduced.get(name, math.nan) for name in self.columns.reduced}
        return self.columns.of_queues(self.latest, known) | reduced
