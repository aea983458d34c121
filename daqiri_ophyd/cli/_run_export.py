"""Copies a stored run to a directory."""

from pathlib import Path

from ..catalog import export_run as copy_run
from ._output import print_facts, print_json, print_line
from ._runs_report import opened_run

__all__ = ["export_run"]


def export_run(
    run: str,
    directory: Path,
    data: Path,
    catalog: str | None,
    moved: list[str] | None,
    readable: list[str] | None,
    as_json: bool,
) -> None:
    """Copy a run, and print what the directory has."""
    with opened_run(run, data, catalog, moved, readable) as stored:
        files = copy_run(stored, directory)
        uid = stored.metadata["start"]["uid"]
    if as_json:
        print_json({"run": uid, "directory": str(directory.absolute()), "files": files})
        return
    size = sum(path.stat().st_size for path in files)
    print_facts([("run", uid), ("files", f"{len(files):,}, {size:,} bytes")])
    for path in files:
        print_line(str(path))
