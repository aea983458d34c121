"""Scans continue when a catalog fails."""

import json
import logging
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy.exc
import tiled.client.utils
from bluesky import plans as bp
from preloaded_processes import run_preloaded

from daqiri_ophyd.catalog import (
    BackupError,
    Catalog,
    CatalogError,
    _database,
    capture_files,
    ingest_backup,
)


@pytest.fixture(autouse=True)
def few_retries(monkeypatch):
    """Tiled repeats a failing request for most of a minute."""
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_ATTEMPTS", 2)
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_TIMEOUT", 2.0)


def backup_of(catalog: Catalog, uid: str) -> Path:
    return catalog.backup_directory / f"{uid.split('-')[0]}.jsonl"


@pytest.mark.parametrize("batch_size", [1, 10_000])
@pytest.mark.parametrize("kind", ["step", "fly"])
def test_scan_outlives_the_server_and_is_ingested_later(
    tmp_path, captures, catalog, device, run_engine, fly_plan, caplog, kind, batch_size
):
    def end_server() -> None:
        if len(device.written) == 2:
            catalog.flush()  # a part of the run is in the catalog
            catalog._server.close()

    if kind == "step":
        device.before_read = end_server
        plan = bp.count([device], 3)
    else:
        device.before_write = end_server
        plan = fly_plan(device)
    writer = catalog.writer(batch_size=batch_size)
    run_engine.subscribe(writer)
    (uid,) = run_engine(plan)
    assert len(device.written) == 3
    assert writer.backups == [backup_of(catalog, uid)]
    assert f"Run {uid} is not in the catalog" in caplog.text
    catalog.close()

    with Catalog.open(tmp_path / "catalog", readable=[captures]) as reopened:
        assert "stop" not in reopened.client[uid].metadata
        assert reopened.ingest_backup(writer.backups[0]) == uid
        run = reopened.client[uid]
        assert run.stop["exit_status"] == "success"
        assert capture_files(run) == device.written
        (stream,) = run
        assert list(run[stream].read()["soft_packets"]) == [2, 3, 4]
        assert run.validate(raise_on_error=True) is True
        # Repeated: no work left, and nothing is stored twice.
        assert reopened.ingest_backup(writer.backups[0]) == uid
        assert len(reopened.client) == 1
        assert run[stream].read().sizes["time"] == 3


def test_server_that_is_gone_costs_later_runs_no_wait(catalog, device, run_engine, monkeypatch):
    writer = catalog.writer()
    run_engine.subscribe(writer)
    (first,) = run_engine(bp.count([device]))
    catalog.flush()
    catalog._server.close()
    (second,) = run_engine(bp.count([device]))
    catalog.flush()

    attempts = []
    monkeypatch.setattr(writer, "_tiled", lambda name, doc: attempts.append(name))
    (third,) = run_engine(bp.count([device]))
    assert writer.backups == [backup_of(catalog, second), backup_of(catalog, third)]
    assert not attempts
    names = [json.loads(line)["name"] for line in writer.backups[1].read_text().splitlines()]
    assert (names[0], names[-1]) == ("start", "stop")
    assert not backup_of(catalog, first).exists()


def test_backup_directory_that_vanished_ends_no_scan(catalog, device, run_engine, caplog):
    run_engine.subscribe(catalog.writer())
    catalog._server.close()
    catalog.backup_directory.rmdir()
    catalog.backup_directory.write_text("in the way")
    (uid,) = run_engine(bp.count([device], 2))
    assert len(device.written) == 2
    catalog.flush()
    assert "reached neither the catalog" in caplog.text


def test_directory_is_served_once(tmp_path, catalog):
    with Catalog.open(tmp_path / "catalog") as same:
        assert same.uri == catalog.uri
    catalog.close()
    catalog.close()
    Catalog.open(tmp_path / "catalog").close()


def test_directory_that_cannot_be_made():
    with pytest.raises(CatalogError, match=r"/proc/catalog cannot be written"):
        Catalog.open("/proc/catalog")


