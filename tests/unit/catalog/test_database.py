"""The database of a new catalog."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd.catalog import _database
from daqiri_ophyd.catalog._database import create_database


def content(path: Path) -> dict[str, Any]:
    """Tables, indices and triggers as they were declared, rows, and how it is written."""
    with closing(sqlite3.connect(path)) as database:
        declared = database.execute(
            "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
        ).fetchall()
        tables = [name for kind, name, _ in declared if kind == "table"]
        # Without the times of creation.
        rows = {
            name: [
                [value for value in row if not str(value).startswith("20")]
                for row in database.execute(f'SELECT * FROM "{name}"')
            ]
            for name in tables
        }
        (mode,) = database.execute("PRAGMA journal_mode").fetchone()
    return {"declared": declared, "rows": rows, "mode": mode}


def test_it_is_that_of_tiled(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.db", tmp_path / "ours.db"
    subprocess.run(
        [sys.executable, "-m", "tiled", "catalog", "init", str(theirs)],
        check=True, capture_output=True, timeout=200,
    )  # fmt: skip
    create_database(ours)
    assert content(ours) == content(theirs)


def test_a_database_that_cannot_be_completed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin_and_fail(path: Path) -> None:
        path.write_bytes(b"begun")
        raise OSError("full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(_database, "_create", begin_and_fail)
        create_database(tmp_path / "catalog.db")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_has_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".catalog.db.part").write_bytes(b"torn")
    create_database(tmp_path / "catalog.db")
    assert [path.name for path in tmp_path.iterdir()] == ["catalog.db"]
    assert content(tmp_path / "catalog.db")["declared"]
