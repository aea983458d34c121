"""Catalogs and captures in a folder that was copied, moved, or opened with another path."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tiled.client.utils
from bluesky import plans as bp
from fastapi.testclient import TestClient
from run_documents import new_run_engine
from tiled.client import from_context
from tiled.client.utils import ClientError
from tiled.config import Authentication
from tiled.server.app import build_app

from daqiri_ophyd.catalog import (
    Catalog,
    UnreadableFileError,
    capture_files,
    confined_tree,
    frames_dataset,
    recover_runs,
)
from daqiri_ophyd.cli import _main
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import PcapFile

from .conftest import SHAPE, Recorded, Source, configuration, images

KEY = "daq_port0_frames_images"
FILES = "daq_port0_capture_files"


@pytest.fixture(autouse=True)
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled.client.utils, "TILED_RETRY_ATTEMPTS", 1)


def check_files(catalog: Catalog, recorded: Recorded, captures: Path) -> None:
    """Read something of each run; its files are below a folder."""
    for uid in (recorded.packets, recorded.scan, recorded.flight):
        files = capture_files(catalog.client[uid])
        assert all(file.is_relative_to(captures) and file.is_file() for file in files)
    packets, scan = catalog.client[recorded.packets], catalog.client[recorded.scan]
    assert len(packets["primary"].base[FILES, "packets"].read())
    assert len(packets["primary"].read()["time"]) == 1
    batches = scan["primary"].base[f"{KEY}_batch"].read()
    np.testing.assert_array_equal(scan["primary"].base[KEY][1], images(batches)[1])


def check_all_readers(catalog: Catalog, recorded: Recorded, captures: Path) -> None:
    """Read each run with all readers; their files are below a folder."""
    runs = [catalog.client[uid] for uid in (recorded.packets, recorded.scan, recorded.flight)]
    for run in runs:
        files = capture_files(run)
        assert all(file.is_relative_to(captures) and file.is_file() for file in files)
        uris = [doc["uri"] for name, doc in run.documents() if name == "stream_resource"]
        assert all(uri.startswith(f"file://localhost{captures}/") for uri in uris), uris
    packets, scan, flight = runs
    (pcap,) = capture_files(packets)
    stream = packets["primary"].base
    assert stream[FILES].read().tolist() == [pcap.name]
    assert len(stream[FILES, "packets"].read()) == stream[FILES, "summaries"].read()["packets"][0]
    with PcapFile(pcap) as file:
        assert len(file) == len(stream[FILES, "packets"].read())
    assert len(packets["primary"].read()["time"]) == 1
    assert len(catalog.databroker()[recorded.packets].table()) == 1
    for run, frames in ((scan, 3), (flight, 5)):
        data = frames_dataset(run)
        assert data["frames"].shape[0] == frames
        np.testing.assert_array_equal(data["frames"], images(data["batch"]))
        base = run["primary"].base[KEY]
        np.testing.assert_array_equal(np.squeeze(base[1]), images(data["batch"])[1])
        np.testing.assert_array_equal(
            np.ravel(run["primary"].read()[KEY]), data["frames"].to_numpy().ravel()
        )
    assert len(catalog.databroker()[recorded.flight].table()) == 5
    assert from_context(catalog.client.context)["own"].read().tolist() == [1, 2, 3]


def test_a_copy_reads_its_own_files_while_the_original_exists(
    recorded: Recorded, tmp_path: Path
) -> None:
    copy = recorded.copy(tmp_path / "copy")
    with (
        Catalog.open(recorded.catalog, readable=[recorded.captures]) as original,
        Catalog.open(copy.catalog, readable=[copy.captures]) as catalog,
    ):
        assert original.api_key != catalog.api_key
        check_files(original, recorded, recorded.captures)
        check_all_readers(catalog, copy, copy.captures)
        (changed,) = capture_files(catalog.client[copy.scan])
        with h5py.File(changed, "r+") as file:
            file["entry/data/data"][0] = 7
        assert (frames_dataset(catalog.client[copy.scan])["frames"][0] == 7).all()
        (lost,) = capture_files(catalog.client[copy.packets])
        lost.unlink()
        with pytest.raises(
            FileNotFoundError,
            match=f"the first is {lost}. The file does not exist; its folder does",
        ):
            capture_files(catalog.client[copy.packets])
        with pytest.raises(ClientError, match=f"{lost} cannot be read. The file does not exist"):
            catalog.client[copy.packets]["primary"].base[FILES, "summaries"].read()
    # A folder with both is readable.
    with Catalog.open(copy.catalog, readable=["/"]) as catalog:
        assert (frames_dataset(catalog.client[copy.scan])["frames"][0] == 7).all()


def test_a_folder_may_be_moved_again_and_again_and_grow(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = recorded.copy(tmp_path / "first")
    for name in ("second", "second/below"):
        folder = tmp_path / name
        if folder.is_relative_to(moved.folder):  # into itself
            moved.folder.rename(tmp_path / "aside")
            folder.parent.mkdir()
            (tmp_path / "aside").rename(folder)
        else:
            moved.folder.rename(folder)
        moved = Recorded(folder, moved.packets, moved.scan, moved.flight)
        monkeypatch.chdir(folder)
        with Catalog.open("catalog", readable=["captures"]) as catalog:
            check_files(catalog, moved, moved.captures)
    # Data of the new place, and of the old ones.
    with Catalog.open("catalog", readable=["captures"]) as catalog, new_run_engine() as engine:
        engine.subscribe(catalog.writer())
        daq = make_daq(configuration(), "daq", directory=moved.captures)
        with daq.open():
            source = Source(daq)
            source.start()
            (scan,) = engine(bp.count([daq.port0.frames.images], 3))
            source.stop()
        check_all_readers(
            catalog, Recorded(moved.folder, moved.packets, scan, moved.flight), moved.captures
        )
        # The database of the copy has changed, not that of the original.
        catalog.client.delete_contents(moved.scan, recursive=True, external_only=False)
    with Catalog.open(recorded.catalog, readable=[recorded.captures]) as catalog:
        check_files(catalog, recorded, recorded.captures)


def test_another_process_and_a_client_read_a_copy(recorded: Recorded, tmp_path: Path) -> None:
    copy = recorded.copy(tmp_path / "copy")
    with Catalog.open(copy.catalog, readable=[copy.captures]) as catalog:
        with Catalog.open(copy.catalog) as second:
            assert not second.is_served_here
            check_files(second, copy, copy.captures)
        with Catalog.connect(catalog.uri, catalog.api_key, readable=[copy.captures]) as connected:
            check_files(connected, copy, copy.captures)


def test_what_is_not_known_is_named(recorded: Recorded, tmp_path: Path) -> None:
    """The captures alone are elsewhere."""
    copy = recorded.copy(tmp_path / "copy")
    (tmp_path / "disk").mkdir()
    elsewhere = copy.captures.rename(tmp_path / "disk" / "runs")
    names = {recorded.captures: elsewhere}
    with Catalog.open(copy.catalog, [elsewhere], moved=names) as catalog:
        check_all_readers(catalog, copy, elsewhere)
    # It is not remembered.
    with Catalog.open(copy.catalog, [elsewhere]) as catalog:
        with pytest.raises(UnreadableFileError, match="The file exists; to read it: readable="):
            capture_files(catalog.client[copy.packets])
    with Catalog.open(copy.catalog, moved=names) as catalog:
        with pytest.raises(UnreadableFileError, match=r"Catalog\.open or .* readable="):
            capture_files(catalog.client[copy.packets])
        with pytest.raises(ClientError, match=f"{elsewhere}.* is not below a readable"):
            catalog.client[copy.flight]["primary"].base[KEY].read()


def test_a_client_names_its_own_paths(recorded: Recorded, tmp_path: Path) -> None:
    copy = recorded.copy(tmp_path / "copy")
    with (
        Catalog.open(recorded.catalog, readable=[recorded.captures]) as catalog,
        Catalog.connect(
            catalog.uri,
            catalog.api_key,
            readable=[copy.captures],
            moved={recorded.captures: copy.captures},
        ) as connected,
    ):
        (file,) = capture_files(connected.client[recorded.packets])
        assert file.is_relative_to(copy.captures)


def test_a_server_reads_the_new_place_and_does_not_say_what_exists(
    recorded: Recorded, tmp_path: Path
) -> None:
    copy = recorded.copy(tmp_path / "copy")
    options: dict[str, Any] = {
        "writable_storage": [f"duckdb:///{recorded.catalog / 'storage.duckdb'}"],
        "moved": {str(recorded.captures): str(copy.captures)},
    }
    for readable in (copy.captures, copy.catalog):
        tree = confined_tree(
            str(copy.catalog / "catalog.db"), readable_storage=[str(readable)], **options
        )
        key = "key"
        app = build_app(tree, authentication=Authentication(single_user_api_key=key))
        with TestClient(app, headers={"Authorization": f"Apikey {key}"}) as client:
            answer = client.get(
                f"/api/v1/array/full/runs/{copy.flight}/primary/{KEY}?format=application/json"
            )
            if readable == copy.captures:
                assert np.shape(answer.json()) == (5, *SHAPE)
            else:
                assert answer.status_code == 403
                assert answer.json()["detail"].endswith(f"Readable: {readable}.")


def test_catalogs_of_earlier_versions(recorded: Recorded, tmp_path: Path) -> None:
    """They remember less: where the database was, and the readable folders of the last server."""
    copy = recorded.copy(tmp_path / "copy")
    (copy.catalog / "folders.json").unlink()
    again = copy.copy(tmp_path / "again")
    with Catalog.open(copy.catalog, readable=[copy.captures]) as catalog:
        check_files(catalog, copy, copy.captures)
    address = json.loads((again.catalog / "server.json").read_text())
    (again.catalog / "server.json").write_text(json.dumps({**address, "readable": []}))
    with Catalog.open(
        again.catalog, [again.captures], moved={recorded.folder: again.folder}
    ) as catalog:
        check_files(catalog, again, again.captures)


def test_links_of_a_copy_lead_to_no_other_files(recorded: Recorded, tmp_path: Path) -> None:
    copy = recorded.copy(tmp_path / "copy")
    shutil.rmtree(copy.captures)
    copy.captures.symlink_to(recorded.captures)
    with Catalog.open(copy.catalog, readable=[copy.folder]) as catalog:
        for uid in (copy.packets, copy.flight):
            with pytest.raises(UnreadableFileError, match="is not below a readable directory"):
                capture_files(catalog.client[uid])
        with pytest.raises(ClientError, match="is not below a readable directory"):
            catalog.client[copy.flight]["primary"].base[KEY].read()


def test_the_message_asks_whether_the_folder_was_moved(recorded: Recorded, tmp_path: Path) -> None:
    moved = recorded.copy(tmp_path / "one" / "two")
    with Catalog.open(moved.catalog, readable=[moved.captures]) as catalog:
        catalog.flush()
    gone = tmp_path / "gone"
    with closing(sqlite3.connect(moved.catalog / "catalog.db")) as database, database:
        database.execute(
            "UPDATE assets SET data_uri = replace(data_uri, ?, ?)",
            (str(recorded.captures), str(gone)),
        )
    expected = (
        f"nor does {gone}: was the folder moved. Name its new place, NEW: "
        rf"Catalog.open\(..., readable=\['NEW'\], moved={{'{gone}': 'NEW'}}\)"
    )
    with Catalog.open(moved.catalog, readable=[moved.captures]) as catalog:
        with pytest.raises(UnreadableFileError, match=expected):
            capture_files(catalog.client[moved.packets])
        with pytest.raises(ClientError, match=expected):
            catalog.client[moved.flight]["primary"].base[KEY].read()


def test_an_unfinished_run_is_recovered_in_a_copy(recorded: Recorded, tmp_path: Path) -> None:
    copy = recorded.copy(tmp_path / "copy")
    with Catalog.open(recorded.catalog, readable=[recorded.captures]) as catalog:
        documents = list(catalog.client[recorded.flight].documents())
    backup = copy.catalog / "backup"
    backup.mkdir(exist_ok=True)
    lines = [json.dumps({"name": n, "doc": d}) for n, d in documents if n != "stop"]
    (backup / f"{copy.flight}.unfinished.jsonl").write_text("\n".join(lines) + "\n")
    with Catalog.open(copy.catalog, readable=[copy.captures]) as catalog:
        catalog.client.delete_contents(copy.flight, recursive=True, external_only=False)
        (found,) = recover_runs(catalog, lambda _: [])
        assert (found.uid, found.problem) == (copy.flight, "")
        assert catalog.client[copy.flight].metadata["stop"]["exit_status"] == "abort"
        check_files(catalog, copy, copy.captures)


def test_replay_from_a_copy(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = recorded.copy(tmp_path / "copy")
    assert _main._run(["replay", copy.packets, "--data", str(copy.folder), "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)["sent"]
    elsewhere = copy.captures.rename(tmp_path / "elsewhere")
    options = ["--data", str(copy.folder), "--json"]
    assert _main._run(["replay", copy.packets, *options]) == 1
    said = capsys.readouterr().err
    assert f"nor does {copy.captures}: was the folder moved?" in said
    assert f"Name its new place, NEW: --moved {copy.captures}=NEW." in said
    for old in (recorded.captures, copy.captures):
        named = ["--moved", f"{old}={elsewhere}"]
        assert _main._run(["replay", copy.packets, *options, *named]) == 0
        assert json.loads(capsys.readouterr().out)["sent"] == sent
    assert _main._run(["replay", copy.packets, "--moved", "captures=elsewhere"]) == 2
    assert "found 'captures=elsewhere'; accepts OLD=NEW" in capsys.readouterr().err


def test_a_folder_that_is_not_readable_is_named(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--catalog", str(recorded.catalog), "--data", str(tmp_path), "--json"]
    assert _main._run(["replay", recorded.packets, *options]) == 1
    folder = next(recorded.captures.rglob("*.pcap")).parent
    said = capsys.readouterr().err
    assert f"The file exists; to read it: --readable {folder}." in said
    assert _main._run(["replay", recorded.packets, *options, "--readable", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 40
