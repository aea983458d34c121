"""A GPU driver that runs on any host."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from networks import cable, card, has_af_xdp, networks  # noqa: F401 - fixtures; also for `.ci/gpu`
from preloaded_processes import run_preloaded

Config = dict[str, Any]
Run = Callable[..., tuple[str, list[str]]]

# A region on a GPU requires at least one more.
PAGE = os.sysconf("SC_PAGESIZE")

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
    "THREADS": 1024,
    "SYNCHRONIZE": 0,
    "LAUNCH": 0,
    "LAUNCH_GPU": -1,
    "GOOD_LAUNCHES": 0,
    "LAUNCHES": 0,
    "DMA_BUF": 1,
    "CARDS": 0,
    "FLUSHES": 1,
    "ORDERING": 100,
    "SYNC_MEMOPS": 0,
    "FLUSH": 0,
    "FRAME": 0,
    "EVENT": 0,
    "COMPILE": 0,
}
CUFILE_ANSWERS = {
    "CUFILE_OPEN": 0,
    "CUFILE_MAJOR": 2,
    "CUFILE_FILES": 1000,
    "CUFILE_BUFFER": 0,
    "CUFILE_WRITES": -1,
    "CUFILE_ERRNO": 0,
    "CUFILE_ERROR": 0,
    "CUFILE_MOST": 0,
}


def loopback(kind: str = "host_pinned", num_bufs: int = 64) -> Config:
    """Return a loopback port whose packets are in GPU memory."""

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


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what is compiled once for all tests, also those of other processes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= "compiled"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def with_driver(tmp_path: Path, compiled: Path) -> Run:
    """Run a program with a driver that gives such answers: what it prints, what was asked for.

    Without a compiler's folder, the driver is the compiler, too. With an answer of cuFile's there
    is one.
    """

    def build(name: str, library: Path, answers: dict[str, int]) -> Path:
        source = Path(__file__).with_name(name)
        defines = [f"-D{key}={value}" for key, value in answers.items()]
        built = compiled / hashlib.sha256(f"{name} {defines}".encode()).hexdigest()
        if not built.exists():
            # Under its name when it is complete: another process may do the same.
            part = tmp_path / "part"
            command = ["gcc", "-shared", "-fPIC", "-Wall", *defines, source, "-o", part]
            subprocess.run(command, check=True)
            part.rename(built)
        shutil.copyfile(built, library)
        return source

    def run(program: str, compiler: Path | None = None, **answers: int) -> tuple[str, list[str]]:
        log = tmp_path / "log"
        log.write_text("")
        of_cufile = {key: answers.pop(key) for key in [*answers] if key.startswith("CUFILE")}
        library = tmp_path / "libcuda.so.1"
        source = build("driver.c", library, ANSWERS | answers)
        if of_cufile:
            build("cufile.c", tmp_path / "libcufile.so.0", CUFILE_ANSWERS | of_cufile)
        compilers = [library] if compiler is None else compiler.glob("*.so*")
        for file in compilers:
            link = tmp_path / ("libnvrtc.so.13" if compiler is None else file.name)
            link.unlink(missing_ok=True)
            link.symlink_to(file)
        done = run_preloaded(
            "-c",
            program,
            cwd=tmp_path,
            env={
                **os.environ,
                "LD_LIBRARY_PATH": f"{tmp_path}",  # of programs that it starts
                "DRIVER_LOG": f"{log}",
                "DRIVER_COMPILED": f"{compiled}",
                "ON_HOST": f"{source.with_name('on_host.h')}",
            },
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        asked = log.read_text().split()
        assert "freed-too-early" not in asked
        return done.stdout.strip(), asked

    return run
