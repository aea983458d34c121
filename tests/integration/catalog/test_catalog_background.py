"""Runs are stored in the background, and readers wait for them."""

import errno
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import tiled.client.utils
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from preloaded_processes import Preloaded

from daqiri_ophyd.catalog import Catalog, _backlog, _backup, capture_files, recover_runs

# Timeout of waits for expected events, s.
LIMIT = 60


class Gate(logging.Handler):
    """Blocks requests of writers until it is opened, by the message of a waiting thread."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.open = threading.Event()
        self.told: list[str] = []
        self.then: Callable[[], None] = self.open.set

    def emit(self, record: logging.LogRecord) -> None:
        """Record that a thread waits."""
        if record.getMessage().startswith("Waiting for run"):
            self.told.append(record.getMessage())
            self.then()

    def pass_through(self, _request: object) -> None:
        """Wait like a client of a server that does not answer."""
        if threading.current_thread() is not threading.main_thread():
            self.reached.set()
            if not self.open.wait(LIMIT):
                raise httpx.ConnectError("nobody has opened the gate")


def before_requests(catalog: Catalog, call: Callable[[object], None]) -> None:
    hooks = catalog.client.context.http_client.event_hooks
    hooks["request"].append(call)
    catalog.client.context.http_client.event_hooks = hooks


@pytest.fixture
def gate(catalog, monkeypatch):
    monkeypatch.setattr(_backlog, "_SILENT_S", 0.1)
    gate = Gate()
    logging.getLogger("daqiri_ophyd").addHandler(gate)
    yield gate
    gate.open.set()
    logging.getLogger("daqiri_ophyd").removeHandler(gate)


@pytest.fixture
def stuck(catalog, run_engine, gate):
    """A catalog that does not answer a writer, which stores the runs of the RunEngine."""
    run_engine.subscribe(catalog.writer())
    before_requests(catalog, gate.pass_through)
    return catalog


def test_the_loop_runs_and_the_scan_ends_while_a_store_is_stuck(
    catalog, gate, stuck, device, run_engine
):
    ran = []

    def ask_the_loop() -> None:
        gate.reached.wait(LIMIT)
        ticked = threading.Event()
        run_engine.loop.call_soon_threadsafe(ticked.set)
        ran.append(ticked.wait(60))

    device.before_read = lambda: gate.reached.wait(60)  # the first request is under way
    asking = threading.Thread(target=ask_the_loop)
    asking.start()
    (uid,) = run_engine(bp.count([device], 3))
    asking.join()
    assert ran == [True]
    assert not gate.open.is_set()
    run = catalog.client[uid]
    assert gate.told[0].startswith(f"Waiting for run {uid} to be stored in the catalog at ")
    assert run.stop["num_events"] == {"primary": 3}


@pytest.mark.parametrize(
    "look_up",
    [
        lambda catalog, _: len(catalog.client),
        lambda catalog, _: len(list(catalog.client)),
        lambda catalog, uid: catalog.client[uid].stop and 1,
        lambda catalog, _: catalog.client[-1].stop["num_events"]["primary"],
        lambda catalog, uid: len(catalog.databroker()[uid].table()),
        lambda catalog, uid: len(capture_files(catalog.client[uid])),
        lambda catalog, _: len(list(catalog.backup_directory.iterdir())) if catalog.flush() else 1,
        lambda catalog, _: 1 - len(list(recover_runs(catalog, lambda _: []))),
    ],
    ids=["len", "iteration", "uid", "last", "databroker", "captures", "flush", "recover"],
)
def test_a_lookup_waits_for_runs_that_have_ended(stuck, gate, device, run_engine, look_up):
    (uid,) = run_engine(bp.count([device]))
    assert not gate.told
    assert look_up(stuck, uid) == 1
    assert len(gate.told) == 1
    assert list(stuck.backup_directory.iterdir()) == []


def test_a_client_and_a_catalog_opened_before_wait_too(
    tmp_path, stuck, gate, device, run_engine, captures
):
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as other:
        for runs in (stuck.client, other.client):
            gate.open.clear()
            gate.told.clear()
            (uid,) = run_engine(bp.count([device]))
            assert runs[uid].stop["exit_status"] == "success"
            assert len(gate.told) == 1


def test_a_lookup_in_a_plan_waits_for_what_was_given_until_then(stuck, gate, device, run_engine):
    found = []

    @bpp.stage_decorator([device])
    @bpp.run_decorator()
    def plan():
        yield from bps.trigger_and_read([device])
        found.append(dict(stuck.client[-1].metadata))
        yield from bps.trigger_and_read([device])

    (uid,) = run_engine(plan())
    assert len(gate.told) == 1
    assert found[0]["start"]["uid"] == uid
    assert "stop" not in found[0]
    assert stuck.client[uid].stop["num_events"] == {"primary": 2}


def test_documents_are_stored_in_order_and_as_they_were(stuck, gate, device, run_engine):
    given = []

    def spoil(name: str, doc: dict) -> None:
        given.append((name, doc.get("seq_num"), doc.get("uid")))
        if name == "start":
            doc["purpose"] = "changed"
        if "data" in doc:
            doc["data"].clear()

    run_engine.subscribe(spoil)
    uids = [
        *run_engine(bp.count([device], 2, md={"purpose": "kept"})),
        *run_engine(bp.count([device])),
    ]
    assert not gate.open.is_set()
    assert list(stuck.client) == uids
    first = stuck.client[uids[0]]
    assert first.metadata["start"]["purpose"] == "kept"
    assert list(first.primary.read()["soft_packets"]) == [2, 3]
    assert first.validate(raise_on_error=True) is True
    assert [n for n, _, _ in given].count("event") == 3


def test_closing_waits(tmp_path, catalog, stuck, gate, device, run_engine, captures):
    (uid,) = run_engine(bp.count([device]))
    catalog.close()
    assert len(gate.told) == 1
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as again:
        assert again.client[uid].stop["exit_status"] == "success"
        assert list(again.backup_directory.iterdir()) == []


def test_ctrl_c_ends_the_wait_and_leaves_the_run_to_be_recovered(
    tmp_path, catalog, stuck, gate, device, run_engine, captures, caplog
):
    main = threading.get_ident()
    gate.then = lambda: threading.Thread(
        target=signal.pthread_kill, args=(main, signal.SIGINT)
    ).start()
    (uid,) = run_engine(bp.count([device], 2))
    with pytest.raises(KeyboardInterrupt):
        catalog.close()
    journal = catalog.backup_directory / f"{uid}.unfinished.jsonl"
    assert f"Run {uid} is not stored" in caplog.text
    assert str(journal) in caplog.text
    assert journal.is_file()
    gate.open.set()
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as again:
        (found,) = recover_runs(again, lambda _: [])
        assert (found.uid, found.problem) == (uid, "")
        assert again.client[uid].stop["num_events"] == {"primary": 2}
        assert not journal.exists()


def test_documents_that_could_not_be_kept_are_said_to_be_lost(
    stuck, gate, device, run_engine, caplog, monkeypatch
):
    write = os.write

    def write_until_full(descriptor: int, data: bytes) -> int:
        if b'"descriptor"' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(_backup.os, "write", write_until_full)
    (uid,) = run_engine(bp.count([device]))
    gate.reached.wait(LIMIT)
    _backlog.abandon(stuck.uri)
    gate.open.set()
    for thread in threading.enumerate():
        if thread.name == "store-runs":
            thread.join(LIMIT)
    assert f"Documents of run {uid} are lost" in caplog.text
    assert "catalog recover" not in caplog.text


def test_a_catalog_that_is_down_does_not_hold_the_scan(catalog, device, run_engine, monkeypatch):
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_ATTEMPTS", 2)
    writer = catalog.writer()
    run_engine.subscribe(writer)
    ended = threading.Event()
    in_time = []

    def refuse(_request: object) -> None:
        if not threading.current_thread().name.startswith("Main"):
            in_time.append(ended.wait(LIMIT if not in_time else 0))
            raise httpx.ConnectError("refused")

    before_requests(catalog, refuse)
    (uid,) = run_engine(bp.count([device], 3))
    ended.set()
    assert writer.backups == [catalog.backup_directory / f"{uid.split('-')[0]}.jsonl"]
    assert set(in_time) == {True}
    assert list(catalog.backup_directory.iterdir()) == writer.backups


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_leaves_the_storing_to_its_parent(stuck, gate, device, run_engine):
    (uid,) = run_engine(bp.count([device]))
    gate.reached.wait(LIMIT)
    child = multiprocessing.get_context("fork").Process(target=stuck.flush)
    child.start()
    child.join(LIMIT)
    assert child.exitcode == 0
    assert not gate.open.is_set()
    assert (stuck.backup_directory / f"{uid}.unfinished.jsonl").is_file()
    assert list(stuck.client) == [uid]


# The writer is blocked until a thread waits for it, or forever.
SCRIPT = """
import os, signal, sys, threading
from pathlib import Path
sys.path[:0] = [{folder!r}, str(Path({folder!r}).parent)]
from conftest import SoftCapture
from test_catalog_background import Gate, before_requests
from bluesky import RunEngine, plans as bp
from daqiri_ophyd.catalog import Catalog, _backlog
import logging

