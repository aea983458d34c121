"""Engines, a RunEngine and a catalog of a module: others look at what is open in the process."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bluesky import RunEngine
from run_documents import Documents, new_run_engine

from daqiri_ophyd.catalog import Catalog

from .benches import Bench, opened
from .flights import EACH, roll
from .stored_runs import StoredRuns

NETWORKS = ["udp", "tcp", pytest.param("packet", marks=pytest.mark.root)]
TRANSPORTS = ["loopback", *NETWORKS]


@pytest.fixture(scope="module")
def shared_captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bluesky") / "captures"


@pytest.fixture(scope="module")
def benches(shared_captures: Path) -> Iterator[Callable[[str], Bench]]:
    with opened(shared_captures) as make:
        yield make


@pytest.fixture(scope="module")
def shared_catalog(shared_captures: Path, empty_catalog: Path) -> Iterator[Catalog]:
    directory = shared_captures.with_name("catalog")
    shutil.copytree(empty_catalog, directory)
    with Catalog.open(directory, readable=[shared_captures]) as catalog:
        yield catalog


@pytest.fixture(params=TRANSPORTS)
def bench(request: pytest.FixtureRequest, benches: Callable[[str], Bench]) -> Bench:
    return benches(request.param)


@pytest.fixture
def run_engine(documents: Documents, shared_catalog: Catalog) -> Iterator[RunEngine]:
    with new_run_engine() as engine:
        engine.subscribe(documents.take)
        writer = shared_catalog.writer()
        engine.subscribe(writer)
        yield engine
        assert writer.backups == []


@pytest.fixture
def runs(documents: Documents, shared_catalog: Catalog) -> StoredRuns:
    return StoredRuns(documents, shared_catalog)


@pytest.fixture(params=[0, EACH], ids=["one file", "rolled"])
def per_file(request: pytest.FixtureRequest, bench: Bench) -> int:
    """Triggers in each file; 0: all."""
    roll(bench, request.param)
    return request.param
