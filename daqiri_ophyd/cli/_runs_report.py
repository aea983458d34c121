"""Lists and descriptions of stored runs."""

import json
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from ..catalog import FileFinder, UnreadableFileError, captures_of, find_run
from ..documents import run_metadata, sidecar_path
from ..ship import StoredObject, StoreError
from ._advice import as_options
from ._data_directory import moved_folders
from ._output import print_error, print_facts, print_json, print_line, print_message, print_table
from ._workspace import open_catalog

_COUNTS = ("packets", "frames", "dropped")

__all__ = ["list_runs", "opened_run", "show_run"]


def facts_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return what a list of runs shows of a run.

    Parameters
    ----------
    metadata : dict
        Its documents: ``start``, and ``stop`` if it has ended.
    """
    start, stop = metadata["start"], metadata.get("stop") or {}
    return {
        "scan_id": start.get("scan_id"),
        "started": datetime.fromtimestamp(start["time"]).isoformat(" ", "seconds"),
        "plan": str(start.get("plan_name", "")),
        "seconds": round(stop["time"] - start["time"], 3) if stop else None,
        "status": stop.get("exit_status", "no end yet"),
        "detectors": _names(start.get("detectors")),
        "sample": run_metadata(start, "").get("sample", ""),
        "run": start["uid"],
    }


def _names(value: Any) -> list[str]:
    """Return names in metadata: a list, or one as text."""
    return [value] if isinstance(value, str) else list(map(str, value or ()))


def list_runs(count: int, data: Path, catalog: str | None, as_json: bool) -> None:
    """Print the latest runs, the latest last."""
    with open_catalog(data, catalog, create=False) as opened:
        total = len(opened.client)
        latest = opened.client.items().tail(count)
        # A Tiled client may have stored other things there.
        found = [facts_of(run.metadata) for _, run in latest if "start" in run.metadata]
    for key, other in latest:
        if "start" not in other.metadata:
            print_message(f"{key!r} in the catalog is not a run")
    if as_json:
        print_json({"total": total, "runs": found})
        return
    if not found:
        print_message("the catalog has no runs")
        return
    columns = ("scan id", "started", "plan", "seconds", "status", "detectors", "sample", "run")
    rows = [
        [
            "" if facts["scan_id"] is None else facts["scan_id"],
            facts["started"],
            facts["plan"],
            "" if facts["seconds"] is None else f"{facts['seconds']:.1f}",
            facts["status"],
            ", ".join(facts["detectors"]),
            facts["sample"],
            facts["run"][:8],
        ]
        for facts in found
    ]
    has_samples = any(facts["sample"] for facts in found)
    kept = [i for i, name in enumerate(columns) if name != "sample" or has_samples]
    print_table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])
    if total > len(latest):
        print_message(f"{total - len(latest):,} earlier runs; --count lists more")


@contextmanager
def opened_run(
    run: str,
    data: Path,
    catalog: str | None,
    moved: list[str] | None,
    readable: list[str] | None,
):
    """Yield a run of a catalog that exists."""
    with open_catalog(data, catalog, moved_folders(moved), readable, create=False) as opened:
        yield find_run(opened.client, run)


def show_run(
    run: str,
    data: Path,
    catalog: str | None,
    moved: list[str] | None,
    readable: list[str] | None,
    as_json: bool,
) -> None:
    """Print what a run has: facts, streams and files."""
    with opened_run(run, data, catalog, moved, readable) as stored:
        start, stop = stored.metadata["start"], stored.metadata.get("stop") or {}
        facts = facts_of(stored.metadata)
        streams = {
            name: {
                "rows": (stop.get("num_events") or {}).get(name),
                "columns": {
                    key: description.get("units") or ""
                    for key, description in stream.metadata["data_keys"].items()
                },
            }
            for name, stream in stored.base.items()
        }
        files: list[dict[str, Any]] = []
        problem = ""
        try:
            files = files_of(stored)
        except UnreadableFileError as error:
            problem = as_options(str(error))
    engines: dict[str, Any] = start.get("daqiri") or {}
    if as_json:
        known = {"motors": list(start.get("motors", ())), "reason": stop.get("reason", "")}
        known |= {"streams": streams, "files": files, "problem": problem}
        print_json({**facts, **known, "start": dict(start)})
        return
    rows = [
        ("run", facts["run"]),
        ("scan id", facts["scan_id"]),
        ("plan", facts["plan"]),
        ("started", facts["started"]),
        ("seconds", facts["seconds"]),
        ("status", " ".join(filter(None, [facts["status"], stop.get("reason", "")]))),
        ("sample", facts["sample"]),
        ("detectors", ", ".join(facts["detectors"])),
        ("motors", ", ".join(start.get("motors", ()))),
        *((f"engine of {name}", _engine_text(engine)) for name, engine in engines.items()),
    ]
    print_facts([(name, value) for name, value in rows if value not in ("", None)])
    for name, stream in streams.items():
        print_line("")
        rows = stream["rows"]
        count = "" if rows is None else f", {rows:,} row{'' if rows == 1 else 's'}"
        print_table(["column", "unit"], list(stream["columns"].items()), f"stream {name}{count}")
    if problem:
        print_error(problem)
    missing = sum(file["bytes"] is None for file in files)
    if missing:
        print_error(f"{missing:,} of {len(files):,} files are missing; their bytes are empty below")
    if files:
        print_line("")
        print_table(
            [*_COUNTS, "bytes", "file"],
            [
                [
                    "" if value is None else value
                    for value in map(file.get, (*_COUNTS, "bytes", "path"))
                ]
                for file in files
            ],
        )


def _engine_text(engine: Mapping[str, Any]) -> str:
    return f"{engine.get('engine', '')}, configuration {str(engine.get('config_sha256', ''))[:12]}"


def files_of(run: Any) -> list[dict[str, Any]]:
    """Return path, stream, key, size and counts of each file of a run, in the order of its rows.

    Of a file that is in an object store only, the path is the address of its object.
    """
    found: list[dict[str, Any]] = []
    finder = FileFinder(run)
    for (stream, key), uris in captures_of(run):
        for uri in uris:
            try:
                file = finder.find(uri, stream, key)
                size = _size(file)
            except UnreadableFileError:
                raise
            except (StoreError, OSError) as error:
                print_error(str(error))
                file, size = finder.path(uri), None
            facts = {"path": str(file), "stream": stream, "key": key, "bytes": size}
            found.append({**facts, **_counts(file)})
    return found


def _size(file: Path | StoredObject) -> int | None:
    if isinstance(file, StoredObject):
        return file.size
    return file.stat().st_size if file.is_file() else None


def _counts(file: Path | StoredObject) -> dict[str, Any]:
    """Return the counts in the metadata of a recorded file; None: not known."""
    try:
        if isinstance(file, StoredObject):
            content = file.metadata
        else:
            content = json.loads(sidecar_path(file).read_bytes())
        return {name: content.get(name) for name in _COUNTS}
    except (OSError, ValueError, AttributeError, StoreError):
        return dict.fromkeys(_COUNTS)
