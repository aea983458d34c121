"""Shared by tests of several parts."""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bluesky import RunEngine
from networks import cable, card, has_af_xdp, networks  # noqa: F401 - fixtures
from quick_catalogs import collect_cycles_seldom, keep_what_catalogs_share
from run_documents import Documents, new_run_engine

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq, make_daq
from daqiri_ophyd.engine import capabilities

keep_what_catalogs_share()
collect_cycles_seldom()


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog directory as the first opening leaves it."""
    directory = tmp_path_factory.mktemp("empty") / "catalog"
    Catalog.open(directory).close()
    return directory


@pytest.fixture
def made_catalog(tmp_path: Path, empty_catalog: Path) -> None:
    """The catalogs of the commands."""
    for folder in ("daqiri-demo", "daqiri-data"):
        shutil.copytree(empty_catalog, tmp_path / folder / "catalog")


@pytest.fixture(scope="session")
def has_dpdk() -> None:
    """Skip the test if this build has no engine ``dpdk``."""
    if (state := capabilities()["dpdk"]) != "available":
        pytest.skip(f"{state} (built where libdpdk is found: libdpdk-dev)")


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
def camera_port() -> Iterator[None]:
    """The UDP port of the camera that guides describe."""
    with locked_port(6000):
        yield


@pytest.fixture
def documents() -> Documents:
    return Documents()


@pytest.fixture
def run_engine(documents: Documents) -> Iterator[RunEngine]:
    with new_run_engine() as engine:
        engine.subscribe(documents.take)
        yield engine


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
def long_names() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Give the port, queues and plans of a configuration names of 20 characters."""

    def rename(config: dict[str, Any]) -> dict[str, Any]:
        (port,) = config["interfaces"]
        rx, tx = port["rx"], port["tx"]
        for named in (port, *rx["queues"], *tx["queues"], *rx.get("reorder_configs", [])):
            named["name"] = f"{named['name']}_detector_modules"[:16] + "_001"
        return config

    return rename


@pytest.fixture
def catalog(
    tmp_path: Path, captures: Path, run_engine: RunEngine, empty_catalog: Path
) -> Iterator[Catalog]:
    """A catalog in which the runs of `run_engine` are stored."""
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        run_engine.subscribe(catalog.writer())
        yield catalog
