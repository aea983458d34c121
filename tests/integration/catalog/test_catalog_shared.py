"""One catalog directory for several processes: the first one serves, the others use its server."""

import json
import os
import re
import shutil
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiled.client.utils
from bluesky import plans as bp
from catalog_servers import Holder
from tiled.client.container import Container

from daqiri_ophyd.catalog import Catalog, CatalogError, capture_files


@pytest.fixture
def directory(tmp_path, empty_catalog) -> Path:
    return shutil.copytree(empty_catalog, tmp_path / "shared")


@pytest.fixture
def holder(directory, captures) -> Iterator[Holder]:
    holder = Holder(directory, captures)
    yield holder
    holder.end()


@pytest.fixture(autouse=True)
def few_retries(monkeypatch):
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_ATTEMPTS", 1)


def test_two_processes_may_create_the_catalog_of_runs_at_once(tmp_path, monkeypatch):
    create = Container.create_container

    def created_meanwhile(node: Container, key: str, **options) -> Container:
        create(node, key, **options)  # as the other process does
        return create(node, key, **options)

    monkeypatch.setattr(Container, "create_container", created_meanwhile)
    with Catalog.open(tmp_path / "new") as catalog:
        assert len(catalog.client) == 0


@pytest.mark.parametrize("number", [None, signal.SIGKILL])
def test_a_second_process_succeeds_the_first(
    holder, directory, captures, device, run_engine, number, caplog
):
    """It runs the server when the first has ended, and other clients do not notice."""
    with Catalog.open(directory) as second, Catalog.open(directory) as third:
        assert second.uri == holder.uri
        writer = second.writer()
        run_engine.subscribe(writer)
        (uid,) = run_engine(bp.count([device], 2))
        assert capture_files(second.client[uid]) == device.written
        assert writer.backups == [] and "cannot read its captures" not in caplog.text
        assert not second.is_served_here
        holder.end(number)
        assert capture_files(second.client[uid]) == device.written[:2]
        assert second.is_served_here
        assert second.uri == holder.uri
        (another,) = run_engine(bp.count([device], 1))
        assert second.client[another]["primary"].base["soft_files"].read().tolist() == [
            device.written[2].name
        ]
        assert writer.backups == []
        assert {uid, another} <= set(third.client)
        assert not third.is_served_here
        second.close()
        assert {uid, another} <= set(third.client)
        assert third.is_served_here
        third.close()


def test_a_server_whose_port_is_taken_is_not_succeeded(holder, directory):
    with Catalog.open(directory) as second:
        port = int(re.search(r":(\d+)/", holder.uri)[1])
        holder.end()
        with socket.create_server(("127.0.0.1", port)):
            with pytest.raises(CatalogError, match=r"was open in process \d+, which has closed it"):
                list(second.client)
    with Catalog.open(directory) as again:
        assert list(again.client) == []


def test_the_key_is_kept_where_only_the_owner_reads_it(tmp_path, catalog, captures):
    kept = tmp_path / "catalog" / "server.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    key, uri = catalog.api_key, catalog.uri
    assert json.loads(kept.read_text())["api_key"] == key
    catalog.close()
    with Catalog.open(tmp_path / "catalog") as again:
        assert (again.api_key, again.uri) == (key, uri)
    port = int(re.search(r":(\d+)/", uri)[1])
    with socket.create_server(("127.0.0.1", port)), Catalog.open(tmp_path / "catalog") as moved:
        assert moved.api_key == key and moved.uri != uri
        assert list(moved.client) == []


def test_two_catalogs_of_a_process_keep_their_own_keys(catalog, directory):
    (directory / "server.json").unlink()
    with Catalog.open(directory) as other:
        assert other.api_key != catalog.api_key
        assert list(other.client) == list(catalog.client) == []
        with pytest.raises(CatalogError, match="401"):
            Catalog.connect(other.uri, catalog.api_key)


def test_an_address_that_is_damaged_is_named(tmp_path, catalog):
    catalog.close()
    (tmp_path / "catalog" / "server.json").write_text("[]")
    with pytest.raises(CatalogError, match=r"server\.json cannot be used.*Remove it"):
        Catalog.open(tmp_path / "catalog")


def test_the_address_of_an_ended_process_is_not_used(tmp_path, catalog):
    """Another process that listens there now must not get the key."""
    catalog.close()
    kept = tmp_path / "catalog" / "server.json"
    assert json.loads(kept.read_text())["process"] == os.getpid()
    with Catalog.open(tmp_path / "catalog") as again:
        assert again._server is not None


def test_its_text_names_place_and_runs(directory, captures, device, run_engine):
    with Catalog.open(directory, readable=[captures]) as catalog:
        assert repr(catalog) == f"<Catalog {directory}: 0 runs>"
        run_engine.subscribe(catalog.writer())
        run_engine(bp.count([device], 1))
        assert repr(catalog) == f"<Catalog {directory}: 1 run>"
        with Catalog.connect(catalog.uri, catalog.api_key) as connected:
            assert repr(connected) == f"<Catalog {catalog.uri}: 1 run>"
            catalog.close()
            assert repr(connected) == f"<Catalog {catalog.uri}: does not answer (ConnectError)>"
    assert repr(catalog) == f"<Catalog {directory}: closed>"
    assert repr(connected) == f"<Catalog {catalog.uri}: closed>"
