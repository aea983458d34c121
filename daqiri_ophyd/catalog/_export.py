"""Copies a stored run to a directory that needs no catalog."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from daqiri_ophyd.documents import COMPANIONS

from ._backup import Documents, moved_documents, write_backup
from ._broker import frame_rows
from ._captures import run_files
from ._confine import folders_of
from ._find import why_incomplete
from ._moved import MovedFolders
from ._nexus import write_nexus

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
    ``documents.jsonl``  The run's documents, with the new addresses of the files, for
                         `Catalog.ingest_backup`.
    ``STREAM.csv``       Rows of each stream, without arrays.
    ``run.nxs``          NeXus (HDF5): metadata, the rows as plots, and links to the frames.
    ===================  ======================================================================

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run, from ``catalog.client[...]``.
    directory : str or Path
        Directory that does not exist or is empty. It appears when it is complete.
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
    target = Path(directory).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not empty. Name a new directory.")
    start, stop = run.metadata["start"], run.metadata.get("stop")
    if not stop:
        raise ValueError(f"Run {start['uid']} cannot be exported.{why_incomplete(run)}")
    files = run_files(run, readable=readable)
    roots = folders_of(run.context).readable if readable is None else [*map(Path, readable)]
    places = _places({path for paths in files.values() for path in paths}, roots)
    missing = [path for path in places if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Run {start['uid']}: {len(missing)} of {len(places)} files are missing, the first is "
            f"{missing[0]}."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        _require_space(part, places)
        for source, place in places.items():
            _copy(source, part / place)
        write_backup(part / "documents.jsonl", _documents(run, roots, target))
        tables = {stream: _table_of(run, stream) for stream in run.base}
        for stream, table in tables.items():
            table.to_csv(part / f"{_file_name(stream)}.csv")
        placed = {name: [places[path] for path in paths] for name, paths in files.items()}
        write_nexus(part / "run.nxs", run, tables, placed)
        if target.exists():
            target.rmdir()
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return sorted(
        path
        for path in target.rglob("*")
        if path.is_file() and not path.name.endswith(tuple(COMPANIONS))
    )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _names(roots: Iterable[Path]) -> dict[Path, str]:
    """Return the folder below the new directory for each readable one."""
    return {
        root: "captures" if i == 0 else f"captures_{i + 1}"
        for i, root in enumerate(dict.fromkeys(map(_real, roots)))
    }


def _places(paths: Iterable[Path], roots: Iterable[Path]) -> dict[Path, Path]:
    """Return the new path of each file, relative to the new directory."""
    found = {}
    for path in sorted(paths):
        real = _real(path)
        # The innermost: readable directories may be below one another.
        root, name = max(
            ((root, name) for root, name in _names(roots).items() if real.is_relative_to(root)),
            key=lambda each: len(each[0].parts),
        )
        found[path] = Path(name) / real.relative_to(root)
    return found


def _require_space(directory: Path, paths: Iterable[Path]) -> None:
    needed = sum(path.stat().st_size for path in paths) + _BESIDE
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"{directory.parent} has {free / 1e9:.1f} GB free, and the run needs "
            f"{needed / 1e9:.1f} GB. Free space, or name a directory on another disk."
        )


def _copy(source: Path, target: Path) -> None:
    """Copy a file and what belongs to it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    for suffix in COMPANIONS:
        beside = source.with_name(source.name + suffix)
        if beside.is_file():
            shutil.copy2(beside, target.with_name(target.name + suffix))


def _file_name(stream: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in stream)


def _documents(run: Any, roots: Iterable[Path], target: Path) -> Documents:
    """Return the documents of a run with the addresses of the copies."""
    documents: Documents = [(name, dict(document)) for name, document in run.documents()]
    folders = folders_of(run.context)
    if not folders.is_applied:
        documents = moved_documents(documents, folders.moved)
    names = _names(roots)
    places = {
        each: names[real] for root in roots for real in (_real(root),) for each in (root, real)
    }
    return moved_documents(documents, MovedFolders({a: target / b for a, b in places.items()}))


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
