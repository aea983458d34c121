"""`runs`, `runs show` and `runs export`: of captures, of frames in a scan, and in a fly scan."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import h5py
import httpx
import numpy as np
import pandas as pd
import pytest

from daqiri_ophyd.catalog import (
    Catalog,
    CatalogError,
    _catalog,
    _export,
    capture_files,
    export_run,
    frames_dataset,
)
from daqiri_ophyd.catalog._address import LOCK
from daqiri_ophyd.catalog._nexus import write_nexus
from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import PcapFile

from .conftest import Recorded, images
from .test_moved_folders import KEY

Captured = pytest.CaptureFixture[str]


def run(*arguments: str | Path) -> int:
    return _main._run([str(each) for each in arguments])


@pytest.fixture
def shown(recorded: Recorded, capsys: Captured) -> Any:
    """Run a command of `runs` with the folder; its JSON."""

    def of(*arguments: str | Path) -> Any:
        code = run("runs", *arguments, "--data", recorded.folder, "--json")
        said = capsys.readouterr()
        assert (code, said.err) == (0, "")
        return json.loads(said.out)

    return of


def test_the_latest_runs_are_listed(shown: Any, recorded: Recorded) -> None:
    found = shown()
    assert found["total"] == 3
    assert [each["run"] for each in found["runs"]] == [
        recorded.scan,
        recorded.packets,
        recorded.flight,
    ]
    assert [each["plan"] for each in found["runs"]] == ["count", "capture", "stage_wrapper"]
    assert {each["status"] for each in found["runs"]} == {"success"}
    assert [each["run"] for each in shown("-n", "1")["runs"]] == [recorded.flight]


def test_a_list_for_people(recorded: Recorded, capsys: Captured) -> None:
    assert run("runs", "--data", recorded.folder, "-n", "2") == 0
    said = capsys.readouterr()
    head, *lines = said.out.splitlines()
    assert head.split() == "scan id started plan seconds status detectors run".split()
    assert [line.split()[-1] for line in lines] == [recorded.packets[:8], recorded.flight[:8]]
    assert said.err == "1 earlier runs; --count lists more\n"


def test_a_run_of_packets(shown: Any, recorded: Recorded) -> None:
    found = shown("show", recorded.packets)
    assert found["plan"] == "capture"
    assert found["streams"]["primary"]["columns"]["daq_port0_capture_t_first_ns"] == "ns"
    (file,) = found["files"]
    assert (file["packets"], file["dropped"]) == (40, 0)
    assert file["bytes"] == Path(file["path"]).stat().st_size
    assert found["start"]["uid"] == recorded.packets


def test_a_run_of_frames(shown: Any, recorded: Recorded) -> None:
    found = shown("show", recorded.scan[:8])
    assert found["streams"]["primary"]["rows"] == 3
    (file,) = found["files"]
    assert (file["frames"], file["key"]) == (3, KEY)


def test_a_run_for_people(recorded: Recorded, capsys: Captured) -> None:
    assert run("runs", "show", recorded.scan, "--data", recorded.folder) == 0
    text = capsys.readouterr().out
    assert f"run        {recorded.scan}\n" in text
    assert "stream primary, 3 rows" in text
    assert "images_000000.h5" in text


def test_files_that_are_missing_are_named(
    tmp_path: Path,
    recorded: Recorded,
    capsys: Captured,
) -> None:
    copy = recorded.copy(tmp_path / "copy")
    for path in copy.captures.rglob("*.h5"):
        path.unlink()
    assert run("runs", "show", copy.scan, "--data", copy.folder) == 0
    assert "1 of 1 files are missing" in capsys.readouterr().err
    assert run("runs", "export", copy.scan, tmp_path / "new", "--data", copy.folder) == 1
    assert "1 of 1 files are missing, the first is" in capsys.readouterr().err
    assert not list(tmp_path.glob("*new*"))


def test_packets_are_exported(shown: Any, recorded: Recorded, tmp_path: Path) -> None:
    target = tmp_path / "new"
    found = shown("export", recorded.packets, target)
    (pcap,) = (Path(name) for name in found["files"] if name.endswith(".pcap"))
    (source,) = recorded.captures.rglob("*.pcap")
    assert pcap.relative_to(target / "captures") == source.relative_to(recorded.captures)
    assert pcap.read_bytes() == source.read_bytes()
    assert pcap.with_name(f"{pcap.name}.json").is_file()
    table = pd.read_csv(target / "primary.csv", index_col="seq_num")
    assert table["daq_port0_capture_packets"].tolist() == [40]
    with h5py.File(target / "run.nxs") as file:
        assert file["entry/entry_identifier"].asstr()[()] == recorded.packets
        assert file["entry/primary/daq_port0_capture_packets"][()].tolist() == [40]
        assert file["entry/primary/daq_port0_capture_packets"].attrs["units"] == "packets"


@pytest.mark.parametrize("name", ["scan", "flight"])
def test_frames_are_exported(
    shown: Any,
    recorded: Recorded,
    tmp_path: Path,
    name: str,
) -> None:
    uid = getattr(recorded, name)
    shown("export", uid, tmp_path / "first")
    # It goes on working elsewhere.
    target = (tmp_path / "first").rename(tmp_path / "second")
    with Catalog.open(recorded.catalog, readable=[recorded.captures]) as catalog:
        dataset = frames_dataset(catalog.client[uid]).load()
    table = pd.read_csv(target / "primary.csv", index_col="seq_num")
    with h5py.File(target / "run.nxs") as file:
        entry = file[file.attrs["default"]]
        frames, rows = entry[KEY], entry[entry.attrs["default"]]
        np.testing.assert_array_equal(frames["data"][()], images(dataset["batch"].values))
        np.testing.assert_array_equal(frames["batch"][()], dataset["batch"])
        assert rows.attrs["signal"] == f"{KEY}_total"
        total = rows[f"{KEY}_total"][()]
        assert rows.attrs["axes"].tolist() == ["elapsed"]
        assert np.all(rows["elapsed"][()] > 0)
        assert json.loads(entry["bluesky/start"].asstr()[()])["uid"] == uid
    np.testing.assert_allclose(table[f"{KEY}_total"], total)
    assert len(total) == len(dataset["frame"])


def test_documents_of_an_export_can_be_stored_elsewhere(
    shown: Any,
    recorded: Recorded,
    tmp_path: Path,
    empty_catalog: Path,
) -> None:
    """After its folder was moved, too."""
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    target = tmp_path / "moved"
    with Catalog.open(tmp_path / "catalog", readable=[target]) as catalog:
        for uid in (recorded.packets, recorded.scan, recorded.flight):
            shutil.rmtree(target, ignore_errors=True)
            shown("export", uid, tmp_path / "new")
            (tmp_path / "new").rename(target)
            assert catalog.ingest_backup(target / "documents.jsonl") == uid
            (path,) = capture_files(catalog.client[uid])
            assert path.is_relative_to(target)
            if uid == recorded.packets:
                with PcapFile(path) as pcap:
                    assert len(pcap) == 40
            else:
                dataset = frames_dataset(catalog.client[uid]).load()
                np.testing.assert_array_equal(dataset["frames"], images(dataset["batch"].values))


def test_links_within_a_readable_folder_are_followed(
    recorded: Recorded,
    tmp_path: Path,
    empty_catalog: Path,
) -> None:
    copy = recorded.copy(tmp_path / "copy")
    (year,) = copy.captures.iterdir()
    year.rename(copy.captures / "real")
    year.symlink_to("real")
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(copy.catalog, readable=[copy.captures]) as catalog:
        export_run(catalog.client[copy.packets], tmp_path / "new", readable=iter([copy.captures]))
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "new"]) as catalog:
        catalog.ingest_backup(tmp_path / "new" / "documents.jsonl")
        (path,) = capture_files(catalog.client[copy.packets])
    assert path.is_file()


def test_what_belongs_to_a_file_is_confined(
    recorded: Recorded,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    copy = recorded.copy(tmp_path / "copy")
    (tmp_path / "secret").write_text("secret")
    (sidecar,) = copy.captures.rglob("*.pcap.json")
    sidecar.unlink()
    sidecar.symlink_to(tmp_path / "secret")
    assert run("runs", "export", copy.packets, tmp_path / "new", "--data", copy.folder) == 1
    assert "is not below a readable directory" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_export_fills_an_empty_directory(
    shown: Any,
    recorded: Recorded,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / ".here.part").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shown("export", recorded.scan, ".")
    assert sorted(path.name for path in Path().iterdir()) == [
        "captures",
        "documents.jsonl",
        "primary.csv",
        "run.nxs",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".here.part", "here"]


def test_names_in_a_nexus_file_are_different(
    recorded: Recorded,
    tmp_path: Path,
) -> None:
    """A stream may have the name of a group, and a detector be in two streams."""
    table = pd.DataFrame({"time": [1.0], "elapsed": [2.0]}, index=pd.Index([1], name="seq_num"))
    with Catalog.open(recorded.catalog, readable=[recorded.captures]) as catalog:
        stored = catalog.client[recorded.scan]
        paths = capture_files(stored)
        stream = stored.base["primary"]

        class Renamed:
            metadata = stored.metadata
            base: ClassVar = {"title": stream, "a/b": stream}

        files = {("title", KEY): paths, ("a/b", KEY): paths}
        write_nexus(tmp_path / "run.nxs", Renamed, {"title": table, "a/b": table}, files)
    with h5py.File(tmp_path / "run.nxs") as file:
        entry = file["entry"]
        assert entry["title_/elapsed"][()].tolist() == [2.0]
        assert entry["a_b/elapsed"][()].tolist() == [2.0]
        assert len(entry[KEY]["data"]) == len(entry[f"{KEY}_a_b"]["data"]) == 3


def test_an_export_leaves_other_files_alone(
    recorded: Recorded,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run("runs", "export", recorded.scan, tmp_path, "--data", recorded.folder) == 1
    assert "exists and is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_nothing_is_left_of_an_export_that_fails(
    recorded: Recorded,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_export, "write_nexus", full)
    assert run("runs", "export", recorded.scan, tmp_path / "new", "--data", recorded.folder) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs",),
        ("runs", "show", "-1"),
        ("runs", "export", "-1", "new"),
        ("replay", "-1"),
        ("catalog", "recover"),
    ],
)
def test_commands_that_read_create_no_catalog(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments, "--data", "typo") == 1
    assert capsys.readouterr().err == f"error: There is no catalog in {tmp_path}/typo/catalog.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("show", "-x"), ("show",), ("export", "-1"), ("-n", "0")])
def test_bad_usage(capsys: Captured, arguments: tuple[str, ...]) -> None:
    assert run("runs", *arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.fixture
def browsing(recorded: Recorded) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "daqiri_ophyd", "catalog", "browse", "--no-open"]
    with subprocess.Popen(
        [*command, "--data", recorded.folder], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_runs_are_listed_on_a_web_page(
    browsing: subprocess.Popen[str],
    recorded: Recorded,
    capsys: Captured,
) -> None:
    assert browsing.stdout is not None
    page = browsing.stdout.readline().strip()
    key = httpx.URL(page).params["api_key"]
    answer = httpx.get(page)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Runs</title>" in answer.text
    assert key not in answer.text
    # As the page does.
    found = httpx.get(
        httpx.URL(page).join("search/runs"),
        params={
            "page[offset]": 0,
            "page[limit]": 2,
            "sort": "-start.time",
            "fields": "metadata",
            "api_key": key,
        },
    ).json()
    assert [each["id"] for each in found["data"]] == [recorded.flight, recorded.packets]
    assert found["meta"]["count"] == 3
    assert found["data"][0]["attributes"]["metadata"]["stop"]["exit_status"] == "success"
    # The address of a server that another process runs.
    assert run("catalog", "browse", "--no-open", "--data", recorded.folder) == 0
    assert capsys.readouterr().out.strip() == page
    browsing.send_signal(signal.SIGINT)
    assert browsing.wait(60) == 0


def test_what_is_not_a_run_hides_no_run(
    recorded: Recorded,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    copy = recorded.copy(tmp_path / "copy")
    with Catalog.open(copy.catalog, readable=[copy.captures]) as catalog:
        catalog.client.create_container("notes")
    assert run("runs", "--data", copy.folder) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1 + 3
    assert said.err == "'notes' in the catalog is not a run\n"
    assert run("catalog", "recover", "--data", copy.folder) == 0


def test_a_list_takes_the_server_of_no_capture(
    recorded: Recorded,
    tmp_path: Path,
) -> None:
    """The process that has opened the catalog first ends while another one uses it."""
    copy = recorded.copy(tmp_path / "copy")
    program = (
        "import sys; from daqiri_ophyd.catalog import Catalog; c = Catalog.open(sys.argv[1])\n"
    )
    program += "print(flush=True); sys.stdin.read(); c.close()"
    with subprocess.Popen(
        [sys.executable, "-c", program, copy.catalog], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with Catalog.open(copy.catalog, readable=[copy.captures]) as catalog:
            assert len(catalog.client) == 3
            first.communicate()
            assert len(catalog.client[copy.packets]["primary"].read()["time"]) == 1


READER = """
import json, sys
from daqiri_ophyd.cli import _main
print(json.dumps([_main._run(command) for command in json.loads(sys.argv[1])]), file=sys.stderr)
"""


def test_a_folder_that_cannot_be_written(recorded: Recorded, tmp_path: Path) -> None:
    """As root, without the capability to write nevertheless."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    archive = recorded.copy(tmp_path / "archive")
    shutil.rmtree(archive.catalog / "backup", ignore_errors=True)
    paths = [archive.folder, *archive.folder.rglob("*")]
    before = {path: path.lstat() for path in paths}
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    without = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
    options = ["--data", str(archive.folder)]
    commands = [
        ["runs", *options, "--json"],
        ["runs", "export", archive.flight, str(tmp_path / "exported"), *options],
        ["catalog", "recover", *options],
        ["capture", "loopback", "--seconds", "0.01", "--catalog", str(archive.catalog)],
    ]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    try:
        done = subprocess.run(
            [*(without if os.geteuid() == 0 else []), sys.executable, "-c", READER]
            + [json.dumps(commands)],
            cwd=tmp_path, text=True, capture_output=True, timeout=200,
            env=os.environ | {"TMPDIR": str(temporary)},
        )  # fmt: skip
        changed = [path for path in paths if path.lstat().st_mtime_ns != before[path].st_mtime_ns]
        assert sorted(archive.folder.rglob("*")) == sorted(paths[1:])
    finally:
        for path in paths:
            path.chmod(before[path].st_mode)
    assert json.loads(done.stderr.splitlines()[-1]) == [0, 0, 1, 1]
    listed, _ = json.JSONDecoder().raw_decode(done.stdout)
    assert {each["run"] for each in listed["runs"]} == {
        archive.packets,
        archive.scan,
        archive.flight,
    }
    assert (tmp_path / "exported" / "primary.csv").is_file()
    assert f"error: The catalog directory {archive.catalog} cannot be written. Copy" in done.stderr
    assert "name a server: --catalog ADDRESS" in done.stderr
    assert changed == [] and list(temporary.iterdir()) == []


def test_a_catalog_that_is_not_opened_leaves_no_copy(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = recorded.copy(tmp_path / "archive")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(_catalog, "is_writable", lambda directory: False)

    def fail(*args: object, **options: object) -> None:
        assert len(list(temporary.iterdir())) == 1
        raise CatalogError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(_catalog, "_runs", fail)
        with pytest.raises(CatalogError, match="no answer"):
            Catalog.open(archive.catalog, create=False)
    assert list(temporary.iterdir()) == []
    with (archive.catalog / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CatalogError, match="another user has it open"):
            Catalog.open(archive.catalog, create=False)
    assert list(temporary.iterdir()) == []
