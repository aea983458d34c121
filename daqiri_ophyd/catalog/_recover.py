"""Recover runs whose process was killed."""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import DaqiriError

from ._address import CatalogError
from ._backup import (
    BackupError,
    Documents,
    Journal,
    moved_documents,
    read_backup,
    read_documents,
    write_backup,
)
from ._captures import captures_of
from ._catalog import Catalog
from ._confine import UnreadableFileError, confined_path, folders_of
from ._unfinished import Mend, UnfinishedRun, files_beside
from ._writer import ingest_backup, store_documents

__all__ = ["Recovery", "recover_runs"]


@dataclass
class Recovery:
    """Result of the recovery of one unfinished run.

    Parameters
    ----------
    uid : str
        Uid of the run; empty if not known.
    rows : int
        Rows that were added for files in no document.
    mended : list of str
        Repaired files, and their repairs.
    unlisted : list of Path
        Files of the run's captures that are in no document.
    problem : str
        Why the run is still unfinished; empty: it is recovered.
    reason : str
        Reason in the RunStop document.
    """

    uid: str
    rows: int = 0
    mended: list[str] = field(default_factory=list)
    unlisted: list[Path] = field(default_factory=list)
    problem: str = ""
    reason: str = ""


def recover_runs(catalog: Catalog, mend: Mend) -> Iterator[Recovery]:
    """Close the unfinished runs of processes that were killed.

    For a run whose documents are in the backup directory, the capture files are repaired, files of
    fly scans that are in no document become rows, and the run is stored again, with a RunStop whose
    exit status is ``abort``. For a run that is only in the catalog, files are repaired and listed,
    and the RunStop is added, unless another process has the catalog open. Runs in progress and
    recovered runs are not changed. If some documents of a run could not be kept, its files are
    repaired and listed, and the run in the catalog is not replaced.

    Parameters
    ----------
    catalog : Catalog
        Catalog with a backup directory on this host.
    mend : callable
        Repairs a pcap file; returns a description of the repair, or an empty one if the file is
        sound. Raises OSError, ValueError or DaqiriError if the file cannot be repaired.

    Yields
    ------
    Recovery
        Result for each unfinished run.

    Raises
    ------
    CatalogError
        If the catalog cannot be written.
    """
    catalog.require_writable()
    catalog.flush()
    readable = list(folders_of(catalog.client.context).readable)
    folder = catalog.backup_directory
    seen: set[str] = set()
    if folder is not None and folder.is_dir():
        journals = sorted(folder.glob(f"*{Journal.SUFFIX}"))
        # Backups have the first part of the uid as their name.
        seen.update(path.name.partition("-")[0] for path in journals)
        for path in journals:
            with _locked(path) as mine:
                if mine:
                    yield from _recover(catalog, path, readable, mend)
        for path in sorted(set(folder.glob("*.jsonl")) - set(journals)):
            if path.stem not in seen:
                seen.add(path.stem)
                yield from _recover(catalog, path, readable, mend)
    # Another process that has the catalog open may be writing these runs.
    if catalog.is_served_here:
        # Not by a query: with SQLite, KeyPresent(exists=False) of Tiled 0.2.20 finds all runs.
        unfinished = [
            run
            for run in catalog.client.values()
            # A Tiled client may have stored other things there.
            if "start" in run.metadata and not run.metadata.get("stop")
        ]
        for run in unfinished:
            if run.metadata["start"]["uid"].partition("-")[0] not in seen:
                yield _close(run, readable, mend)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a journal; yield False if its run is in progress or has just ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path.exists()
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _recover(catalog: Catalog, path: Path, readable: list[Path], mend: Mend) -> Iterator[Recovery]:
    """Store the run of a file of documents, and add the missing documents."""
    found = Recovery(path.name.partition(".")[0], reason="it was stored already")
    is_journal = path.name.endswith(Journal.SUFFIX)
    partial = path.name.endswith(Journal.PARTIAL)
    try:
        moved = folders_of(catalog.client.context).stored
        documents = moved_documents(read_documents(path, unfinished=True), moved)
        if not documents or documents[0][0] != "start":
            raise BackupError(f"{path} does not begin with a start document.")
        found.uid = documents[0][1]["uid"]
        stored = _stored(catalog, found.uid)
        if stored is None or not stored.metadata.get("stop"):
            complete = _completed(documents, found, readable, mend, partial=partial)
            if partial and stored is not None:
                # It may have more documents than the journal.
                _end_stored(stored, complete[-1][1], found, readable)
            else:
                # From here on, storing can be repeated if this process is killed.
                path_of_backup = path.with_name(f"{found.uid.split('-')[0]}.jsonl")
                if complete is not documents or is_journal:
                    write_backup(path_of_backup, complete)
                    store_documents(catalog.client, read_backup(path_of_backup))
                else:
                    ingest_backup(catalog.client, path_of_backup)
        elif not is_journal:
            return
        if is_journal:
            path.unlink()
    except Exception as error:  # noqa: BLE001 - the other runs can be recovered
        found.problem = str(error) or repr(error)
    yield found


def _stored(catalog: Catalog, uid: str) -> Any:
    try:
        return catalog.client[uid]
    except KeyError:
        return None


def _end_stored(run: Any, stop: dict[str, Any], found: Recovery, readable: list[Path]) -> None:
    """Add a RunStop to a stored run; remove files that the run has from the list."""
    files: set[Path] = set()
    for uri in (uri for _, uris in captures_of(run) for uri in uris):
        with suppress(UnreadableFileError):
            files.add(confined_path(uri, readable))
    found.unlisted = [path for path in found.unlisted if path not in files]
    stop = {key: value for key, value in stop.items() if key != "num_events"}
    run.update_metadata({"stop": stop}, drop_revision=True)


def _completed(
    documents: Documents, found: Recovery, readable: list[Path], mend: Mend, *, partial: bool
) -> Documents:
    if documents[-1][0] == "stop":
        found.reason = "it had ended, and is stored now"
        return documents
    run = UnfinishedRun(documents, readable, mend, partial=partial)
    complete = run.complete()
    found.rows, found.mended, found.unlisted = run.rows, run.mended, run.unlisted
    found.reason = complete[-1][1]["reason"]
    return complete


def _close(run: Any, readable: list[Path], mend: Mend) -> Recovery:
    """Add the RunStop to a run that is only in the catalog."""
    uid = run.metadata["start"]["uid"]
    found = Recovery(uid)
    try:
        last = run.metadata["start"]["time"]
        for _, uris in captures_of(run):
            files = [confined_path(uri, readable) for uri in uris]
            last = max([last, *(file.stat().st_mtime for file in files if file.is_file())])
            for path in files_beside(files):
                found.unlisted.append(path)
                try:
                    found.mended += [f"{path}: {step}" for step in mend(path)]
                except (OSError, ValueError, DaqiriError) as error:
                    found.mended.append(f"{path}: not repaired: {error}")
        found.reason = (
            "the process that ran it ended without closing it; recovered from the catalog, without "
            "the rows that were not stored yet"
        )
        stop = {
            "uid": str(uuid.uuid4()),
            "time": last,
            "run_start": uid,
            "exit_status": "abort",
            "reason": found.reason,
        }
        run.update_metadata({"stop": stop}, drop_revision=True)
    except (OSError, UnreadableFileError, CatalogError, ValueError, DaqiriError) as error:
        found.problem = str(error)
    return found
