"""What engines tell of themselves."""

import json
import os
import socket
from pathlib import Path

import pytest

from daqiri_ophyd.engine import EngineSnapshot, QueueLevels, running_engines

RX = {
    "port": "p",
    "queue": "r",
    "received": 10,
    "received_bytes": 1000,
    "delivered": 5,
    "held": 3,
    "bursts": 1,
    "truncated": 0,
    "ring_high_water": 1,
    "dropped": {"kernel": 2},
    "ring": 1,
    "ring_capacity": 64,
    "bursts_free": 7,
    "bursts_total": 8,
}
SNAPSHOT = {
    "engine": "loopback",
    "pid": 7,
    "opened_ns": 1,
    "time_ns": 2,
    "steady_ns": 3,
    "rx": [RX],
    "tx": [],
    "regions": [{"name": "m", "free": 1, "buffers": 2, "buf_size": 3}],
}


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "daqiri"


def test_a_snapshot_is_what_the_text_says() -> None:
    snapshot = EngineSnapshot.from_json(json.dumps(SNAPSHOT))
    (queue,) = snapshot.rx
    assert (queue.port, queue.queue) == ("p", "r")
    assert queue.counters.dropped_total == 2
    assert queue.levels == QueueLevels(1, 64, 7, 8)
    assert snapshot.regions[0].buffers == 2


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", json.dumps(SNAPSHOT | {"rx": [{}]}), json.dumps(SNAPSHOT | {"tx": 1})],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        EngineSnapshot.from_json(text)


def test_without_a_directory_nothing_runs(runtime: Path) -> None:
    assert running_engines() == []


def test_sockets_of_killed_processes_are_removed(runtime: Path) -> None:
    runtime.mkdir()
    dead, other = runtime / "12345.0", runtime / "notes.txt"
    other.write_text("kept")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(dead))
    assert running_engines() == []
    assert not dead.exists()
    assert other.exists()


def test_an_answer_that_breaks_off_is_none(runtime: Path) -> None:
    runtime.mkdir()
    with socket.socket(socket.AF_UNIX) as half:
        half.bind(str(runtime / f"{os.getpid()}.0"))
        half.listen()
        # Nobody accepts: the connection waits, and is given up.
        half.close()
        assert running_engines() == []
