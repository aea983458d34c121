"""Scripts as users run them, and the engine of this process."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd import compat


def _loopback(batch_size: int = 32, **keys: Any) -> dict[str, Any]:
    queue = {"id": 0, "cpu_core": "any", "batch_size": batch_size}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            {"name": side, "kind": "host", "num_bufs": 4096, "buf_size": 2048}
            for side in ("rx", "tx")
        ],
        "interfaces": [
            {
                "name": "camera",
                "address": "loopback",
                "rx": {
                    "queues": [
                        queue | {"name": "rx", "memory_regions": ["rx"], "timeout_us": 1000}
                    ],
                    "flows": [
                        {
                            "name": "frames",
                            "id": 7,
                            "match": {"udp_dst": 5000},
                            "action": {"type": "queue", "id": 0},
                        }
                    ],
                },
                "tx": {"queues": [queue | {"name": "tx", "memory_regions": ["tx"]}]},
            }
        ],
        **keys,
    }


@pytest.fixture
def loopback() -> Callable[..., dict[str, Any]]:
    """Make a configuration of one port in memory."""
    return _loopback


@pytest.fixture
def engine() -> Iterator[Callable[..., int]]:
    """Start the engine of this process; the result is the number of its port."""

    def start(**keys: Any) -> int:
        status = compat.daqiri_init(_loopback(**keys))
        assert status == compat.Status.SUCCESS, compat.last_error()
        return compat.get_port_id("camera")

    yield start
    compat.shutdown()


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `daqiri-ophyd run SCRIPT [ARGS...]`; it is killed at the end if it is still running."""
    started = []

    def popen(script: str | Path, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "daqiri_ophyd", "run", script, *arguments]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(
            [str(part) for part in command], text=True, **{**pipes, **options}
        )
        started.append(process)
        return process

    yield popen
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., tuple[int, str, str]]:
    """Run a script to its end: exit status, output, errors."""

    def finish(script: str | Path, *arguments: object, **options: Any) -> tuple[int, str, str]:
        text = options.pop("input", None)
        process = start(script, *arguments, **options)
        output, errors = process.communicate(text, timeout=120)
        return process.returncode, output, errors

    return finish
