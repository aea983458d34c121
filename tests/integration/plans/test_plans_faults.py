"""Scans whose catalog is killed, and captures whose peer disconnects."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
import tiled.client.utils
import yaml
from bluesky.utils import FailedStatus
from catalog_servers import KEY, FacilityServer, Holder
from free_ports import free_port
from ophyd.sim import SynAxis
from waiting import eventually

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.cli import _main
from daqiri_ophyd.devices import Daq, make_daq
from daqiri_ophyd.engine import PcapFile, load_config

from .conftest import packets, tcpdump_count


class Embedded:
    """A catalog directory that another process serves, until it is killed."""

    def __init__(self, directory: Path, captures: Path) -> None:
        self.directory, self.captures = directory, captures
        self._holder = Holder(directory, captures)
        self.kill = self._holder.kill

    def open(self) -> Catalog:
        return Catalog.open(self.directory, readable=[self.captures])

    def restart(self) -> None:
        """The next process that opens it becomes the server."""

    def end(self) -> None:
        if self._holder.process.poll() is None:
            self._holder.end()


class Facility:
    """A Tiled server."""

    def __init__(self, directory: Path, captures: Path) -> None:
        self.directory, self.captures = directory, captures
        self._server = FacilityServer(directory, captures)
        self._server.start()
        self.kill, self.restart, self.end = (
            self._server.kill,
            self._server.start,
            self._server.stop,
        )

    def open(self) -> Catalog:
        backup = self.directory.parent / "backup"
        return Catalog.connect(
            self._server.uri, KEY, readable=[self.captures], backup_directory=backup
        )


@pytest.fixture(params=[Embedded, Facility])
def server(request, tmp_path, captures, empty_catalog, monkeypatch) -> Iterator[Any]:
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_ATTEMPTS", 2)
    server = request.param(shutil.copytree(empty_catalog, tmp_path / "catalog"), captures)
    yield server
    server.end()


def assert_stored(catalog: Catalog, uid: str, documents: Any) -> None:
    """The run is in the catalog exactly once and complete."""
    run = catalog.client[uid]
    assert list(catalog.client) == [uid]
    files = capture_files(run)
    assert files == documents.files()
    rows = documents.rows()
    table = run["primary"].read()
    counts = [row["daq_port0_capture_packets"] for row in rows]
    assert list(table["daq_port0_capture_packets"]) == counts == [packets([f]) for f in files]
    assert list(table["daq_port0_capture_files"].values) == [file.name for file in files]
    assert len(catalog.databroker()[uid].table()) == len(rows)
    assert run.metadata["stop"]["exit_status"] == "success"
    assert run.validate(raise_on_error=True) is True
    for file, count in zip(files, counts, strict=True):
        with PcapFile(file) as pcap:
            assert (len(pcap), pcap.torn_bytes) == (count, 0)
        assert tcpdump_count(file) == count


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_a_scan_goes_on_when_its_catalog_is_killed_and_is_stored_once_it_is_back(
    server, daq, run_engine, documents, kind
):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    if kind == "step":
        each = {"count": 40, "size": 100}
        plan = plans.capture_scan(capture, SynAxis(name="motor"), 0, 1, 6, tx=tx, packets=each)
    else:
        sent = {"count": 240, "size": 100, "rate": 100}
        plan = plans.capture(
            capture, 240, roll_packets=40, tx=tx, packets=sent, flush_period=0.05, timeout=60.0
        )
    with server.open() as catalog:
        # With rows in the catalog when it is killed, and a request for each later one.
        writer = catalog.writer(batch_size=1)
        run_engine.subscribe(writer)
        killed = []

        def kill(name: str, _doc: dict[str, Any]) -> None:
            if name in ("event", "event_page") and not killed and len(documents.rows()) >= 2:
                killed.append(len(documents.rows()))
                catalog.flush()
                server.kill()

        run_engine.subscribe(kill)
        (uid,) = run_engine(plan)
        # The last rows may be collected together; the stop document is missing in any case.
        assert 2 <= killed[0] <= len(documents.rows())
        assert documents.stop["exit_status"] == "success"
        if isinstance(server, Embedded):
            # This process runs the server on.
            assert writer.backups == []
            assert_stored(catalog, uid, documents)
            return
        (backup,) = writer.backups

    server.restart()
    with server.open() as catalog:
        assert "stop" not in catalog.client[uid].metadata
        assert catalog.ingest_backup(backup) == uid
        assert_stored(catalog, uid, documents)
        assert packets(capture_files(catalog.client[uid])) == 240
        # Repeated: no work left, and nothing is stored twice.
        assert catalog.ingest_backup(backup) == uid
        assert_stored(catalog, uid, documents)


@pytest.mark.parametrize("server", [Embedded], indirect=True)
def test_a_run_of_which_only_a_backup_is_left_is_recovered_by_the_command(
    server, daq, run_engine, documents, tmp_path, capsys
):
    def recovered() -> dict[str, Any]:
        capsys.readouterr()
        assert _main._run(["catalog", "recover", "--data", str(tmp_path), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    capture, tx = daq.port0.capture, daq.port0.tx.out
    with server.open() as catalog:
        writer = catalog.writer()
        run_engine.subscribe(writer)
        server.kill()
        # The server cannot be run on at its address.
        port = urlparse(catalog.uri).port
        with socket.create_server(("127.0.0.1", port)):
            (uid,) = run_engine(
                plans.capture(capture, 100, tx=tx, packets={"count": 100, "size": 100})
            )
            assert len(writer.backups) == 1
    assert list(recovered()) == [uid]
    assert recovered() == {}
    with server.open() as catalog:
        assert_stored(catalog, uid, documents)


PEER = """
import socket, sys, time
kind, port = sys.argv[1], int(sys.argv[2])
peer = socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
peer.connect(("127.0.0.1", port))
for _ in range(20):
    peer.sendall(bytes(500))
    time.sleep(0.01)
