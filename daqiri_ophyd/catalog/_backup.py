"""Documents of runs in files: of runs in progress, and of those that could not be stored."""

import fcntl
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._moved import MovedFolders

__all__ = [
    "BackupError",
    "Documents",
    "Journal",
    "moved_documents",
    "read_backup",
    "read_documents",
    "write_backup",
]

_log = logging.getLogger(__name__)

Documents = Sequence[tuple[str, dict[str, Any]]]
"""Names and documents, in order."""


class BackupError(ValueError):
    """A backup file does not contain the documents of one complete run."""


class Journal:
    """The documents of a run in progress, in a file that `end` removes.

    If the process is killed, documents in the memory of a writer and a catalog and the directory of
    captures are lost; a run can then be recovered from the journal. The journal is locked while the
    run is in progress or is being stored. If it cannot be written, an error is logged and the run
    continues without it; the name of the file then shows that later documents are missing.

    Parameters
    ----------
    directory : Path
        Directory of the file.
    uid : str
        Uid of the run.
    """

    SUFFIX = ".unfinished.jsonl"
    PARTIAL = f".partial{SUFFIX}"

    def __init__(self, directory: Path, uid: str) -> None:
        self.path = directory / f"{uid}{self.SUFFIX}"
        self._part: Path | None = self.path.with_name(f".{self.path.name}.part")
        self._descriptor = -1
        self._broken = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self._part, flags, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.give_up(error)

    @property
    def is_whole(self) -> bool:
        """Whether it has all documents so far; undefined after `end`."""
        return not self._broken

    def note(self, name: str, doc: str) -> None:
        """Append a document, as JSON; if the process is killed, all documents are kept.

        They are then in the page cache: a power failure may lose the last seconds.
        """
        if self._broken:
            return
        whole = os.fstat(self._descriptor).st_size
        try:
            line = f'{{"name": "{name}", "doc": {doc}}}\n'.encode()
            if os.write(self._descriptor, line) < len(line):
                raise OSError("the disk is full")
            if self._part is not None:
                # When it gets its name, it is locked and has a start document.
                self._part.replace(self.path)
                self._part = None
        except (OSError, ValueError) as error:
            os.ftruncate(self._descriptor, whole)
            self.give_up(error)

    def end(self, *, keep: bool) -> None:
        """End it with the run; keep the file only if its documents are not stored elsewhere."""
        descriptor, self._descriptor = self._descriptor, -1
        self._broken = True
        if descriptor >= 0:
            if not keep or self._part is not None:
                (self._part or self.path).unlink(missing_ok=True)
            os.close(descriptor)

    def give_up(self, error: Exception) -> None:
        """Write no further documents; the file stays locked, because the run is in progress."""
        if self._broken:
            return
        _log.warning(
            "The documents of a run in progress are no longer kept in %s (%s): if this process is "
            "killed, the run is recovered in part only.",
            self.path,
            error,
        )
        self._broken = True
        if self._part is None:
            partial = self.path.with_name(self.path.name.removesuffix(self.SUFFIX) + self.PARTIAL)
            try:
                # Renaming works on a full disk, too.
                self.path = self.path.rename(partial)
            except OSError as failure:
                _log.warning("%s: %s", self.path, failure)


def _line(name: str, doc: dict[str, Any]) -> str:
    return json.dumps({"name": name, "doc": doc})


def write_backup(path: Path, documents: Documents) -> None:
    """Write a backup file atomically."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)  # a link would be followed
    with part.open("x", encoding="utf-8") as file:
        file.writelines(f"{_line(name, doc)}\n" for name, doc in documents)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_documents(path: Path, *, unfinished: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """Return the documents of a file.

    Parameters
    ----------
    path : Path
        The file.
    unfinished : bool
        Leave out an incomplete last line, as a killed process leaves it.

    Raises
    ------
    BackupError
        If a line is not a document.
    """
    documents = []
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            item = json.loads(line)
            documents.append((item["name"], item["doc"]))
        except (ValueError, KeyError, TypeError) as error:
            if unfinished and number == len(lines) > 1:
                break
            raise BackupError(
                f"{path}, line {number} is not a document ({error!r}). If it is the last, the "
                "run had not ended, or the disk was full."
            ) from error
    return documents


def moved_documents(documents: Documents, moved: MovedFolders) -> Documents:
    """Return documents that name files of moved folders in their new places."""
    if not moved:
        return documents
    return [
        (name, {**doc, "uri": moved.uri(doc["uri"])} if name == "stream_resource" else doc)
        for name, doc in documents
    ]


def read_backup(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the documents of one complete run.

    Raises
    ------
    BackupError
        If the file has anything else.
    """
    documents = read_documents(path)
    names = [name for name, _ in documents]
    if names[:1] != ["start"] or names[-1:] != ["stop"] or names.count("start") > 1:
        found = ", ".join(dict.fromkeys(names)) or "nothing"
        raise BackupError(
            f"{path} does not hold one whole run: expected documents from start to stop, "
            f"found {len(names)} ({found})."
        )
    # Those of an exported run are relative to its folder.
    return [
        (name, {**doc, "uri": _absolute(doc["uri"], path)} if name == "stream_resource" else doc)
        for name, doc in documents
    ]


def _absolute(uri: str, path: Path) -> str:
    """Return the address of a file or folder; a relative one is below the folder of a path."""
    if ":" in uri.partition("/")[0]:
        return uri
    end = "/" if uri.endswith("/") else ""
    return f"file://localhost{path.absolute().parent / uri}{end}"
