"""Counters of engines, read by other processes and threads."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from waiting import wait_for

from daqiri_ophyd.engine import (
    Engine,
    EngineSnapshot,
    FlowCounters,
    InvalidParameterError,
    NotReadyError,
    RxCounters,
    TxCounters,
    UnreadableEngine,
    ask_engines,
    ethernet,
    running_engines,
)


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def udp_frames(count: int) -> NDArray[np.uint8]:
    return ethernet.udp_frames(
        np.zeros((count, 60), np.uint8),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )


def stats(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daqiri_ophyd", "stats", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def lines(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_snapshot_is_that_of_the_queues(loopback: Any) -> None:
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        port.tx[0].send(udp_frames(100))
        assert port.tx[0].wait_sent(5.0)
        snapshot = engine.snapshot()
        assert snapshot.engine == engine.name
        assert snapshot.pid == os.getpid()
        assert snapshot.opened_ns < snapshot.time_ns
        assert snapshot.tx[0].counters == port.tx[0].counters()
        assert snapshot.tx[0].counters.sent == 100
        for queue in snapshot.rx:
            counters = queue.counters
            balance = counters.delivered + counters.held + counters.dropped_total
            assert counters.received == balance
        assert {region.name for region in snapshot.regions} == {
            region.name for region in engine.config.memory_regions
        }
        assert all(0 <= region.free <= region.buffers for region in snapshot.regions)


def test_counters_are_copied_once_a_period(loopback: Any) -> None:
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        first = engine.counters
        assert first["rx"][port.name][port.rx[0].name]["received"] == 0
        assert not first.flags.writeable
        port.tx[0].send(udp_frames(100))
        assert port.tx[0].wait_sent(5.0)
        deadline = time.monotonic() + 60
        while (now := engine.counters)["tx"][port.name][port.tx[0].name]["sent"] < 100:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert now["time_ns"] - first["time_ns"] >= 100_000_000
        assert now["time_ns"] <= time.time_ns()
        assert now["steady_ns"] <= time.monotonic_ns()
        assert TxCounters.of_row(now["tx"][port.name][port.tx[0].name]) == port.tx[0].counters()
        assert first["tx"][port.name][port.tx[0].name]["sent"] == 0


def test_counters_of_a_closed_engine_are_exact(loopback: Any) -> None:
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        port.tx[0].send(udp_frames(100))
    counters, snapshot = engine.counters, engine.snapshot()
    for side, kind in (("rx", RxCounters), ("tx", TxCounters)):
        for state, queue in zip(getattr(snapshot, side), getattr(port, side), strict=True):
            row = counters[side][port.name][queue.name]
            assert kind.of_row(row) == queue.counters() == state.counters
            levels = dataclasses.asdict(state.levels)
            assert {name: row[name] for name in levels} == levels


def test_flows_are_found_and_counted(loopback: Any) -> None:
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        (flow,) = port.flows
        assert port.flow("data") == port.flow(7) == flow
        assert (flow.name, flow.id, flow.config.match.udp_dst) == ("data", 7, (5000, 5000))
        assert flow.counters() == FlowCounters(packets=0, bytes=0)
        port.tx[0].send(udp_frames(100))
        port.tx[0].send(udp_frames(30)[:, :50])  # the flow's too
        assert port.tx[0].wait_sent(5.0)
        wait_for(lambda: port.rx[0].counters().received >= 130)
        received = port.rx[0].counters().received_bytes
        assert flow.counters() == FlowCounters(packets=130, bytes=received)
        with pytest.raises(InvalidParameterError, match="no flow 'x'; it has 'data' \\(7\\)"):
            port.flow("x")
        (look,) = lines(stats("--json", "--count", "1", "--pid", str(os.getpid())))
        assert look["flows"] == [
            {
                "port": "port0",
                "flow": "data",
                "counters": {"packets": 130, "bytes": received},
                "packets_per_s": 0.0,
                "bits_per_s": 0.0,
            }
        ]
        assert "port0/data" in stats("--count", "1").stdout
    # A closed engine keeps them.
    assert flow.counters().packets == 130
    assert FlowCounters.of_row(engine.counters["flows"]["port0"]["data"]) == flow.counters()
    assert [(s.port, s.flow, s.counters) for s in engine.snapshot().flows] == [
        ("port0", "data", flow.counters())
    ]


def test_another_process_sees_this_one(loopback: Any) -> None:
    with Engine.open(loopback()) as first, Engine.open(loopback()) as second:
        first.ports[0].tx[0].send(udp_frames(50))
        assert first.ports[0].tx[0].wait_sent(5.0)
        seen = lines(
            stats("--json", "--count", "2", "--interval", "0.1", "--pid", str(os.getpid()))
        )
        assert len(seen) == 4
        assert [look["tx"][0]["counters"]["sent"] for look in seen] == [50, 0, 50, 0]
        assert {look["opened_ns"] for look in seen} == {
            engine.snapshot().opened_ns for engine in (first, second)
        }
        assert all(look["tx"][0]["packets_per_s"] == 0 for look in seen)
        table = stats("--count", "1")
        assert table.returncode == 0
        assert first.ports[0].tx[0].name in table.stdout
    assert running_engines() == []


def test_nothing_runs() -> None:
    result = stats("--count", "1")
    assert result.returncode == 1
    assert "no engine is running" in result.stderr


def test_an_engine_of_its_own_takes_what_arrives(loopback: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(loopback()))
    (look,) = lines(stats(str(path), "--json", "--count", "1"))
    assert look["engine"] == "loopback"
    assert stats(str(path), "--pid", "1").returncode == 2


def test_a_killed_process_is_forgotten(runtime: Path) -> None:
    program = (
        "import sys, time\n"
        "from daqiri_ophyd.engine import Engine\n"
        "from daqiri_ophyd import profiles\n"
        "engine = Engine.open(profiles.path('loopback'))\n"
        "print('open', flush=True)\n"
        "time.sleep(50)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        (snapshot,) = running_engines()
        assert snapshot.pid == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert running_engines() == []
    assert list((runtime / "daqiri").iterdir()) == []


def test_a_stopped_process_is_shown_as_not_answering(loopback: Any) -> None:
    program = (
        "import os, signal\n"
        "from daqiri_ophyd.engine import Engine\n"
        "from daqiri_ophyd import profiles\n"
        "engine = Engine.open(profiles.path('loopback'))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            os.waitpid(process.pid, os.WUNTRACED)
            said = f"engine 0 of process {process.pid} does not answer within 2 s\n"
            for _ in range(10):  # more than the backlog of its socket
                assert any(isinstance(found, UnreadableEngine) for found in ask_engines())
            alone = stats("--count", "1")
            assert (alone.returncode, alone.stdout) == (0, said)
            with Engine.open(loopback()) as engine:
                both = stats("--count", "1")
                assert both.returncode == 0
                assert said in both.stdout
                assert f"{engine.ports[0].name}/{engine.ports[0].rx[0].name}" in both.stdout
        finally:
            process.kill()


def test_a_forked_child_has_no_snapshot(loopback: Any) -> None:
    with Engine.open(loopback()) as engine:
        child = os.fork()
        if child == 0:
            try:
                engine.snapshot()
            except NotReadyError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert isinstance(engine.snapshot(), EngineSnapshot)
