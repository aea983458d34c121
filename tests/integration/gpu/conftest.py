"""A GPU driver that runs on any host."""

import contextlib
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from networks import cable, has_af_xdp, networks  # noqa: F401 - fixtures; also for `.ci/gpu`

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


class Programs:
    """Python programs in processes that are forked with the engine imported.

    The loader looks for libraries where the process that forks them did when it started: in a
    folder that is filled anew for each program, and in a compiler's.
    """

    def __init__(self, folder: Path, compiler: Path | None) -> None:
        self.folder = folder
        folders = f"{folder}:{compiler or ''}".rstrip(":")
        self._server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forked_programs.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": folders},
            start_new_session=True,
        )

    def run(self, program: str, printed: Path, errors: Path, **environment: str) -> int:
        """Run a program; return its exit code."""
        assert self._server.stdin is not None and self._server.stdout is not None
        request = [program, str(printed), str(errors), environment]
        try:
            print(json.dumps(request), file=self._server.stdin, flush=True)
            return int(self._server.stdout.readline())
        except BaseException:  # out of time: the next answer would be of this program
            self.close()
            raise

    def close(self) -> None:
        with self._server, contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Programs]]:
    """Programs that find a driver in a folder of this process, with a compiler or without."""
    folder = tmp_path_factory.mktemp("driver")
    with contextlib.ExitStack() as ended:

        @functools.cache
        def start(compiler: Path | None) -> Programs:
            programs = Programs(folder, compiler)
            ended.callback(programs.close)
            return programs

        yield start


@pytest.fixture
def with_driver(tmp_path: Path, compiled: Path, programs: Callable[..., Programs]) -> Run:
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
        log, printed, errors = (tmp_path / name for name in ("log", "printed", "errors"))
        log.write_text("")
        started = programs(compiler)
        for path in started.folder.iterdir():  # of the program before
            path.unlink()
        of_cufile = {key: answers.pop(key) for key in [*answers] if key.startswith("CUFILE")}
        library = started.folder / "libcuda.so.1"
        source = build("driver.c", library, ANSWERS | answers)
        if of_cufile:
            build("cufile.c", started.folder / "libcufile.so.0", CUFILE_ANSWERS | of_cufile)
        if compiler is None:
            (started.folder / "libnvrtc.so.13").symlink_to(library)
        code = started.run(
            program,
            printed,
            errors,
            DRIVER_LOG=f"{log}",
            DRIVER_COMPILED=f"{compiled}",
            ON_HOST=f"{source.with_name('on_host.h')}",
        )
        assert code == 0, errors.read_text()
        asked = log.read_text().split()
        assert "freed-too-early" not in asked
        return printed.read_text().strip(), asked

    return run
