"""Programs that the topics start: pinned to a core, controlled by lines, always ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from machine import ROOT
from runner import MissingError

HERE = Path(__file__).parent
BUILT = Path(os.environ.get("DAQIRI_BENCHMARK_PROGRAMS", ROOT / "build" / "native" / "benchmarks"))


def built(name: str) -> str:
    """Path of a program of this folder, as built by CMake."""
    path = BUILT / name
    if not path.exists():
        raise MissingError(f"{path} is not built; `make bench` builds it")
    return str(path)


def engine_program(name: str) -> str:
    """Path of a program of `native/bench`."""
    path = BUILT.parent / "bench" / name
    if not path.exists():
        raise MissingError(f"{path} is not built; `make bench` builds it")
    return str(path)


def script(path: str) -> list[str]:
    """Return the command of a Python script of this folder."""
    return [sys.executable, str(HERE / path)]


def installed(name: str, package: str = "") -> str:
    """Path of a program of the system."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise MissingError(f"{name} is not installed (package {package or name})")
    return path


def cores() -> tuple[int, int]:
    """Return a core for senders and one for receivers; the same if there is only one."""
    available = sorted(os.sched_getaffinity(0))
    return available[0], available[-1]


def in_own_network(doing: str) -> None:
    """Start this script again in a new network namespace with `lo` up.

    Packets put on `lo` there reach nobody else, and its settings end with it.
    """
    if os.environ.get("DAQIRI_BENCHMARK_NETWORK") == "own":
        return
    unshare = [installed("unshare", "util-linux"), "--net"]
    if os.geteuid() != 0:
        unshare += ["--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        sys.exit(f"{doing} needs a network namespace: run it as root, or allow user namespaces")
    # The last two accept frames from 127.0.0.1 that a replay tool sends on the device.
    setup = (
        f"{installed('ip', 'iproute2')} link set lo up mtu 65536 && "
        "echo 1 > /proc/sys/net/ipv4/conf/lo/route_localnet && "
        "echo 1 > /proc/sys/net/ipv4/conf/lo/accept_local && "
        'exec "$@"'
    )
    environment = {**os.environ, "DAQIRI_BENCHMARK_NETWORK": "own"}
    command = [*unshare, "sh", "-c", setup, "sh", sys.executable, *sys.argv]
    os.execve(command[0], command, environment)


class Program:
    """A running program that answers each line on its input with one line of JSON.

    Its first line, printed when it is ready, is in `ready`.
    """

    def __init__(self, command: Sequence[str], core: int | str | None = None) -> None:
        if core is not None:
            command = [installed("taskset", "util-linux"), "-c", str(core), *command]
        self.command = command
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        try:
            self.ready: dict = self._answer()
        except MissingError:
            self.close()
            raise

    def ask(self, line: str = "") -> dict:
        """Send a line and return the answer."""
        assert self._process.stdin is not None  # noqa: S101, for the type checker
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"{' '.join(self.command)} ended early") from None
        return self._answer()

    def _answer(self) -> dict:
        assert self._process.stdout is not None  # noqa: S101, for the type checker
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{' '.join(self.command)} ended with {code}")
        answer = json.loads(line)
        if "missing" in answer:
            raise MissingError(answer["missing"])
        return answer

    def close(self) -> None:
        """Close its input, which ends it; kill it after 5 s."""
        try:
            self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def once(command: Sequence[str], core: int | None = None, timeout: float = 120) -> dict:
    """Run a program to its end and return the JSON of its last line of output."""
    if core is not None:
        command = [installed("taskset", "util-linux"), "-c", str(core), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if "missing" in answer:
        raise MissingError(answer["missing"])
    return answer
