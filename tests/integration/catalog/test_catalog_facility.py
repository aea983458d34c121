"""A separate Tiled server, configured as in the how-to guide."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiled.client.utils
from bluesky import plans as bp
from catalog_servers import KEY, FacilityServer, snippet

from daqiri_ophyd.catalog import Catalog, CatalogError, _writer, capture_files
from daqiri_ophyd.documents import sidecar_path


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[FacilityServer]:
    directory = tmp_path_factory.mktemp("facility")
    server = FacilityServer(directory / "tiled", directory / "captures", as_documented=True)
    server.start()
    yield server
    server.stop()


def captures_of(server: FacilityServer) -> Path:
    return server.directory.parent / "captures"


@pytest.fixture
def facility(server, tmp_path) -> Iterator[Catalog]:
    with Catalog.connect(
        server.uri, KEY, readable=[captures_of(server)], backup_directory=tmp_path / "backup"
    ) as catalog:
        yield catalog


@pytest.fixture
def device(device, server):
    device.folder = captures_of(server) / os.urandom(4).hex()
    return device


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_run_on_the_server(facility, device, run_engine, fly_plan, kind):
    run_engine.subscribe(facility.writer())
    (uid,) = run_engine(bp.count([device], 3) if kind == "step" else fly_plan(device))
    run = facility.client[uid]
    (stream,) = run
    rows = run[stream].base["soft_files", "summaries"].read()
    np.testing.assert_array_equal(rows["packets"], [2, 3, 4])
    np.testing.assert_array_equal(rows["dropped"], [0, 1, 2])
    assert capture_files(run) == device.written
    assert run.validate(raise_on_error=True) is True
    names = [name for name, _ in run.documents()]
    assert names[0] == "start" and names[-1] == "stop" and "stream_datum" in names
    files = {}
    run[stream].base["soft_files"].raw_export(files)
    assert sorted(f.getvalue() for f in files.values()) == sorted(
        path.read_bytes() for made in device.written for path in (made, sidecar_path(made))
    )


def test_files_elsewhere_are_not_served(
    server, facility, tmp_path, files_elsewhere, stored_capture, status_codes, pcap
):
    captures = captures_of(server) / "confined"
    captures.mkdir(parents=True)
    (captures / "own.pcap").write_bytes(pcap([b"own" * 20]))
    uid = stored_capture(facility, tmp_path, f"file://localhost{captures}/", "own.pcap")
    assert status_codes(facility, uid) == [200, 200, 200, 200]
    for what, (uri, template) in files_elsewhere(captures).items():
        uid = stored_capture(facility, tmp_path, uri, template)
        codes = status_codes(facility, uid)
        assert set(codes) <= {400, 403} and codes[1:] == [403, 403, 403], (what, codes)


def test_packets_and_a_page_of_summaries(facility, device, run_engine):
    run_engine.subscribe(facility.writer())
    (uid,) = run_engine(bp.count([device], 2))
    packets = facility.client[uid]["primary"].base["soft_files", "packets"]
    assert packets.read(["length"])["length"].tolist() == [60, 61, 60, 61, 62]
    client, api = facility.client.context.http_client, facility.client.context.api_uri
    address = f"{api}array/full/runs/{uid}/primary/soft_files"
    page = client.get(f"{address}?format=text/html")
    assert page.status_code == 200 and "<td>soft_000001.pcap</td>" in page.text
    page = client.get(f"{address}/summaries?format=text/html")
    assert page.status_code == 200 and "<td>121</td>" in page.text


def test_databroker_by_profile(server, facility, device, run_engine, tmp_path):
    run_engine.subscribe(facility.writer())
    (uid,) = run_engine(bp.count([device], 2))
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    text = snippet("facility.yml").replace("http://tiled.facility.example:8000", server.uri)
    (profiles / "facility.yml").write_text(text)
    home = tmp_path / "home"
    home.mkdir()
    script = (
        "from databroker import Broker, catalog\n"
        f"print(list(Broker.named('facility')['{uid}'].table()['soft_packets']))\n"
        f"print(catalog['facility'].v3['{uid}'].primary.read()['soft_files'].values)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={
            **os.environ,
            "HOME": str(home),
            "TILED_PROFILES": str(profiles),
            "TILED_API_KEY": KEY,
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    printed = "[2, 3]\n['soft_000000.pcap' 'soft_000001.pcap']\n"
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert not list(home.iterdir())


def test_writer_returns_to_a_server_that_is_back(server, facility, device, run_engine, monkeypatch):
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_ATTEMPTS", 2)
    # A server of a busy machine may take its time.
    monkeypatch.setattr(_writer, "_PROBE_S", 60.0)
    writer = facility.writer()
    run_engine.subscribe(writer)
    server.stop()
    (first,) = run_engine(bp.count([device]))
    (second,) = run_engine(bp.count([device]))
    assert len(writer.backups) == 2
    server.start()
    (third,) = run_engine(bp.count([device]))
    assert len(writer.backups) == 2
    assert [facility.ingest_backup(path) for path in writer.backups] == [first, second]
    for uid, path in zip((first, second, third), device.written, strict=True):
        assert capture_files(facility.client[uid]) == [path]


def test_catalog_for_a_beamline(server):
    from tiled.client import from_uri

    root = from_uri(server.uri, api_key=KEY)
    beamline = root.create_container("beamline")
    with Catalog.connect(beamline.uri, KEY) as made, Catalog.connect(beamline.uri, KEY) as found:
        assert made.uri == found.uri == f"{server.uri}/api/v1/metadata/beamline/runs"
    with Catalog.connect(made.uri, KEY) as direct:
        assert direct.uri == made.uri
    root.context.close()


USERS = """
authentication:
  secret_keys: ["{key}"]
  providers:
    - provider: toy
      authenticator: tiled.authenticators:DictionaryAuthenticator
      args: {{users_to_passwords: {{alice: secret}}}}
database: {{uri: "sqlite:///{directory}/users.db", init_if_not_exists: true}}
"""


def test_a_server_with_users_needs_a_key(tmp_path, captures, monkeypatch):
    monkeypatch.setenv("TILED_CACHE_DIR", str(tmp_path / "tokens"))
    server = FacilityServer(tmp_path / "tiled", captures)
    with (server.directory / "tiled.yml").open("a") as file:
        file.write(USERS.format(key=KEY, directory=server.directory))
    server.start()
    try:
        with pytest.raises(CatalogError, match=r"for users who have logged in.*TILED_API_KEY"):
            Catalog.connect(server.uri)
    finally:
        server.stop()