def test_server_that_does_not_start_says_where_to_look(tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    directory = tmp_path / "catalog"
    directory.mkdir()
    (directory / "catalog.db").write_bytes(b"not a database, by far" * 100)
    with pytest.raises(CatalogError, match=r"did not start.*server\.log"):
        Catalog.open(directory)
    assert "not a database" in (directory / "server.log").read_text()
    assert ended == []
    assert not [h for h in logging.getLogger("uvicorn").handlers if "server.log" in str(h)]


def test_database_that_cannot_be_created_says_why_without_its_statements(tmp_path, monkeypatch):
    def create_database(path: Path) -> None:
        full = sqlite3.OperationalError("database or disk is full")
        raise sqlalchemy.exc.OperationalError("CREATE TABLE nodes (id)", {}, full)

    monkeypatch.setattr(_database, "create_database", create_database)
    with pytest.raises(
        CatalogError, match=r"catalog\.db cannot be created: database or disk is full$"
    ):
        Catalog.open(tmp_path / "catalog")


def test_connecting_nowhere_and_without_permission(catalog):
    with pytest.raises(CatalogError, match="http://127.0.0.1:9/ cannot be used"):
        Catalog.connect("http://127.0.0.1:9/", "key")
    with pytest.raises(CatalogError, match="401.*Invalid API key"):
        Catalog.connect(catalog.uri, "wrong")


def test_connection_needs_a_backup_directory_to_write(catalog, tmp_path):
    with Catalog.connect(catalog.uri, catalog.api_key) as other:
        with pytest.raises(CatalogError, match="backup_directory"):
            other.writer()
    blocked = tmp_path / "file" / "backup"
    blocked.parent.write_text("")
    with Catalog.connect(catalog.uri, catalog.api_key, backup_directory=blocked) as other:
        with pytest.raises(CatalogError, match="backup directory .* cannot be written"):
            other.writer()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected documents from start to stop, found 0"),
        ('{"name": "start", "doc": {"uid": "u"}}\n', r"found 1 \(start\)"),
        ('{"name": "start", "doc": {"uid": "u"}}\n{"name": "sto', "line 2 is not a document"),
        ('{"name": "stop"}\n', "line 1 is not a document"),
        ("[1]\n", "line 1 is not a document"),
    ],
)
def test_backup_that_is_not_whole(catalog, tmp_path, content, message):
    path = tmp_path / "backup.jsonl"
    path.write_text(content)
    with pytest.raises(BackupError, match=message):
        ingest_backup(catalog.client, path)
    assert len(catalog.client) == 0


# Runs in new namespaces, with a really full file system and a user without root permissions.
SCRIPT = """
import shutil, subprocess, sys
from pathlib import Path
import tiled.client.utils
tiled.client.utils.TILED_RETRY_ATTEMPTS = 2
sys.path.insert(0, {conftest!r})
from conftest import SoftCapture
from bluesky import RunEngine, plans as bp
from daqiri_ophyd.catalog import Catalog
from preloaded_processes import enter_namespaces

root, empty_catalog, fault = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
disk = root / "disk"
if fault.startswith("full"):
    enter_namespaces(user=0, mounts=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=True)
else:
    enter_namespaces(user=1000)
shutil.copytree(empty_catalog, disk / "catalog")
backup = disk / "backup" if fault == "full, with the backup" else root / "backup"
catalog = Catalog.open(disk / "catalog", [root / "captures"], backup_directory=backup)
device = SoftCapture("soft", root / "captures")
RE = RunEngine({{}}, context_managers=[])
writer = catalog.writer(batch_size=1)
RE.subscribe(writer)

def break_disk():
    if len(device.written) == 2:
        catalog.flush()  # it has all until here
        if fault.startswith("full"):
            with open(disk / "filler", "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(bytes(4096))
                except OSError:
                    pass
        else:
            (disk / "catalog").chmod(0o500)

device.before_read = break_disk
(uid,) = RE(bp.count([device], 3))
assert len(device.written) == 3
print(uid, *writer.backups, *backup.glob("*.jsonl"))
catalog.close()
"""


def run_script(tmp_path: Path, empty_catalog: Path, fault: str):
    (tmp_path / "disk").mkdir()
    script = SCRIPT.format(conftest=str(Path(__file__).parent))
    done = run_preloaded("-c", script, tmp_path, empty_catalog, fault)
    assert done.returncode == 0, done.stderr
    assert "Logging error" not in done.stderr
    return done


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_disk_of_the_catalog_fails_in_mid_run(tmp_path, captures, catalog, empty_catalog, fault):
    done = run_script(tmp_path, empty_catalog, fault)
    uid, backup, found = done.stdout.split()
    assert backup == found
    assert catalog.ingest_backup(backup) == uid
    run = catalog.client[uid]
    np.testing.assert_array_equal(run["primary"].read()["soft_packets"], [2, 3, 4])
    assert run.validate(raise_on_error=True) is True


def test_disk_of_catalog_and_backup_fails_in_mid_run(tmp_path, captures, empty_catalog):
    done = run_script(tmp_path, empty_catalog, "full, with the backup")
    uid, journal = done.stdout.split()
    # The part stored until then remains for recovery, and its name says that it is a part.
    assert Path(journal).name == f"{uid}.partial.unfinished.jsonl"
    files = sorted(captures.rglob("*.pcap"))
    assert f"The documents of run {uid} are lost" in done.stderr
    assert f"Its captures on this host: {files[0]} to {files[2].name} (3 files)." in done.stderr
    assert "store them with" not in done.stderr


def test_container_of_something_else_is_refused(catalog):
    from tiled.client import from_uri

    root = from_uri(catalog.uri.partition("/metadata")[0], api_key=catalog.api_key)
    other = root.create_container("other")
    other.create_container("runs")
    with pytest.raises(CatalogError, match="other/runs is not a catalog of runs"):
        Catalog.connect(other.uri, catalog.api_key)
    root.context.close()


def test_proxy_of_the_environment_is_not_asked(tmp_path, empty_catalog, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Catalog.open(empty_catalog) as catalog:
        assert list(catalog.client) == []


def test_writer_for_a_server_that_is_gone(catalog):
    catalog._server.close()
    with pytest.raises(CatalogError, match=r"The catalog at http://127.* does not answer"):
        catalog.writer()