print("sent", flush=True)
sys.stdin.read()
"""


class Peer:
    """A program that sends 20 times 500 bytes, and stays until its input ends."""

    def __init__(self, kind: str, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, kind, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "sent\n"

    def end(self, number: int | None) -> None:
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate(timeout=60)


@pytest.fixture
def receiver(captures) -> Iterator[Callable[[str], tuple[Daq, int]]]:
    """Make the device of a socket profile without its sender; return it with its port."""
    made = []

    def make(kind: str) -> tuple[Daq, int]:
        config = yaml.safe_load(profiles.path(kind).read_text())
        settings = config["daqiri"]["cfg"]
        del settings["interfaces"][1], settings["memory_regions"][1]
        port = free_port("tcp" if kind == "tcp" else "udp")
        settings["interfaces"][0]["socket_config"]["local_addr"] = f"{kind}://127.0.0.1:{port}"
        made.append(make_daq(load_config(config), "daq", directory=captures))
        return made[-1], port

    yield make
    for daq in made:
        daq.close()


@pytest.mark.parametrize(
    ("kind", "number", "cause"),
    [
        ("tcp", None, r"; peer 127\.0\.0\.1:\d+ is gone"),
        ("tcp", signal.SIGKILL, r"; peer 127\.0\.0\.1:\d+ is gone"),
        ("udp", None, ""),
        ("udp", signal.SIGKILL, ""),
    ],
)
def test_a_peer_that_goes_ends_the_run_with_the_cause(
    receiver, run_engine, documents, catalog, kind, number, cause
):
    daq, port = receiver(kind)
    capture = daq.receiver.capture

    def send() -> None:
        eventually(lambda: capture.progress is not None, 60)
        Peer(kind, port).end(number)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(FailedStatus):
        # A packet in each file: rows and files while the peer is there, too.
        run_engine(plans.capture(capture, 10_000, roll_packets=1, timeout=2.0, flush_period=0.1))
    sender.join()

    files = documents.files()
    stop = documents.stop
    assert stop["exit_status"] == "fail"
    reason = rf"capturing failed: no progress for 2 s: {packets(files)} of 10000 packets{cause}$"
    assert re.search(reason, stop["reason"])
    rows = documents.rows()
    assert sum(row["daq_receiver_capture_dropped"] for row in rows) == 0
    with PcapFile(files[0]) as pcap:
        headers = len(pcap[0]) - 500 if kind == "udp" else 40
    assert sum(row["daq_receiver_capture_bytes"] for row in rows) == 20 * 500 + headers * packets(
        files
    )
    run = catalog.client[stop["run_start"]]
    assert capture_files(run) == files
    assert run.metadata["stop"]["reason"] == stop["reason"]
    counts = list(run["primary"].read()["daq_receiver_capture_packets"])
    assert counts == [tcpdump_count(file) for file in files]
    assert run.validate(raise_on_error=True) is True


def test_a_peer_that_never_comes_is_named(receiver, run_engine, documents):
    daq, _ = receiver("tcp")
    with pytest.raises(FailedStatus):
        run_engine(plans.capture(daq.receiver.capture, 10, timeout=0.5))
    assert documents.stop["reason"].endswith("0 of 10 packets; no peer has connected")
