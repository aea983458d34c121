"""Documents that a writer has received and not stored yet, and the thread that stores them.

Bluesky's `BufferingWrapper` has such a thread too, but waiting for it ends it, it passes on
documents that may change later, and a killed process loses the documents that it holds.
"""

# Its exit handler ends thread pools that the server needs: it must run after ours.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from ._backup import Journal
from ._capture_files import CaptureFiles

__all__ = [
    "Backlog",
    "PendingRun",
    "abandon",
    "flush",
    "is_pending_elsewhere",
    "starting",
]

_log = logging.getLogger(__name__)
# The thread ends after this time without a document, s; the next document starts another.
_IDLE_S = 1.0
# Documents of a run that are recognized if a bus delivers them again.
_LATEST = 1000
# After this waiting time, s, the reason is logged.
_SILENT_S = 3.0


@dataclass(eq=False)
class PendingRun:
    """A run whose documents are still arriving or not stored yet.

    Parameters
    ----------
    uid : str
        Uid of the run.
    journal : Journal
        Its documents, until it is stored.
    write : callable
        Stores a document.
    captures : CaptureFiles
        Files that the documents name.
    has_ended : bool
        Whether its stop document has arrived.
    is_abandoned : bool
        Whether it is left to `recover_runs`; further documents go only to the journal.
    is_repeated : bool
        Whether the catalog had the run before these documents.
    changed : dict of str to str
        Keys whose values are stored as something else, as in `document_text`.
    seen : dict
        Uids of its latest documents, in order.
    errors : list of exception
        Why documents could not be stored.
    """

    uid: str
    journal: Journal
    write: Callable[[str, dict[str, Any]], None]
    captures: CaptureFiles
    has_ended: bool = False
    is_abandoned: bool = False
    is_repeated: bool = False
    changed: dict[str, str] = field(default_factory=dict)
    seen: dict[str, None] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)

    def repeats(self, uid: str) -> bool:
        """Whether a document was among the latest ones; note it."""
        repeated = uid in self.seen
        self.seen[uid] = None
        if len(self.seen) > _LATEST:
            del self.seen[next(iter(self.seen))]
        return repeated


class Backlog:
    """Documents in order, which a thread stores one by one.

    Parameters
    ----------
    uri : str
        Catalog that the documents are for.
    store : callable
        Called in the thread with run, name and document, as given to `put`. Must not raise.
    """

    def __init__(self, uri: str, store: Callable[[PendingRun, str, Any], None]) -> None:
        self.uri = uri
        self._store = store
        self.forget()
        with _lock:
            _backlogs.add(self)

    def forget(self) -> None:
        """Reset to an empty backlog."""
        self._changed = threading.Condition()
        self._documents: deque[tuple[PendingRun, str, Any]] = deque()
        self._given = 0
        self._done = 0
        self._thread: threading.Thread | None = None

    def put(self, run: PendingRun, name: str, doc: Any) -> None:
        """Add a document; return at once."""
        with self._changed:
            if self._thread is None:
                # A daemon: at exit, `_finish` waits for it, and can be interrupted.
                thread = threading.Thread(target=self._work, name="store-runs", daemon=True)
                thread.start()
                self._thread = thread
            self._documents.append((run, name, doc))
            self._given += 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until documents added before this call are stored or in a backup file."""
        if getattr(_this_thread, "stores", False):
            return
        with self._changed:
            last = self._given
            if not self._changed.wait_for(lambda: self._done >= last, _SILENT_S):
                _log.warning(
                    "Waiting for run %s to be stored in the catalog at %s; documents left: %d",
                    ", ".join(run.uid for run in self._runs()),
                    self.uri,
                    last - self._done,
                )
                self._changed.wait_for(lambda: self._done >= last)

    def has(self, uid: str) -> bool:
        """Whether a document of a run is not stored."""
        with self._changed:
            return any(run.uid == uid for run, _, _ in self._documents)

    def abandon(self) -> None:
        """Leave runs that are not stored to `recover_runs`."""
        with self._changed:
            runs = {run: run.journal.is_whole for run in self._runs()}
            self._documents.clear()
            self._done = self._given
            self._thread = None  # It ends after the current document.
            for run in runs:
                run.is_abandoned = True
                if run.has_ended:
                    run.journal.end(keep=True)
            self._changed.notify_all()
        for run, is_whole in runs.items():
            if not is_whole:
                _log.error(
                    "Documents of run %s are lost: it is not stored in the catalog at %s, and they "
                    "could not be kept in %s.",
                    run.uid,
                    self.uri,
                    run.journal.path,
                )
                continue
            _log.warning(
                "Run %s is not stored in the catalog at %s: its documents are in %s; "
                "`daqiri-ophyd catalog recover` stores it.",
                run.uid,
                self.uri,
                run.journal.path,
            )

    def _runs(self) -> list[PendingRun]:
        """Return the runs with documents that are not stored."""
        return list(dict.fromkeys(run for run, _, _ in self._documents))

    def _work(self) -> None:
        _this_thread.stores = True
        me = threading.current_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._documents or self._thread is not me, _IDLE_S)
                if self._thread is not me:
                    return
                if not self._documents:
                    self._thread = None
                    return
                document = self._documents[0]
            self._store(*document)
            with self._changed:
                if self._thread is not me:
                    return
                self._documents.popleft()
                self._done += 1
                self._changed.notify_all()


_lock = threading.Lock()
_backlogs: WeakSet[Backlog] = WeakSet()
_starting: dict[str, threading.Lock] = {}
# Lets the threads that store documents use a catalog while other threads wait for it.
_this_thread = threading.local()


def _of(uri: str | None) -> list[Backlog]:
    with _lock:
        return [backlog for backlog in _backlogs if uri in (None, backlog.uri)]


def starting(uri: str) -> threading.Lock:
    """Return the lock that is held while a run is created in a catalog."""
    with _lock:
        return _starting.setdefault(uri, threading.Lock())


def is_pending_elsewhere(backlog: Backlog, uid: str) -> bool:
    """Whether another writer of this process has documents of a run for the same catalog."""
    return any(other.has(uid) for other in _of(backlog.uri) if other is not backlog)


def flush(uri: str | None = None) -> None:
    """Wait until this process has stored all documents for a catalog; None: for all catalogs."""
    for backlog in _of(uri):
        backlog.wait()


def abandon(uri: str | None = None) -> None:
    """Leave documents that this process has not stored to `recover_runs`."""
    for backlog in _of(uri):
        backlog.abandon()


def _finish() -> None:
    """Store the documents before the interpreter ends; Ctrl-C leaves them to `recover_runs`."""
    try:
        flush()
    except KeyboardInterrupt:
        abandon()


def _forget() -> None:
    """Leave everything to the parent process: a forked child has none of its threads."""
    global _lock
    _lock = threading.Lock()
    _starting.clear()
    for backlog in list(_backlogs):
        backlog.forget()


# Runs while embedded servers still run: they end with the main thread, before `atexit`.
threading._register_atexit(_finish)  # noqa: SLF001 # pyright: ignore[reportAttributeAccessIssue]
os.register_at_fork(after_in_child=_forget)
