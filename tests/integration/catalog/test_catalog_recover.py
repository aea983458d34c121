"""Runs of processes that were killed."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from bluesky import plans as bp
from catalog_servers import KEY, FacilityServer
from event_model import sanitize_doc
from preloaded_processes import Preloaded
from waiting import wait_for

from daqiri_ophyd.catalog import Catalog, capture_files, recover_runs
from daqiri_ophyd.catalog._backup import Journal
from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import InvalidParameterError, PcapFile

PROCESS = Path(__file__).with_name("killed_process.py")


def kill(data, number=signal.SIGKILL, *, kind="fly", uri="", roll_packets=100, batch_size=10_000):
    """Kill a process while a file is being written."""
    options = {"kind": kind, "uri": uri, "roll_packets": roll_packets, "batch_size": batch_size}
    process = Preloaded(PROCESS, data, json.dumps(options))
    try:
        while "recording" not in (line := process.stdout.readline()):
            assert line, "it ended"
        # A stop that comes after its end is undone would hold threads that have not died yet.
        wait_for(process.is_stopped)
    finally:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        assert process.wait() == -number


def kill_in_a_fly_scan(data, empty_catalog, roll_packets, batch_size=10_000):
    shutil.copytree(empty_catalog, data / "catalog")
    kill(data, roll_packets=roll_packets, batch_size=batch_size)


def recover(data, capsys, *options):
    capsys.readouterr()
    assert _main._run(["catalog", "recover", "--data", str(data), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("roll_packets", "batch_size"), [(0, 10_000), (100, 10_000), (100, 1)])
def test_a_killed_fly_scan_is_read_and_replayed_when_recovered(
    tmp_path, empty_catalog, capsys, roll_packets, batch_size
):
    kill_in_a_fly_scan(tmp_path, empty_catalog, roll_packets, batch_size)
    on_disk = sorted((tmp_path / "captures").rglob("*.pcap"))
    ((uid, found),) = recover(tmp_path, capsys).items()
    assert found["problem"] == ""
    assert found["unlisted"] == []
    assert found["rows"] > 0
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "captures"]) as catalog:
        run = catalog.client[uid]
        assert run.metadata["stop"]["exit_status"] == "abort"
        assert "ended without closing it" in run.metadata["stop"]["reason"]
        files = capture_files(run)
        assert files == on_disk
        table = run["primary"].read()
        counts = []
        for file in files:
            with PcapFile(file) as pcap:
                assert pcap.torn_bytes == 0
                counts.append(len(pcap))
        assert list(table["daq_port0_capture_packets"]) == counts
        assert list(table["daq_port0_capture_files"].values) == [file.name for file in files]
        assert run.metadata["stop"]["num_events"]["primary"] == len(files)
        assert run.validate(raise_on_error=True) is True
        assert sum(counts) >= 250
        assert len(catalog.client) == 2
        before = json.dumps(run.metadata["stop"])
    times = {file: file.stat().st_mtime_ns for file in on_disk}
    assert recover(tmp_path, capsys) == {}
    assert _main._run(["replay", uid, "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == sum(counts)
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "captures"]) as catalog:
        assert json.dumps(catalog.client[uid].metadata["stop"]) == before
        assert len(catalog.client) == 2
    assert {file: file.stat().st_mtime_ns for file in on_disk} == times


def test_what_is_only_in_the_catalog_is_closed_and_other_files_are_listed(
    tmp_path, empty_catalog, capsys
):
    kill_in_a_fly_scan(tmp_path, empty_catalog, 100, batch_size=1)
    (journal,) = (tmp_path / "catalog" / "backup").glob("*.unfinished.jsonl")
    journal.unlink()
    ((uid, found),) = recover(tmp_path, capsys).items()
    assert (found["problem"], found["rows"]) == ("", 0)
    on_disk = sorted(map(str, (tmp_path / "captures").rglob("*.pcap")))
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "captures"]) as catalog:
        run = catalog.client[uid]
        assert run.metadata["stop"]["exit_status"] == "abort"
        listed = [str(file) for file in capture_files(run)]
        assert sorted(listed + found["unlisted"]) == on_disk
        assert listed
        assert found["unlisted"]
    assert recover(tmp_path, capsys) == {}


@pytest.mark.parametrize("stored", [True, False])
def test_documents_that_were_not_kept_cost_the_catalog_nothing(
    tmp_path, catalog, device, run_engine, capsys, stored
):
    """The journal ends where the disk was full; the catalog may have all documents."""
    documents = []
    run_engine.subscribe(lambda name, doc: documents.append((name, sanitize_doc(doc))))
    if stored:
        run_engine.subscribe(catalog.writer())
    (uid,) = run_engine(bp.count([device], 3))
    if stored:
        catalog.flush()
        catalog.client[uid].update_metadata({"stop": None}, drop_revision=True)
    catalog.backup_directory.mkdir(exist_ok=True)
    journal = Journal(catalog.backup_directory, uid)
    last = min(i for i, (name, _) in enumerate(documents) if name == "event")
    for name, doc in documents[: last + 1]:
        journal.note(name, json.dumps(doc))
    assert journal.path.is_file()
    journal.give_up(OSError("the disk is full"))
    assert journal.path.name == f"{uid}.partial.unfinished.jsonl"
    assert recover(tmp_path, capsys) == {}  # it is in progress
    os.close(journal._descriptor)  # killed
    ((found_uid, found),) = recover(tmp_path, capsys).items()
    assert (found_uid, found["rows"], found["problem"]) == (uid, 0, "")
    run = catalog.client[uid]
    assert run.metadata["stop"]["exit_status"] == "abort"
    assert "without documents that could not be kept" in run.metadata["stop"]["reason"]
    count = 3 if stored else 1
    assert capture_files(run) == device.written[:count]
    assert list(run["primary"].read()["soft_packets"]) == [2, 3, 4][:count]
    assert found["unlisted"] == [str(path) for path in device.written[count:]]
    assert not journal.path.exists()
    assert recover(tmp_path, capsys) == {}


def test_a_file_that_cannot_be_repaired_does_not_keep_runs_from_being_closed(
    catalog, device, run_engine, fly_plan
):
    """Their documents are only in the catalog; each has a file that is in no document."""
    run_engine.subscribe(catalog.writer())
    uids = [run_engine(fly_plan(device))[0] for _ in range(2)]
    catalog.flush()
    for uid in uids:
        run = catalog.client[uid]
        last = capture_files(run)[-1]
        shutil.copy(last, last.with_name(last.name.replace("_000002", "_000003")))
        run.update_metadata({"stop": None}, drop_revision=True)

    def refuse(path):
        raise InvalidParameterError(f"{path} is in use")

    found = {run.uid: run for run in recover_runs(catalog, refuse)}
    assert sorted(found) == sorted(uids)
    for run in found.values():
        (path,) = run.unlisted
        assert run.problem == ""
        assert run.mended == [f"{path}: not repaired: {path} is in use"]
        assert catalog.client[run.uid].metadata["stop"]["exit_status"] == "abort"


def test_a_run_in_progress_is_left_alone(tmp_path, catalog, device, run_engine, fly_plan, capsys):
    run_engine.subscribe(catalog.writer(batch_size=1))
    found = []
    device.before_write = lambda: found.append(recover(tmp_path, capsys))
    (uid,) = run_engine(fly_plan(device))
    assert found == [{}, {}, {}]
    assert catalog.client[uid].metadata["stop"]["exit_status"] == "success"
    assert list(catalog.backup_directory.iterdir()) == []


def test_a_step_scan_keeps_whole_readings_and_lists_the_rest(
    tmp_path, catalog, device, run_engine, capsys
):
    documents = []
    run_engine.subscribe(
        lambda name, doc: documents.append({"name": name, "doc": sanitize_doc(doc)})
    )
    (uid,) = run_engine(bp.count([device], 3))
    # Killed in the third reading: its file is in a document, its event is not; the line is torn.
    lines = [json.dumps(document) for document in documents]
    last = max(i for i, document in enumerate(documents) if document["name"] == "event")
    journal = catalog.backup_directory / f"{uid}.unfinished.jsonl"
    catalog.backup_directory.mkdir(exist_ok=True)
    journal.write_text("\n".join(lines[:last]) + "\n" + lines[last][:40])
    ((found_uid, found),) = recover(tmp_path, capsys).items()
    assert (found_uid, found["rows"]) == (uid, 0)
    assert found["unlisted"] == [str(device.written[2])]
    run = catalog.client[uid]
    assert capture_files(run) == device.written[:2]
    assert list(run["primary"].read()["soft_packets"]) == [2, 3]
    assert run.metadata["stop"]["num_events"] == {"primary": 2}
    assert not journal.exists()


def require_recovered(catalog, uid, found, data, kind):
    """The run is in the catalog, with all files on disk, or they are listed."""
    assert found["problem"] == ""
    run = catalog.client[uid]
    assert run.metadata["stop"]["exit_status"] == "abort"
    assert "ended without closing it" in run.metadata["stop"]["reason"]
    files = capture_files(run)
    assert len(files) >= 3
    on_disk = sorted((data / "captures").rglob("*.pcap"))
    counts = []
    for file in on_disk:
        with PcapFile(file) as pcap:
            assert pcap.torn_bytes == 0
            counts.append(len(pcap))
        done = subprocess.run(["tcpdump", "-nr", file], capture_output=True, check=True)
        assert done.stdout.count(b"\n") == counts[-1]
    # An incomplete reading has no row; its file is kept, with its content.
    assert found["unlisted"] == [str(file) for file in on_disk[len(files) :]]
    assert len(found["unlisted"]) == (kind == "step")
    # The last file of a fly scan may have been begun just now.
    assert (counts[-1] if kind == "step" else sum(counts)) >= 250
    counts = counts[: len(files)]
    assert files == on_disk[: len(files)]
    table = run["primary"].read()
    assert list(table["daq_port0_capture_packets"]) == counts
    assert list(table["daq_port0_capture_files"].values) == [file.name for file in files]
    assert run.validate(raise_on_error=True) is True
    assert len(catalog.client) == 2


@pytest.mark.parametrize(
    ("kind", "number"),
    [("step", signal.SIGKILL), ("step", signal.SIGSEGV), ("fly", signal.SIGSEGV)],
)
def test_a_scan_that_crashes_is_stored_once_when_recovered(
    tmp_path, empty_catalog, capsys, kind, number
):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    kill(tmp_path, number, kind=kind)
    ((uid, found),) = recover(tmp_path, capsys).items()
    for _ in range(2):
        with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "captures"]) as catalog:
            require_recovered(catalog, uid, found, tmp_path, kind)
        assert recover(tmp_path, capsys) == {}


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_a_crashed_scan_that_a_facility_has_in_part_is_stored_once(
    tmp_path, empty_catalog, capsys, monkeypatch, kind
):
    monkeypatch.setenv("TILED_API_KEY", KEY)
    captures = tmp_path / "captures"
    server = FacilityServer(shutil.copytree(empty_catalog, tmp_path / "facility"), captures)
    server.start()
    try:
        kill(tmp_path, kind=kind, uri=server.uri, batch_size=1)
        ((uid, found),) = recover(tmp_path, capsys, "--catalog", server.uri).items()
        backup = tmp_path / "backup"
        with Catalog.connect(
            server.uri, KEY, readable=[captures], backup_directory=backup
        ) as catalog:
            require_recovered(catalog, uid, found, tmp_path, kind)
            assert recover(tmp_path, capsys, "--catalog", server.uri) == {}
            require_recovered(catalog, uid, found, tmp_path, kind)
    finally:
        server.stop()
