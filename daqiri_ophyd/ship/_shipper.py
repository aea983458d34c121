"""Uploads complete files to an object store, in the background."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ._registry import register
from ._shipment import Shipment
from ._state import ShipperState
from ._store import StoreError, open_store, reason_of
from ._upload import StoreFailedError, Uploads

__all__ = ["Shipper"]

_log = logging.getLogger(__name__)

# Files at once: small ones wait for answers of the store most of the time.
_UPLOADS = 8
# Between attempts, s: the first and the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
# The store may never answer a request; nobody waits longer than this for it, s.
_CLOSING_S = 5.0


@dataclass(eq=False, slots=True)
class _Waiting:
    shipment: Shipment
    file: Path
    bytes: int
    sent: int = 0
    attempts: int = 0
    due: float = 0.0  # of the next attempt, monotonic

    def note_sent(self, size: int) -> None:
        self.sent = size


class Shipper:
    """Uploads files to one bucket, on threads of its own.

    An upload that fails is repeated until it succeeds. The object ``NAME.json`` is uploaded last:
    it says that ``NAME`` is whole. It has the file's metadata and ``object`` (``bytes``,
    ``sha256``); for a raw file also ``index``, with the same keys.

    Parameters
    ----------
    bucket : str
        As for `open_store`.
    **options
        As for `open_store`.

    Raises
    ------
    StoreError
        As `open_store`.
    """

    def __init__(self, bucket: str, **options: Any) -> None:
        self.bucket = bucket
        self.opened_ns = time.time_ns()
        self._options = options
        self._uploads = Uploads(open_store(bucket, **options), _UPLOADS)
        self._changed = threading.Condition()
        self._waiting: dict[Path, _Waiting] = {}
        self._unsent_bytes = 0
        self._ages: list[tuple[float, Path]] = []  # heap of times, also of files that are gone
        self._busy: set[Path] = set()
        self._shipments: dict[Path, Shipment] = {}
        self._shipped = self._shipped_bytes = 0
        self._error = ""
        self._pause = 0.0
        self._not_before = 0.0
        self._closing = False
        self._threads: list[threading.Thread] = []

    # --- Files

    def begin(
        self,
        folder: Path,
        prefix: str,
        ship_to: str,
        *,
        keep: bool = True,
        files: Iterable[str] | None = None,
    ) -> Shipment:
        """Write the order for the files that a recorder is going to write; see `Shipment.create`.

        `end` follows.
        """
        shipment = Shipment.create(folder, prefix, ship_to, keep=keep, files=files)
        with self._changed:
            self._shipments[shipment.path] = shipment
        self._start()
        return shipment

    def add(self, shipment: Shipment, file: Path) -> None:
        """Upload a complete file soon; a file that was added before is not added again."""
        if file in shipment.added:
            return
        found = file.stat()
        with self._changed:
            # It may be of two orders.
            if file in shipment.added or file in self._waiting:
                return
            shipment.added.add(file)
            shipment.left += 1
            self._waiting[file] = _Waiting(shipment, file, found.st_size)
            self._unsent_bytes += found.st_size
            heapq.heappush(self._ages, (found.st_mtime, file))
            # One could be somebody who waits for the uploads.
            self._changed.notify_all()

    def end(self, shipment: Shipment) -> None:
        """Upload what is complete and was not added; no more files come."""
        try:
            for file in list(shipment.unshipped()):
                self.add(shipment, file)
        finally:
            with self._changed:
                # Not before: the files that are there by then could be in the store already.
                shipment.ended = True
                self._release(shipment)

    def take(self, shipment: Shipment) -> None:
        """Continue an order that another process left."""
        with self._changed:
            self._shipments[shipment.path] = shipment
        self._start()
        self.end(shipment)

    # --- Progress

    @property
    def is_closed(self) -> bool:
        """Whether it uploads nothing any more."""
        return self._closing

    @property
    def state(self) -> ShipperState:
        """Progress."""
        with self._changed:
            while self._ages and self._ages[0][1] not in self._waiting:
                heapq.heappop(self._ages)
            return ShipperState(
                self._shipped,
                self._shipped_bytes,
                len(self._waiting),
                self._unsent_bytes,
                sum(self._waiting[file].sent for file in self._busy),
                max(0.0, time.time() - self._ages[0][0]) if self._ages else 0.0,
                self._error,
            )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all files are in the store; False: not within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout)

    def wait_unless_failing(self, timeout: float | None = None) -> bool:
        """Wait until all files are in the store, one has failed, or it takes longer."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or bool(self._error), timeout)
            return not self._waiting

    def close(self) -> None:
        """End the uploads in progress; what is not in the store stays in its folder."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        end = time.monotonic() + _CLOSING_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._uploads.end()
        with self._changed:
            for shipment in self._shipments.values():
                shipment.release(done=False)
            self._shipments.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _release(self, shipment: Shipment) -> None:
        if not shipment.ended or shipment.left:
            return
        self._shipments.pop(shipment.path, None)
        try:
            unmarked = shipment.unmarked
            shipment.release(done=not unmarked)
        except OSError as error:
            shipment.release(done=False)
            _log.warning("%s cannot be removed: %s", shipment.path, error)
            return
        if unmarked:
            _log.warning(
                "%s is not uploaded: it is not complete. `daqiri-ophyd catalog recover` "
                "completes it, and uploads it.",
                unmarked[0],
            )

    # --- The threads

    def _start(self) -> None:
        """Start the threads, once: they are in the network namespace of the one that starts them.

        So `begin` does it, and not whoever reports files: a thread that may be of earlier devices.
        """
        with self._changed:
            if self._threads or self._closing:
                return
            self._threads = [
                threading.Thread(target=self._run, name=f"ship-{n}", daemon=True)
                for n in range(_UPLOADS)
            ]
            for thread in self._threads:
                thread.start()
        register(self)

    def _next(self) -> _Waiting | None:
        """Return a file that nobody uploads, the earliest first; None: there is none now."""
        now = time.monotonic()
        if now < self._not_before:
            return None
        for each in self._waiting.values():
            if each.file not in self._busy and each.due <= now:
                return each
        return None

    def _until(self) -> float | None:
        """Return the time until another attempt is due, s; None: none waits for its time."""
        due = [each.due for each in self._waiting.values() if each.file not in self._busy]
        return max(0.0, max(min(due), self._not_before) - time.monotonic()) if due else None

    def _run(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None and not self._closing:
                    self._changed.wait(self._until())
                if self._closing or found is None:
                    return
                self._busy.add(found.file)
            try:
                self._uploads.upload(found.shipment, found.file, found.note_sent)
            except BaseException as error:  # noqa: BLE001 - an upload is repeated whatever its error was
                self._note_failure(found, error)
            else:
                self._note_success(found)

    def _note_success(self, done: _Waiting) -> None:
        with self._changed:
            self._busy.discard(done.file)
            del self._waiting[done.file]
            self._unsent_bytes -= done.bytes
            self._shipped += 1
            self._shipped_bytes += done.bytes
            self._error, self._pause = "", 0.0
            done.shipment.left -= 1
            self._release(done.shipment)
            self._changed.notify_all()

    def _note_failure(self, failed: _Waiting, error: BaseException) -> None:
        if self._closing:
            return
        of_store = isinstance(error, StoreFailedError)
        reason = reason_of(error.__cause__ or error) if of_store else str(error)
        if of_store:
            # The credentials that the user's files have now: those before may have expired.
            with suppress(StoreError):
                self._uploads.store = open_store(self.bucket, **self._options)
        with self._changed:
            self._busy.discard(failed.file)
            failed.sent = 0
            failed.attempts += 1
            now = time.monotonic()
            if of_store and now >= self._not_before:
                self._pause = min(max(_FIRST_PAUSE_S, 2 * self._pause), _LONGEST_PAUSE_S)
                self._not_before = now + self._pause
            # It may be the file's own fault: others come first.
            pause = _FIRST_PAUSE_S * 2 ** min(failed.attempts - 1, 10)
            failed.due = now + min(pause, _LONGEST_PAUSE_S)
            is_new, self._error = reason != self._error, reason
            self._changed.notify_all()
        if is_new:
            _log.warning("%s is not uploaded, and tried again: %s", failed.file, reason)
