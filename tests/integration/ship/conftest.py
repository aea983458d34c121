"""Object stores on loopback, and recorded files to upload."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from numbered_camera import loopback
from object_servers import FaultServer, ObjectServer, fault_server, moto_server

from daqiri_ophyd.devices import Daq, make_daq
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.ship import Shipper, shippers
from daqiri_ophyd.ship._object import _bucket


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """A server for all tests: each uses its own prefix."""
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as server:
        yield server


@pytest.fixture
def shipper(server: FaultServer) -> Iterator[Shipper]:
    with Shipper("s3://bucket", **server.options) as shipper:
        yield shipper


@pytest.fixture
def used(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[FaultServer]:
    """The server that devices and readers of this process find."""
    server.use(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _bucket.cache_clear()
    yield server
    for each in shippers():
        each.close()
    _bucket.cache_clear()


@pytest.fixture
def make(tmp_path: Path, used: FaultServer) -> Iterator[Callable[..., Daq]]:
    """Make devices of a numbered camera that upload to the server; closed at the end."""
    made: list[Daq] = []

    def make_one(ship_to: str = "s3://bucket/beam", **plan: object) -> Daq:
        config = loopback(buffers=256, **plan) | {"log_level": "off", "ship_to": ship_to}
        made.append(make_daq(config, directory=tmp_path / "captures"))
        return made[-1]

    yield make_one
    for daq in made:
        daq.close()


@pytest.fixture
def daq(make: Callable[..., Daq]) -> Daq:
    return make()


def wait_shipped(shipper: Shipper) -> None:
    """Wait until all files are in the store."""
    assert shipper.wait(200), shipper.state


def record(folder: Path, count: int, size: int = 1000, prefix: str = "port0") -> dict[str, bytes]:
    """Write files like a recorder; return their contents by name."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for number in range(count):
        file = folder / f"{prefix}_{number:06d}.pcap"
        made[file.name] = os.urandom(size)
        file.write_bytes(made[file.name])
        facts = {"packets": 1, "bytes": size, "t_first_ns": 1, "t_last_ns": 2, "dropped": 0}
        sidecar_path(file).write_text(json.dumps(facts))
    return made
