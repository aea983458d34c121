"""Tiled servers in separate processes, for tests that end them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from free_ports import free_port
from preloaded_processes import Preloaded

from daqiri_ophyd.catalog._database import create_database

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "facility-catalog.md"
KEY = "0123456789abcdef"


def snippet(name: str) -> str:
    """A YAML block of the how-to, by the comment in its first line."""
    return re.search(rf"```yaml\n# {re.escape(name)}\n(.*?)```", HOW_TO.read_text(), re.S)[1]


class FacilityServer:
    """`tiled serve config` on a free port of the loopback interface.

    Its database is created here, and it starts with Tiled imported; `as_documented`, neither.
    """

    def __init__(self, directory: Path, captures: Path, *, as_documented: bool = False) -> None:
        (directory / "data").mkdir(parents=True, exist_ok=True)
        text = snippet("tiled.yml").replace("/srv/tiled", str(directory))
        if not as_documented:
            create = "init_if_not_exists: true"
            assert create in text
            text = text.replace(create, "init_if_not_exists: false")
            if not (directory / "catalog.db").exists():
                create_database(directory / "catalog.db")
        (directory / "tiled.yml").write_text(text.replace("/data/captures", str(captures)))
        self.as_documented = as_documented
        self.directory = directory
        self.port = free_port("tcp")
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = ["-m", "tiled", "serve", "config", "tiled.yml"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        environment = {**os.environ, "TILED_SINGLE_USER_API_KEY": KEY}
        with (self.directory / "log").open("ab") as log:
            self.process = (
                subprocess.Popen(
                    [sys.executable, *command],
                    cwd=self.directory,
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
                if self.as_documented
                else Preloaded(
                    *command,
                    cwd=self.directory,
                    env=environment,
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                )
            )
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.uri}/healthz", trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        self.stop()
        pytest.fail((self.directory / "log").read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


HOLDER = """
import sys
from daqiri_ophyd.catalog import Catalog

with Catalog.open(sys.argv[1], readable=[sys.argv[2]]) as catalog:
    print(catalog.uri, flush=True)
    sys.stdin.read()
"""


class Holder:
    """Another process that has the catalog open until its input ends."""

    def __init__(self, directory: Path, captures: Path) -> None:
        self.process = Preloaded("-c", HOLDER, directory, captures)
        self.uri = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int | None = None) -> None:
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate(timeout=60)
