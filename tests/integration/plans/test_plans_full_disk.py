"""Scans on a disk that fills up: all that arrived is in files or told as lost."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bluesky.utils import FailedStatus

from daqiri_ophyd import plans

COUNT = 6_000


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
    """Rows and metadata add up to what arrived; returns the rows."""
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
