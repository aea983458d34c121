"""Scans on a disk that fills up: every packet is in a file or reported as lost."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bluesky.utils import FailedStatus
from preloaded_processes import run_preloaded

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.engine import PcapFile

from .conftest import packets, tcpdump_count

COUNT = 6_000
PROCESS = Path(__file__).with_name("full_disk_process.py")


@pytest.fixture
def captures(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB in memory, as the directory of captures."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True, capture_output=True
    )
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def scan(daq, on_error: str, on_drop: str):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.on_error.put(on_error)
    return plans.capture(
        capture,
        roll_packets=300,
        on_drop=on_drop,
        tx=tx,
        packets={"count": COUNT, "size": 900, "rate": 6_000},
    )


def require_account(documents, captures: Path) -> list[dict]:
    """Rows and metadata add up to the packets that arrived; returns the rows."""
    rows = documents.rows()
    for key in ("packets", "dropped"):
        metadata = [json.loads(file.read_text())[key] for file in captures.rglob("*.json")]
        assert sum(row[f"daq_port0_capture_{key}"] for row in rows) == sum(metadata)
    packets = sum(row["daq_port0_capture_packets"] for row in rows)
    dropped = sum(row["daq_port0_capture_dropped"] for row in rows)
    assert packets + dropped == COUNT
    assert dropped > 1000
    return rows


@pytest.mark.root
@pytest.mark.parametrize("on_drop", ["fail", "flag", "ignore"])
def test_a_disk_that_stays_full(daq, run_engine, documents, captures, on_drop):
    with pytest.raises(
        FailedStatus, match=r"No space left on device; \d+ packets were not written"
    ):
        run_engine(scan(daq, "resume", on_drop))

    assert documents.stop["exit_status"] == "fail"
    rows = require_account(documents, captures)
    lost = rows[-1]["daq_port0_capture_dropped"]
    assert f"; {lost} packets were not written" in documents.stop["reason"]
    if on_drop == "flag":
        assert rows[-1]["daq_port0_capture_lossy"] is True


@pytest.mark.root
@pytest.mark.parametrize("on_drop", ["fail", "flag", "ignore"])
def test_a_disk_that_has_room_again(daq, run_engine, documents, captures, on_drop):
    filler = captures / "filler"
    filler.write_bytes(bytes(400_000))
    capture = daq.port0.capture

    def make_room() -> None:
        for _ in range(20_000):
            progress = capture.progress
            if progress is not None and progress.dropped > 1000:
                break
            time.sleep(0.001)
        subprocess.run(["mount", "-o", "remount,size=64m", captures], check=True)

    freed = threading.Thread(target=make_room)
    freed.start()
    plan = scan(daq, "resume", on_drop)
    if on_drop == "fail":
        with pytest.raises(FailedStatus, match=r"\d+ packets were not written"):
            run_engine(plan)
    else:
        run_engine(plan)
    freed.join()

    rows = require_account(documents, captures)
    assert len(rows) > 3
    if on_drop == "flag":
        assert any(row["daq_port0_capture_lossy"] for row in rows)


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_what_was_captured_until_the_disk_was_full_is_in_the_catalog(tmp_path, empty_catalog, kind):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    folder = tmp_path / "captures"
    folder.mkdir()
    done = run_preloaded(PROCESS, tmp_path, kind)
    assert done.returncode == 0, done.stderr
    folder.rmdir()
    (tmp_path / "copy").rename(folder)

    stop = json.loads(done.stdout)
    assert stop["exit_status"] == "fail"
    assert "No space left on device" in stop["reason"]
    with Catalog.open(tmp_path / "catalog", readable=[folder]) as catalog:
        run = catalog.client[stop["run_start"]]
        assert run.metadata["stop"]["reason"] == stop["reason"]
        files = capture_files(run)
        table = run["primary"].read()
        counts = table["daq_port0_capture_packets"].values.tolist()
        names = [file.name for file in files]
        assert table["daq_port0_capture_files"].values.tolist() == names
        assert counts == [packets([file]) for file in files] == [tcpdump_count(f) for f in files]
        assert len(catalog.databroker()[stop["run_start"]].table()) == len(files)
        assert run.validate(raise_on_error=True) is True
    # Complete files, and in a fly scan the one that was cut, with its losses.
    dropped = table["daq_port0_capture_dropped"].values.tolist()
    assert counts[:3] == [300, 300, 300] and not any(dropped[:3])
    if kind == "step":
        assert len(counts) == 3
    else:
        assert f"; {sum(dropped)} packets were not written" in stop["reason"]
        assert len(counts) == 4 and 0 < counts[3] < 300 and dropped[3] > 0
    # No file on disk is torn, even if it is in no document.
    for file in folder.rglob("*.pcap"):
        with PcapFile(file) as pcap:
            assert pcap.torn_bytes == 0
