"""Stores runs in a catalog, or in a backup file if the catalog fails."""

import json
import logging
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from bluesky.callbacks.json_writer import JSONLinesWriter
from bluesky_tiled_plugins import CatalogOfBlueskyRuns, TiledWriter
from event_model import EventPage, Filler, RunRouter
from tiled.utils import path_from_uri

from daqiri_ophyd.documents import COUNTER_MIMETYPE

from ._address import CatalogError
from ._backlog import Backlog, PendingRun, is_pending_elsewhere, starting
from ._backup import BackupError, Documents, Journal, moved_documents, read_backup
from ._capture_files import CaptureFiles
from ._confine import folders_of
from ._document_text import document_text
from ._failures import failures_in, reason_of, unstorable_value

__all__ = ["RunWriter", "ingest_backup", "store_documents"]

_log = logging.getLogger(__name__)
_PROBE_S = 2.0
# How long the same documents may take to be stored by another writer of this process.
_OTHER_S = 60.0


class RunWriter:
    """RunEngine subscriber that stores runs in a catalog without delaying or ending a scan.

    A call copies its document to ``<uid>.unfinished.jsonl`` in the backup directory, and returns. A
    thread of the writer stores documents in order. `Catalog` waits for the thread before every
    request, and the interpreter waits for it at exit. When a run is stored, the file is removed. If
    the process is killed before that, `recover_runs` recovers the run.

    A failing request is repeated for up to ``TILED_RETRY_TIMEOUT`` seconds (environment, default
    45). If it still fails, all documents of the run go to ``<first part of its uid>.jsonl`` in the
    backup directory, an error is logged, and `ingest_backup` stores the run later. While a catalog
    cannot be reached, later runs do not wait for it again. A run that the catalog has already, from
    another writer or an earlier delivery of its documents, is left as it is.

    Values that JSON does not know are stored as text, ``str(value)``, and characters that databases
    do not accept are replaced; a warning names the keys.

    Parameters
    ----------
    client : CatalogOfBlueskyRuns
        Catalog to store runs in.
    backup_directory : Path
        Existing directory for runs that cannot be stored.
    batch_size : int
        Rows to collect before they are sent. With 1, rows and files appear live; each row costs a
        request that names all files so far, which suits runs of up to some hundred files. With
        more, files are sent at the end of the run, in one request.
    readable : iterable of Path, optional
        Directories that the catalog may read, if known; captures elsewhere log a warning.
    """

    def __init__(
        self,
        client: CatalogOfBlueskyRuns,
        backup_directory: Path,
        *,
        batch_size: int = 10_000,
        readable: Iterable[Path] | None = None,
    ) -> None:
        self._backups: list[Path] = []
        self._client = client
        self._backup_directory = backup_directory
        self._tiled = TiledWriter(
            client, batch_size=batch_size, backup_directory=str(backup_directory)
        )
        self._readable = None if readable is None else tuple(readable)
        self._failing = False
        self._has_stored_all = True
        self._backlog = Backlog(client.uri, self._store)
        self._open: set[str] = set()  # runs in progress
        self._router = RunRouter([self._begin], filler_class=_NoFiller)

    @property
    def backups(self) -> list[Path]:
        """Files of runs that this writer could not store; waits for pending runs first."""
        self._backlog.wait()
        return self._backups

    @property
    def has_stored_all(self) -> bool:
        """Whether the catalog has all runs of this writer; waits for pending runs first."""
        self._backlog.wait()
        return self._has_stored_all

    def __call__(self, name: str, doc: dict[str, Any]) -> None:
        """Accept a document to store later; the caller may change it afterwards."""
        uid = doc.get("uid" if name == "start" else "run_start", "")
        if name == "start":
            if uid in self._open:
                return  # Buses may deliver a document twice.
            self._open.add(uid)
        elif name == "stop" and uid not in self._open:
            return
        try:
            self._router(name, doc)
        except Exception:
            self._report(name, uid)
        finally:
            if name == "stop":
                self._open.discard(uid)

    def _begin(self, _name: str, start: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        uid = start["uid"]
        journal = Journal(self._backup_directory, uid)
        run = PendingRun(uid, journal, self._tiled, CaptureFiles())
        return [partial(self._take, run), self._check_readable], []

    def _take(self, run: PendingRun, name: str, doc: dict[str, Any]) -> None:
        """Write a document to the journal and pass it to the thread, serialized to JSON once."""
        if run.repeats(str(doc.get("uid", doc.get("datum_id")))):
            return
        text, changed = document_text(name, doc)
        run.journal.note(name, text)
        new = [f"{key} ({stored})" for key, stored in changed.items() if key not in run.changed]
        if new:
            run.changed.update(changed)
            more = f" and {len(new) - 10} more" if len(new) > 10 else ""
            _log.warning(
                "Run %s has values that catalogs cannot store as they are. Stored instead: %s%s.",
                run.uid,
                ", ".join(new[:10]),
                more,
            )
        run.has_ended = name == "stop"
        if not run.is_abandoned:
            self._backlog.put(run, name, text)
        elif run.has_ended:
            run.journal.end(keep=True)

    def _store(self, run: PendingRun, name: str, text: str) -> None:
        try:
            self._write(run, name, json.loads(text))
        except Exception:
            self._report(name, run.uid)

    def _write(self, run: PendingRun, name: str, doc: dict[str, Any]) -> None:
        run.captures.note(name, doc)
        if name == "start":
            self._write_start(run, doc)
            return
        written = False
        try:
            with failures_in(run.errors):
                run.write(name, doc)
            written = True
        finally:
            if name == "stop":
                lost = self._end(run)
                run.journal.end(keep=lost or not written)

    def _write_start(self, run: PendingRun, doc: dict[str, Any]) -> None:
        if self._failing and not self._is_reachable():
            run.write = JSONLinesWriter(str(self._backup_directory))
        else:
            # Two writers of a process receive a document at the same moment.
            with starting(self._client.uri):
                if self._stop_of(run.uid) is None:
                    with failures_in(run.errors):
                        run.write("start", doc)
                    return
            run.write = _leave
            run.is_repeated = True
            _log.info("Run %s is in the catalog at %s already.", run.uid, self._client.uri)
        run.write("start", doc)

    def _report(self, name: str, uid: str) -> None:
        self._has_stored_all = False
        _log.exception(
            "A %s document of run %s reached neither the catalog at %s nor its backup in %s; "
            "captures are not affected.",
            name,
            uid,
            self._client.uri,
            self._backup_directory,
        )

    def _check_readable(self, name: str, doc: dict[str, Any]) -> None:
        if name != "stream_resource" or self._readable is None:
            return
        if doc["mimetype"] == COUNTER_MIMETYPE:
            return  # of files that have a separate document
        path = path_from_uri(doc["uri"])
        if not any(path.is_relative_to(directory) for directory in self._readable):
            _log.warning(
                "The catalog stores run %s but cannot read its captures: %s is not below %s. "
                "Open it with Catalog.open(..., readable=[%r]).",
                doc["run_start"],
                path,
                " or ".join(map(str, self._readable)) or "any directory that it may read",
                str(path),
            )

    def _end(self, run: PendingRun) -> bool:
        """Log where the documents of a run are; return whether they are lost."""
        backup = self._backup_directory / f"{run.uid.split('-')[0]}.jsonl"
        self._failing = backup.exists() and not run.is_repeated
        if run.is_repeated and not self._is_stored(run):
            self._has_stored_all = False
            _log.warning(
                "Run %s is in the catalog at %s without its end: whatever else stores it has not "
                "finished. `daqiri-ophyd catalog recover` stores it from %s.",
                run.uid,
                self._client.uri,
                run.journal.path,
            )
            return True
        if not self._failing:
            return False
        if self._is_stored(run):
            backup.unlink()
            self._failing = False
            return False
        self._has_stored_all = False
        try:
            documents = read_backup(backup)
        except (BackupError, OSError) as error:
            if backup.stat().st_size == 0:
                backup.unlink()
            _log.error(
                "The documents of run %s are lost: it is not in the catalog at %s, and its backup "
                "is incomplete, as on a full disk (%s). Its captures on this host: %s.",
                run.uid,
                self._client.uri,
                str(error).rstrip("."),
                run.captures.text(),
            )
            return True
        self._backups.append(backup)
        reason = reason_of(run.errors)
        why = f" ({reason})" if reason else ""
        if value := unstorable_value(documents):
            _log.error(
                "Run %s is not in the catalog at %s, which cannot store %s%s. Its documents are in "
                "%s; store them with Catalog.ingest_backup after the value is corrected there.",
                run.uid,
                self._client.uri,
                value,
                why,
                backup,
            )
            return False
        _log.error(
            "Run %s is not in the catalog at %s%s. Its documents are in %s; "
            "store them with Catalog.ingest_backup when the catalog works again.",
            run.uid,
            self._client.uri,
            why,
            backup,
        )
        return False

    def _is_reachable(self) -> bool:
        try:
            self._request(self._client.uri)
        except (httpx.HTTPError, CatalogError):
            return False
        return True

    def _is_stored(self, run: PendingRun) -> bool:
        """Whether the catalog has the whole run, also from another writer of this process."""
        end = time.monotonic() + _OTHER_S
        while True:
            pending = is_pending_elsewhere(self._backlog, run.uid)
            stop = self._stop_of(run.uid)
            if stop:
                return True
            if stop is None or not pending or run.is_abandoned or time.monotonic() > end:
                return False
            time.sleep(0.05)

    def _stop_of(self, uid: str) -> dict[str, Any] | None:
        """Return the stop document of a run in the catalog; empty: it has none; None: no run."""
        try:
            answer = self._request(f"{self._client.uri}/{uid}?fields=metadata")
            if answer.status_code != httpx.codes.OK:
                return None
            stop = answer.json()["data"]["attributes"]["metadata"].get("stop")
        except (httpx.HTTPError, CatalogError, ValueError, LookupError, TypeError):
            return None
        return stop or {}

    def _request(self, uri: str) -> httpx.Response:
        # The plain httpx client, because Tiled's repeats failing requests.
        return self._client.context.http_client.get(uri, timeout=_PROBE_S)


def ingest_backup(client: CatalogOfBlueskyRuns, path: str | Path) -> str:
    """Store the run of a backup file in a catalog.

    If the catalog has an incomplete copy of the run, that copy is replaced. A complete run is left
    unchanged. Files that the run refers to are not changed. If their folders were moved, the
    catalog gets the new addresses.

    Parameters
    ----------
    client : CatalogOfBlueskyRuns
        Catalog to store the run in.
    path : str or Path
        The ``.jsonl`` file.

    Returns
    -------
    str
        Uid of the run.

    Raises
    ------
    BackupError
        If the file is incomplete, contains anything but the documents of one run, or has a value
        that catalogs cannot store.
    """
    documents = read_backup(Path(path))
    return store_documents(client, moved_documents(documents, folders_of(client.context).stored))


def store_documents(client: CatalogOfBlueskyRuns, documents: Documents) -> str:
    """Store the documents of one complete run, as `ingest_backup` does; return its uid."""
    uid = documents[0][1]["uid"]
    try:
        stored: Any = client[uid]
    except KeyError:
        pass
    else:
        if stored.metadata.get("stop"):
            return uid
        client.delete_contents(uid, recursive=True, external_only=False)
    writer = TiledWriter(client)
    try:
        for name, doc in documents:
            writer(name, doc)
    except Exception as error:
        if value := unstorable_value(documents):
            raise BackupError(
                f"Run {uid} cannot be stored: the catalog cannot store {value} "
                f"({reason_of([error])}). Correct the value in the file."
            ) from error
        raise
    return uid


def _leave(_name: str, _doc: dict[str, Any]) -> None:
    """Leave a run in the catalog as it is."""


class _NoFiller(Filler):
    """Returns documents unchanged; its base class copies all of them."""

    def event_page(self, doc: EventPage) -> EventPage:
        """Return the document."""
        return doc