_backlog._SILENT_S = 0.1
root, end = Path(sys.argv[1]), sys.argv[2]
gate = Gate()
if end == "Ctrl-C":
    gate.then = lambda: print("waiting", flush=True)
logging.getLogger("daqiri_ophyd").addHandler(gate)
catalog = Catalog.open(root / "catalog", [root / "captures"])
RE = RunEngine({{}}, context_managers=[])
RE.subscribe(catalog.writer())
before_requests(catalog, gate.pass_through)
(uid,) = RE(bp.count([SoftCapture("soft", root / "captures")], 3))
print(uid, flush=True)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("Ctrl-C", 0), ("kill", -signal.SIGKILL)])
def test_a_process_stores_runs_when_it_ends_or_leaves_them_to_be_recovered(
    tmp_path, catalog, captures, end, code
):
    catalog.close()
    arguments = ["-c", SCRIPT.format(folder=str(Path(__file__).parent)), str(tmp_path), end]
    process = (
        Preloaded(*arguments)
        if end == "kill"
        else subprocess.Popen(  # an interpreter ends
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    try:
        uid = process.stdout.readline().strip()
        if end == "Ctrl-C":
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code, messages
    assert "Traceback" not in messages
    left = [f"{uid}.unfinished.jsonl"]
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as again:
        folder = again.backup_directory
        assert [path.name for path in folder.iterdir()] == ([] if end == "exit" else left)
        found = list(recover_runs(again, lambda _: []))
        assert [(run.uid, run.problem) for run in found] == ([] if end == "exit" else [(uid, "")])
        run = again.client[uid]
        assert run.stop["exit_status"] == "success"
        assert list(run.primary.read()["soft_packets"]) == [2, 3, 4]
        assert len(capture_files(run)) == 3
