"""Shared by tests of several parts."""

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bluesky import RunEngine
from quick_catalogs import collect_cycles_seldom, keep_what_catalogs_share
from run_documents import Documents

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq, make_daq

keep_what_catalogs_share()
collect_cycles_seldom()


class Network:
    """A network namespace, in which a thread runs what it is given; its threads and sockets too."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)
        self.thread_id = self.call(threading.get_native_id)
        self.run("ip link set lo up")

    @staticmethod
    def _enter() -> None:
        clone_newnet = 0x40000000
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(clone_newnet) != 0:
            raise OSError(ctypes.get_errno(), "a network namespace cannot be made")

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._thread.submit(function, *arguments).result(50)

    def run(self, command: str) -> None:
        self.call(partial(subprocess.run, command.split(), check=True))

    def close(self) -> None:
        self._thread.shutdown()


@pytest.fixture
def networks() -> Iterator[Callable[[], Network]]:
    """Make network namespaces that last as long as the test."""
    with contextlib.ExitStack() as made:

        def make() -> Network:
            network = Network()
            made.callback(network.close)
            return network

        yield make


@pytest.fixture
def cable(networks: Callable[[], Network]) -> Network:
    """A namespace with a veth pair, ``near`` and ``far``, that only tests send on."""
    network = networks()
    network.run("ip link add near mtu 9000 type veth peer name far mtu 9000")
    for end in ("near", "far"):
        network.call(Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text, "1")
        network.run(f"ip link set {end} up")
    return network


@pytest.fixture(scope="session")
def has_af_xdp() -> None:
    """Skip where the kernel has no AF_XDP with frames in several pieces."""
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 6):
        pytest.skip(f"needs Linux 6.6, and this is {os.uname().release}")
    try:
        socket.socket(44, socket.SOCK_RAW).close()
    except OSError as error:
        pytest.skip(f"needs AF_XDP: {error}")


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog directory as the first opening leaves it; making its tables takes seconds."""
    directory = tmp_path_factory.mktemp("empty") / "catalog"
    Catalog.open(directory).close()
    return directory


@pytest.fixture
def made_catalog(tmp_path: Path, empty_catalog: Path) -> None:
    """The catalogs of the commands, which take seconds to create."""
    for folder in ("daqiri-demo", "daqiri-data"):
        shutil.copytree(empty_catalog, tmp_path / folder / "catalog")


@contextlib.contextmanager
def locked_port(port: int) -> Iterator[None]:
    """Keep a port for one test of this machine at a time."""
    with (Path(tempfile.gettempdir()) / f"daqiri-tests-{port}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def jungfrau_port() -> Iterator[None]:
    """The UDP port of the profile `jungfrau`."""
    with locked_port(50001):
        yield


@pytest.fixture
def udp_profile_port() -> Iterator[None]:
    """The UDP port of the profile `udp`."""
    with locked_port(47100):
        yield


@pytest.fixture
def tcp_profile_port() -> Iterator[None]:
    """The TCP port of the profile `tcp`."""
    with locked_port(47200):
        yield


@pytest.fixture
def documents() -> Documents:
    return Documents()


@pytest.fixture
def run_engine(documents: Documents) -> RunEngine:
    engine = RunEngine({}, context_managers=[])
    engine.subscribe(documents.take)
    return engine


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    return tmp_path / "captures"


@pytest.fixture
def make(captures: Path, build: Callable[..., dict[str, Any]]) -> Iterator[Callable[..., Daq]]:
    """Make devices of the configurations that a folder's `build` returns; closed at the end."""
    made: list[Daq] = []

    def make_one(**changes: Any) -> Daq:
        made.append(make_daq(build(**changes), "daq", directory=captures))
        return made[-1]

    yield make_one
    for daq in made:
        daq.close()


@pytest.fixture
def daq(make: Callable[..., Daq]) -> Daq:
    return make()


@pytest.fixture
def catalog(
    tmp_path: Path, captures: Path, run_engine: RunEngine, empty_catalog: Path
) -> Iterator[Catalog]:
    """A catalog in which the runs of `run_engine` are stored."""
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        run_engine.subscribe(catalog.writer())
        yield catalog
