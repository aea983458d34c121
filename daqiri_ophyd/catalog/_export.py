"""Copies a stored run to a directory that needs no catalog."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tiled.utils import path_from_uri

from daqiri_ophyd.documents import COMPANIONS
from daqiri_ophyd.ship import StoredObject

from ._backup import Documents, moved_documents, write_backup
from ._broker import frame_rows
from ._captures import FileFinder, captures_of
from ._confine import folders_of, require_confined
from ._find import why_incomplete
from ._nexus import write_nexus
from ._stored import Stored

__all__ = ["export_run"]

# Space that documents and tables may need in addition to the files, bytes.
_BESIDE = 16 << 20


def export_run(
    run: Any, directory: str | Path, *, readable: Iterable[str | Path] | None = None
) -> list[Path]:
    """Copy a run to a new directory: files, documents, tables, and a NeXus file for all of it.

    ===================  ======================================================================
    ``captures/``        Files of captures and frames with their metadata files, in the folders in
                         which they were.
    ``documents.jsonl``  The run's documents, for `Catalog.ingest_backup`; the addresses of the
                         files are relative to it.
    ``STREAM.csv``       Rows of each stream, without arrays.
    ``run.nxs``          NeXus (HDF5): metadata, the rows as plots, and links to the frames.
    ===================  ======================================================================

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run, from ``catalog.client[...]``.
    directory : str or Path
        Directory that does not exist or is empty. Its contents appear when they are complete.
    readable : iterable of str or Path, optional
        As for `capture_files`.

    Returns
    -------
    list of Path
        The files in the directory, without the metadata files.

    Raises
    ------
    FileExistsError
        If the directory has files.
    ValueError
        If the run has not ended.
    FileNotFoundError
        If a file of the run does not exist.
    UnreadableFileError
        If a file is on another host or not below a readable directory.
    OSError
        If the disk is full, or the directory cannot be written; nothing is left then.
    """
    target = Path(directory).resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not empty. Name a new directory.")
    start, stop = run.metadata["start"], run.metadata.get("stop")
    if not stop:
        raise ValueError(f"Run {start['uid']} cannot be exported.{why_incomplete(run)}")
    finder = FileFinder(run, readable)
    folders = finder.directories
    addresses = dict(captures_of(run))
    files = {name: [finder.path(uri) for uri in uris] for name, uris in addresses.items()}
    place = _Places(folders).of
    places = {path: found for paths in files.values() for path in paths if (found := place(path))}
    sources = {
        path: finder.find(uri, *name)
        for name, uris in addresses.items()
        for path, uri in zip(files[name], uris, strict=True)
        if path in places
    }
    missing = [each for each in sources.values() if isinstance(each, Path) and not each.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Run {start['uid']}: {len(missing)} of {len(places)} files are missing, the first is "
            f"{missing[0]}."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _require_space(part, sources.values())
        for path, copied in places.items():
            _copy(sources[path], part / copied, folders)
        write_backup(part / "documents.jsonl", _documents(run, place))
        tables = {stream: _table_of(run, stream) for stream in run.base}
        for name, table in zip(_file_names(tables), tables.values(), strict=True):
            table.to_csv(part / f"{name}.csv")
        placed = {name: [places[path] for path in paths] for name, paths in files.items()}
        write_nexus(part / "run.nxs", run, tables, placed)
        part.chmod(0o777 & ~_umask())
        if target.exists():
            # It may be the current directory of a shell, so it stays.
            for path in part.iterdir():
                path.rename(target / path.name)
            part.rmdir()
        else:
            part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return sorted(
        path
        for path in target.rglob("*")
        if path.is_file() and not path.name.endswith(tuple(COMPANIONS))
    )


def _umask() -> int:
    """Return the file mode creation mask, which the system tells only when it is set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _names(readable: Iterable[Path]) -> dict[Path, str]:
    """Return the folder below the new directory for each readable one, by all of its paths."""
    numbers: dict[Path, int] = {}
    found = {}
    for path in readable:
        real = Path(os.path.realpath(path))
        number = numbers.setdefault(real, len(numbers) + 1)
        found[path] = found[real] = "captures" if number == 1 else f"captures_{number}"
    return found


class _Places:
    """The new path of files below readable directories, relative to the new directory."""

    def __init__(self, readable: Iterable[Path]) -> None:
        self._names = _names(readable)
        # The innermost first: readable directories may be below one another.
        self._folders = sorted(self._names, key=lambda each: len(each.parts), reverse=True)

    def of(self, path: Path) -> Path | None:
        """Return the place of a path; None if it is below none of them."""
        # As documents name it; if it gets there by a link elsewhere, by its real path.
        return self._below(path) or self._below(Path(os.path.realpath(path)))

    def _below(self, path: Path) -> Path | None:
        for folder in self._folders:
            if path.is_relative_to(folder):
                return Path(self._names[folder]) / path.relative_to(folder)
        return None


def _require_space(directory: Path, files: Iterable[Stored]) -> None:
    sizes = (f.size if isinstance(f, StoredObject) else f.stat().st_size for f in files)
    needed = sum(sizes) + _BESIDE
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"{directory.parent} has {free / 1e9:.1f} GB free, and the run needs "
            f"{needed / 1e9:.1f} GB. Free space, or name a directory on another disk."
        )


def _copy(source: Stored, target: Path, readable: Iterable[Path]) -> None:
    """Copy a file and what belongs to it."""
    if isinstance(source, StoredObject):
        # Its local copy, with what is beside that.
        source = source.fetch()
        readable = [source.parent]
    beside = [source.with_name(source.name + suffix) for suffix in COMPANIONS]
    own = [source, *(path for path in beside if path.is_file())]
    require_confined(own, readable)
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in own:
        shutil.copy2(path, target.with_name(target.name + path.name.removeprefix(source.name)))


def _file_names(streams: Iterable[str]) -> list[str]:
    """Return a name for the table of each stream; those that would be equal get a number."""
    found: list[str] = []
    for stream in streams:
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in stream)
        taken = [each.casefold() for each in found]
        number, unique = 1, name
        while unique.casefold() in taken:
            number, unique = number + 1, f"{name}_{number + 1}"
        found.append(unique)
    return found


def _documents(run: Any, place: Callable[[Path], Path | None]) -> Documents:
    """Return the documents of a run; addresses of its files are relative to the new directory."""
    documents: Documents = [(name, dict(document)) for name, document in run.documents()]
    return [
        (name, {**doc, "uri": _relative(doc["uri"], place)} if "uri" in doc else doc)
        for name, doc in moved_documents(documents, folders_of(run.context).unapplied)
    ]


def _relative(uri: str, place: Callable[[Path], Path | None]) -> str:
    """Return the address of a file or folder in the new directory; others are not copied."""
    found = place(path_from_uri(uri)) if uri.startswith("file:") else None
    return uri if found is None else f"{found}{'/' if uri.endswith('/') else ''}"


def _table_of(run: Any, stream: str) -> pd.DataFrame:
    """Return the rows of a stream, without arrays."""
    frames = frame_rows(run, stream, [], ())
    if frames is not None:
        return frames
    base = run.base[stream].base
    if "internal" not in base:
        return pd.DataFrame(index=pd.Index([], name="seq_num"))
    table = base["internal"].read()
    plain = [name for name in table if not table[name].map(np.ndim).any()]
    return table[plain].set_index("seq_num")
