"""Servers that run the startup collection, each in a process with a separate data folder."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.engine import PcapFile

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = "how-to/run-from-a-queue.md"


def wait_for(condition: Callable[[], Any], what: str, limit: float = 200) -> Any:
    end = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


class Service:
    """A guide or one section of it, a home folder, and the processes that serve there."""

    def __init__(self, section: str, home: Path, ports: dict[str, str], guide: str) -> None:
        text = (DOCS / guide).read_text()
        if section:
            text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        for port in ports:
            assert port in text
            text = text.replace(port, ports[port])
        self.home = home
        self.data = home / "daqiri"
        self.environment = os.environ | {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._blocks = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self._processes: list[subprocess.Popen] = []
        self._catalog: Catalog | None = None

    def blocks(self, language: str) -> list[str]:
        return [code for kind, code in self._blocks if kind == language]

    def commands(self, *begins: str) -> list[str]:
        """Commands of the guide, in order, that begin like this."""
        _, *found = re.split(r"^\$ ", "".join(self.blocks("console")), flags=re.MULTILINE)
        assert found
        lines = [command.replace("\\\n> ", "").replace("\n> ", "\n").strip() for command in found]
        return [line for line in lines if line.startswith(begins)]

    def run(self, command: str) -> str:
        """Run shell commands to their end."""
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> subprocess.Popen:
        """Start shell commands, the last one a server."""
        *before, server = command.splitlines()
        script = "\n".join([*before, f"exec {server}"])
        with (self.home / f"{shlex.split(server)[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-ec", script],
                cwd=self.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def logs(self) -> str:
        """The end of the server output, for a failing assertion."""
        return "\n".join(log.read_text()[-4000:] for log in self.home.glob("*.log"))

    def stop(self) -> None:
        """End all servers and the processes that they have started."""
        self.close_catalog()
        for process in reversed(self._processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def packets(self, uid: str) -> list[int]:
        """Packets in each file of a run's captures."""
        return [len(payload) for payload in self.contents(uid)]

    def contents(self, uid: str) -> list[list[bytes]]:
        """The packets of each file of a run's captures."""
        contents = []
        for file in capture_files(self.stored(uid)):
            with PcapFile(file) as pcap:
                contents.append([bytes(packet) for packet in pcap])
        return contents

    def stored(self, uid: str) -> Any:
        """A run, once it is complete in the catalog: servers store in the background."""

        client = self.catalog.client
        wait_for(
            lambda: uid in client and "stop" in client[uid].metadata, f"run {uid}\n{self.logs()}"
        )
        return client[uid]

    def documents(self, uid: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start and stop document of a run."""
        metadata = self.stored(uid).metadata
        return dict(metadata["start"]), dict(metadata["stop"])

    @property
    def catalog(self) -> Catalog:
        """The catalog, opened by a second process; the server process serves it."""
        if self._catalog is None:
            self._catalog = Catalog.open(self.data / "catalog", readable=[self.data / "captures"])
            assert not self._catalog.is_served_here
        return self._catalog

    def close_catalog(self) -> None:
        """Close the catalog: its server process has ended."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


@pytest.fixture(scope="module")
def free_port() -> Iterator[Callable[[], int]]:
    """Choose ports that the kernel assigns to no other; servers that reuse addresses can bind."""
    with contextlib.ExitStack() as kept:

        def choose() -> int:
            keeper = kept.enter_context(socket.socket())
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.bind(("127.0.0.1", 0))
            return keeper.getsockname()[1]

        yield choose


@pytest.fixture(scope="module")
def serve(
    tmp_path_factory: pytest.TempPathFactory, empty_catalog: Path
) -> Iterator[Callable[..., Service]]:
    """Make services; they are ended after the module."""
    made: list[Service] = []

    def make(section: str, ports: dict[str, str], guide: str = GUIDE) -> Service:
        home = tmp_path_factory.mktemp("home")
        made.append(Service(section, home, ports, guide))
        shutil.copytree(empty_catalog, home / "daqiri" / "catalog")
        return made[-1]

    yield make
    for service in made:
        service.stop()
