"""Processes that are forked while a recorder writes."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import Engine, PcapFile

Frames = Callable[..., NDArray[np.uint8]]
Build = Callable[..., dict[str, Any]]
WaitUntilIdle = Callable[[Engine], None]

# Records, and forks a child that outlives it. The child prints its number: only when it runs has it
# given up what it shares with its parent, and that takes a while on a busy machine.
PARENT = """
import json, os, sys, time
from daqiri_ophyd.engine import Engine
config, directory = json.loads(sys.argv[1]), sys.argv[2]
with Engine.open(config) as engine:
    rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
    recorder = rx.record(directory)
    tx.send([bytes(100)] * 640)
    while recorder.snapshot().flushed < 640:
        time.sleep(0.001)
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(3600)
"""


def run(*arguments: str | Path) -> int:
    return _main._run(["pcap", *map(str, arguments)])


@pytest.mark.parametrize("writer", ["buffered", "direct"])
def test_a_child_that_lives_on_does_not_hold_up_the_stop(
    writer: Any,
    loopback: Build,
    made_frames: Frames,
    tmp_path: Path,
    wait_until_idle: WaitUntilIdle,
) -> None:
    with Engine.open(loopback()) as engine:
        recorder = engine.ports[0].rx[0].record(tmp_path, writer=writer)
        engine.ports[0].tx[0].send(made_frames(100))
        wait_until_idle(engine)
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        try:
            recorder.stop()
            (file,) = recorder.files()
            assert file.packets == 100
            # It does not keep the lock either.
            assert run("check", file.path) == 0
            file.path.write_bytes(file.path.read_bytes()[:-1])
            assert run("repair", file.path) == 0
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_pool_that_stays_open_does_not_hold_up_the_stop(
    loopback: Build, made_frames: Frames, tmp_path: Path, wait_until_idle: WaitUntilIdle
) -> None:
    context = multiprocessing.get_context("fork")
    with Engine.open(loopback()) as engine:
        recorder = engine.ports[0].rx[0].record(tmp_path, roll_packets=30)
        with (
            ProcessPoolExecutor(2, mp_context=context) as executor,
            context.Pool(2) as pool,
        ):
            assert list(executor.map(abs, range(4))) == pool.map(abs, range(4))
            engine.ports[0].tx[0].send(made_frames(100))
            wait_until_idle(engine)
            recorder.stop()
            assert [file.packets for file in recorder.files()] == [30, 30, 30, 10]
            assert list(executor.map(abs, range(4))) == [0, 1, 2, 3]


def test_a_child_that_outlives_a_kill_is_not_taken_for_the_recorder(
    loopback: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, json.dumps(loopback()), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        file = tmp_path / "capture_000000.pcap"
        assert run("check", file) == 0
        assert "a recorder is writing it" in capsys.readouterr().out
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.kill(child, 0)
        # Like a kill in the middle of a write.
        file.write_bytes(file.read_bytes()[:-7])
        assert run("check", file) == 1
        said = capsys.readouterr()
        assert "torn" in said.err
        assert "its recorder was killed" in said.err.replace("\n", " ")
        assert run("repair", file) == 0
        assert run("check", file) == 0
        assert not list(tmp_path.glob(".*"))
        with PcapFile(file) as pcap:
            assert (len(pcap), pcap.torn_bytes) == (639, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()
