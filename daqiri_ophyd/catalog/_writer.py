"""Stores runs in a catalog, or in a backup file if the catalog fails."""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from bluesky.callbacks.json_writer import JSONLinesWriter
from bluesky_tiled_plugins import CatalogOfBlueskyRuns, TiledWriter
from event_model import RunRouter, sanitize_doc
from tiled.utils import path_from_uri

from daqiri_ophyd.documents import COUNTER_MIMETYPE, PCAP_MIMETYPE

from ._address import CatalogError
from ._backup import BackupError, Journal, read_backup
from ._handler import LEGACY_SPEC

__all__ = ["RunWriter", "ingest_backup"]

_log = logging.getLogger(__name__)
_PROBE_S = 2.0


class RunWriter:
    """RunEngine subscriber that stores runs in a catalog and never ends a scan.

    A failing request is repeated for up to ``TILED_RETRY_TIMEOUT`` seconds (environment, default
    45). If it still fails, all documents of the run go to ``<first part of its uid>.jsonl`` in the
    backup directory, an error is logged, and the scan continues; `ingest_backup` stores the run
    later. While a catalog cannot be reached, later runs do not wait again.

    While a run is in progress, its documents are also in ``<uid>.unfinished.jsonl`` there: if the
    process is killed, `recover_runs` takes them up.

    Parameters
    ----------
    client : CatalogOfBlueskyRuns
        Where runs are stored.
    backup_directory : Path
        Existing directory for the runs that could not be stored.
    batch_size : int
        Rows to collect before they are sent. 1 shows rows and files live, with a request for each,
        which names all files so far: for runs of up to some hundred files. With more, files are
        sent at the end of the run, in one request.
    readable : iterable of Path, optional
        Directories that the catalog may read, if known; a capture elsewhere logs a warning.

    Attributes
    ----------
    backups : list of Path
        Files of the runs that this writer could not store.
    """

    def __init__(
        self,
        client: CatalogOfBlueskyRuns,
        backup_directory: Path,
        *,
        batch_size: int = 10_000,
        readable: Iterable[Path] | None = None,
    ) -> None:
        self.backups: list[Path] = []
        self._client = client
        self._backup_directory = backup_directory
        self._tiled = _tiled_writer(
            client, batch_size=batch_size, backup_directory=str(backup_directory)
        )
        self._readable = None if readable is None else tuple(readable)
        self._failing = False
        self._router = RunRouter([self._begin])

    def __call__(self, name: str, doc: dict[str, Any]) -> None:
        """Store one document."""
        try:
            self._router(name, _plain(doc))
        except Exception:
            _log.exception(
                "A %s document reached neither the catalog at %s nor its backup in %s; "
                "captures are not affected.",
                name,
                self._client.uri,
                self._backup_directory,
            )

    def _begin(self, _name: str, start: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        writer: Any = self._tiled
        if self._failing and not self._is_reachable():
            writer = JSONLinesWriter(str(self._backup_directory))
        backup = self._backup_directory / f"{start['uid'].split('-')[0]}.jsonl"
        journal = Journal(self._backup_directory, start)
        write = partial(self._write, writer, backup, journal, _CaptureFiles())
        return [write, self._check_readable], []

    def _write(
        self,
        writer: Any,
        backup: Path,
        journal: Journal,
        captures: "_CaptureFiles",
        name: str,
        doc: dict[str, Any],
    ) -> None:
        captures.note(name, doc)
        if name != "start":
            journal.note(name, doc)
        written = False
        try:
            writer(name, doc)
            written = True
        finally:
            if name == "stop":
                lost = self._end(backup, captures, doc)
                journal.end(keep=lost or not written)

    def _check_readable(self, name: str, doc: dict[str, Any]) -> None:
        if name != "stream_resource" or self._readable is None:
            return
        if doc["mimetype"] == COUNTER_MIMETYPE:
            return  # of files that have a document of their own
        path = path_from_uri(doc["uri"])
        if not any(path.is_relative_to(directory) for directory in self._readable):
            _log.warning(
                "The catalog stores run %s but cannot read its captures: %s is not below %s. "
                "Open it with Catalog.open(..., readable=[%r]).",
                doc["run_start"],
                path,
                " or ".join(map(str, self._readable)) or "any directory that is readable to it",
                str(path),
            )

    def _end(self, backup: Path, captures: "_CaptureFiles", doc: dict[str, Any]) -> bool:
        """Tell where the documents of a run are; return whether they are lost."""
        self._failing = backup.exists()
        if not self._failing:
            return False
        try:
            read_backup(backup)
        except (BackupError, OSError) as error:
            if backup.stat().st_size == 0:
                backup.unlink()
            _log.error(
                "The documents of run %s are lost: it is not in the catalog at %s, and its backup "
                "is incomplete, as on a full disk (%s). Its captures on this host: %s.",
                doc["run_start"],
                self._client.uri,
                str(error).rstrip("."),
                captures.text(),
            )
            return True
        self.backups.append(backup)
        _log.error(
            "Run %s is not in the catalog at %s. Its documents are in %s; "
            "store them with Catalog.ingest_backup when the catalog works again.",
            doc["run_start"],
            self._client.uri,
            backup,
        )
        return False

    def _is_reachable(self) -> bool:
        try:
            # The plain httpx client: Tiled's repeats failing requests.
            self._client.context.http_client.get(self._client.uri, timeout=_PROBE_S)
        except (httpx.HTTPError, CatalogError):
            return False
        return True


class _CaptureFiles:
    """The capture files that documents of a run name."""

    def __init__(self) -> None:
        self._resources: dict[str, tuple[str, str]] = {}
        self._numbers: dict[tuple[str, str], list[int]] = {}

    def note(self, name: str, doc: dict[str, Any]) -> None:
        """Take one document."""
        if name == "stream_resource":
            if doc["mimetype"] == COUNTER_MIMETYPE:
                return
            template = doc["parameters"].get("template", "")
            self._resources[doc["uid"]] = (doc["uri"], template)
        elif name == "stream_datum" and doc["stream_resource"] in self._resources:
            numbers = range(doc["indices"]["start"], doc["indices"]["stop"])
            self._numbers.setdefault(self._resources[doc["stream_resource"]], []).extend(numbers)

    def text(self) -> str:
        """Return first and last of the files that exist, and how many, for each directory."""
        series = []
        for (uri, template), numbers in self._numbers.items():
            folder = path_from_uri(uri)
            named = [folder / template.format(number) for number in numbers]
            files = [file for file in named if file.is_file()]
            if len(files) > 1:
                series.append(f"{files[0]} to {files[-1].name} ({len(files)} files)")
            series += map(str, files[:1] if len(files) == 1 else ())
        return ", ".join(series) or "none"


def ingest_backup(client: CatalogOfBlueskyRuns, path: str | Path) -> str:
    """Store the run of a backup file in a catalog.

    If the catalog has an incomplete copy of the run, that copy is replaced. A complete run is left
    unchanged. Files that the run refers to are not touched.

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
        If the file is incomplete, or contains anything but the documents of one run.
    """
    documents = read_backup(Path(path))
    uid = documents[0][1]["uid"]
    try:
        stored: Any = client[uid]
    except KeyError:
        pass
    else:
        if stored.metadata.get("stop"):
            return uid
        client.delete_contents(uid, recursive=True, external_only=False)
    writer = _tiled_writer(client)
    for name, doc in documents:
        writer(name, doc)
    return uid


def _tiled_writer(client: CatalogOfBlueskyRuns, **options: Any) -> TiledWriter:
    return TiledWriter(client, spec_to_mimetype={LEGACY_SPEC: PCAP_MIMETYPE}, **options)


def _plain(doc: dict[str, Any]) -> dict[str, Any]:
    # Devices report numpy scalars, which the backup, written as plain JSON, could not contain.
    try:
        return sanitize_doc(doc)
    except TypeError:
        return doc
