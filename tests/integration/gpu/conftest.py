"""A GPU's driver that runs on any host."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Config = dict[str, Any]
Run = Callable[..., tuple[str, list[str]]]

ANSWERS = {
    "INIT": 0,
    "GPUS": 1,
    "CAPABILITY": 9,
    "ELF": 0,
    "ON_HOST": 0,
    "DRIVER": 13,
    "HOST_POINTER": 1,
    "PIN": 0,
    "ALLOCATE": 0,
    "COPIES": -1,
    "GUARD": 0,
    "LAUNCH": 0,
    "FRAME": 0,
    "EVENT": 0,
    "COMPILE": 0,
}


def loopback(kind: str = "host_pinned", num_bufs: int = 64) -> Config:
    """Return a loopback port whose packets are in such memory."""

    def queue(name: str) -> Config:
        keys = {"name": name, "id": 0, "cpu_core": "any", "batch_size": 8}
        return {**keys, "memory_regions": [name]}

    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            {"name": name, "kind": kind, "num_bufs": num_bufs, "buf_size": 2048}
            for name in ("rx", "tx")
        ],
        "interfaces": [
            {
                "name": "port",
                "address": "loopback",
                "rx": {"queues": [{**queue("rx"), "timeout_us": 1000}]},
                "tx": {"queues": [queue("tx")]},
            }
        ],
    }


@pytest.fixture
def with_driver(tmp_path: Path) -> Run:
    """Run a program with a driver that gives such answers: what it prints, what was asked for.

    Without a compiler's folder, the driver is the compiler, too.
    """

    def run(program: str, compiler: Path | None = None, **answers: int) -> tuple[str, list[str]]:
        log = tmp_path / "log"
        log.write_text("")
        source = Path(__file__).with_name("driver.c")
        defines = [f"-D{name}={value}" for name, value in {**ANSWERS, **answers}.items()]
        library = tmp_path / "libcuda.so.1"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-Wall", *defines, source, "-o", library], check=True
        )
        fake = tmp_path / "libnvrtc.so.13"
        fake.unlink(missing_ok=True)
        if compiler is None:
            fake.symlink_to(library)
        folders = f"{tmp_path}:{compiler or ''}".rstrip(":")
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "LD_LIBRARY_PATH": folders,
                "DRIVER_LOG": f"{log}",
                "ON_HOST": f"{source.with_name('on_host.h')}",
            },
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), log.read_text().split()

    return run
