"""Runs whose files are in an object store only, read by all the ways in which runs are read."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401 - has h5py read compressed frames
import numpy as np
import pytest
from bluesky import RunEngine
from httpx import HTTPStatusError
from numbered_camera import BYTES, PACKETS
from object_servers import FaultServer
from run_documents import new_run_engine
from tiled.client import from_context
from tiled.client.utils import ClientError

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import (
    Catalog,
    UnreadableFileError,
    capture_files,
    export_run,
    frames_dataset,
    stored_files,
)
from daqiri_ophyd.devices import Daq
from daqiri_ophyd.engine import LINKTYPE_ETHERNET, PcapFile
from daqiri_ophyd.replay import FrameReplay, ReplayError
from daqiri_ophyd.ship import StoredObject, StoreError, shipper_of
from daqiri_ophyd.ship._object import COPIES

from .test_ship_scans import IMAGES, capture, fly, images


@dataclass
class Shipped:
    """A catalog with a run of packets and one of frames, whose files are only in the store."""

    daq: Daq
    engine: RunEngine
    catalog: Catalog
    folder: Path
    packets: str
    frames: str
    sent: bytes  # SHA-256 of all packets

    def run(self, uid: str, catalog: Catalog | None = None) -> object:
        return (catalog or self.catalog).client[uid]


def digest_of(files: list[Path]) -> bytes:
    """Return the SHA-256 of the packets of files."""
    digest = hashlib.sha256()
    for file in files:
        with PcapFile(file) as pcap:
            for number in range(len(pcap)):
                digest.update(bytes(pcap[number]))
    return digest.digest()


@pytest.fixture
def shipped(
    tmp_path: Path, empty_catalog: Path, make: Callable[..., Daq], used: FaultServer
) -> Iterator[Shipped]:
    daq = make()
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    readable = [tmp_path / "captures", "s3://bucket/beam"]
    with (
        Catalog.open(tmp_path / "catalog", readable) as catalog,
        new_run_engine() as engine,
        daq,
    ):
        engine.subscribe(catalog.writer())
        (packets,) = engine(capture(daq))
        sent = digest_of(daq.camera.capture.files)
        (frames,) = engine(fly(daq))
        assert shipper_of("s3://bucket").wait(60)
        catalog.flush()
        for path in [*tmp_path.rglob("*.pcap"), *tmp_path.rglob("*.h5")]:
            path.unlink()
        yield Shipped(daq, engine, catalog, tmp_path, packets, frames, sent)


def test_packets_are_a_table(shipped: Shipped, used: FaultServer) -> None:
    run = shipped.run(shipped.packets)
    node = run.base["primary"].base["daq_camera_capture_files"]
    assert list(node.read()) == [f"camera_{number:06d}.pcap" for number in range(10)]
    below = from_context(node.context, node_path_parts=[*node.path_parts, "packets"])
    table = below.read()
    assert len(table) == IMAGES * PACKETS
    assert list(table["file"]) == list(np.repeat(np.arange(10), 16))
    summaries = from_context(node.context, node_path_parts=[*node.path_parts, "summaries"]).read()
    assert list(summaries["packets"]) == [16] * 10
    raw = shipped.folder / "raw"
    run.base["primary"].base["daq_camera_capture_files"].raw_export(raw)
    exported = sorted(raw.rglob("*.pcap"), key=lambda file: file.name)
    assert digest_of(exported) == shipped.sent


def test_frames_are_read_in_ranges(
    shipped: Shipped, make: Callable[..., Daq], used: FaultServer
) -> None:
    daq = make(packets=64, size=900)
    detector, tx = daq.camera.frames.images, daq.camera.tx.tx
    detector.keep_shipped.put(False)
    with daq:
        plan = plans.record(detector, IMAGES, tx=tx, packets=images(IMAGES, 64, 900))
        (uid,) = shipped.engine(plan)
    assert shipper_of("s3://bucket").wait(60)
    (file,) = detector.files
    assert not file.exists()
    used.answered = 0
    frames = shipped.run(uid).base["primary"].base["daq_camera_frames_images"]
    image = frames[27]
    assert image.shape == (64, 900)
    assert (image == 27).all()
    # Of 2.3 MB.
    assert 57_600 < used.answered < 400_000
    whole = frames_dataset(shipped.run(uid)).frames.values.reshape(IMAGES, -1)
    assert (whole == np.arange(IMAGES)[:, np.newaxis]).all()
    assert not COPIES.folder.exists()


def test_raw_files_have_their_index(shipped: Shipped) -> None:
    detector = shipped.daq.camera.capture
    detector.format.put("raw")
    detector.keep_shipped.put(False)
    with shipped.daq:
        (uid,) = shipped.engine(capture(shipped.daq))
    assert shipper_of("s3://bucket").wait(60)
    shipped.catalog.flush()
    node = shipped.run(uid).base["primary"].base["daq_camera_capture_files"]
    table = from_context(node.context, node_path_parts=[*node.path_parts, "packets"]).read()
    assert len(table) == IMAGES * PACKETS
    node.raw_export(shipped.folder / "raw")
    index = [np.load(path) for path in sorted((shipped.folder / "raw").rglob("*.raw.npy"))]
    assert np.array_equal(np.concatenate(index)["length"], table["length"])


def test_databroker_has_both(shipped: Shipped) -> None:
    broker = shipped.catalog.databroker()
    table = broker[shipped.packets].table()
    assert table["daq_camera_capture_packets"].sum() == IMAGES * PACKETS
    rows = broker[shipped.frames].table()
    assert list(rows["daq_camera_frames_images_missing"]) == [0] * IMAGES


def test_stock_h5py_reads_frames_through_fsspec(shipped: Shipped, used: FaultServer) -> None:
    import fsspec
    from obstore.fsspec import register

    register("s3", asynchronous=False)
    key = next(key for key in used.objects if key.endswith("_000002.h5"))
    options = used.options
    with fsspec.open(f"s3://bucket/{key}", "rb", **options) as stream, h5py.File(stream) as file:
        data = file["entry/data/data"]
        assert data.shape == (10, PACKETS, BYTES)
        assert (data[3] == 23).all()


def test_a_run_is_replayed_onto_the_wire(shipped: Shipped, tmp_path: Path) -> None:
    daq = shipped.daq
    daq.camera.capture.ship_to.put("")
    for uid in (shipped.packets, shipped.frames):
        plan = plans.verify_replay(daq.camera.tx.tx, shipped.run(uid), detector=daq.camera.capture)
        shipped.engine(plan)
    again = sorted(tmp_path.rglob("captures/**/*.pcap"), key=lambda file: file.stat().st_mtime_ns)
    assert digest_of(again[:1]) == shipped.sent


def test_files_are_fetched_once_and_compared_with_their_checksum(
    shipped: Shipped, used: FaultServer
) -> None:
    run = shipped.run(shipped.packets)
    found = stored_files(run)
    assert [str(file) for file in found] == [
        f"s3://bucket/{key}" for key in sorted(used.objects) if key.endswith(".pcap")
    ]
    files = capture_files(run)
    assert digest_of(files) == shipped.sent
    used.requests.clear()
    assert capture_files(run) == files
    assert used.requests["GET"] == 0
    first = found[0]
    assert isinstance(first, StoredObject)
    used.objects[first.key] = bytes(len(used.objects[first.key]))
    shutil.rmtree(COPIES.folder)
    with pytest.raises(StoreError, match=r"camera_000000\.pcap is damaged: its SHA-256 is"):
        capture_files(run)
    assert not list(COPIES.folder.rglob("*.pcap"))


def test_copies_make_room_for_new_ones(shipped: Shipped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COPIES, "most_bytes", 30_000)
    run = shipped.run(shipped.packets)
    files = [file.fetch() for file in stored_files(run) if isinstance(file, StoredObject)]
    assert [file.exists() for file in files[:2] + files[-1:]] == [False, False, True]
    kept = sum(path.stat().st_size for path in COPIES.folder.rglob("*.*"))
    assert kept < 30_000 + 3_000  # with the metadata of the latest
    # Whoever asks for all gets all.
    assert digest_of(capture_files(run)) == shipped.sent


def test_copies_of_equal_files_have_their_own_metadata(used: FaultServer) -> None:
    digest = hashlib.sha256(b"same").hexdigest()
    told: dict[str, object] = {"object": {"bytes": 4, "sha256": digest}}
    for run, index in (("a", b"first"), ("b", b"second")):
        used.store(f"{run}/x_000000.raw", b"same")
        used.store(f"{run}/x_000000.raw.npy", index)
        of_index = {"bytes": len(index), "sha256": hashlib.sha256(index).hexdigest()}
        text = json.dumps(told | {"index": of_index, "run": run})
        used.store(f"{run}/x_000000.raw.json", text.encode())
    for run, index in (("a", b"first"), ("b", b"second")):
        copy = StoredObject(f"s3://bucket/{run}/x_000000.raw").fetch()
        assert copy.read_bytes() == b"same"
        assert copy.with_name("x_000000.raw.npy").read_bytes() == index
        assert json.loads(copy.with_name("x_000000.raw.json").read_text())["run"] == run


def test_what_a_store_tells_is_no_path(used: FaultServer, tmp_path: Path) -> None:
    (tmp_path / "x_000000.pcap").write_text("of somebody else")
    told = {"object": {"bytes": 4, "sha256": str(tmp_path)}}
    used.store("x_000000.pcap", b"sent")
    used.store("x_000000.pcap.json", json.dumps(told).encode())
    with pytest.raises(StoreError, match="damaged"):
        StoredObject("s3://bucket/x_000000.pcap").fetch()


def test_a_run_is_exported_with_its_files(shipped: Shipped, tmp_path: Path) -> None:
    export_run(shipped.run(shipped.packets), tmp_path / "out")
    assert digest_of(sorted((tmp_path / "out").rglob("*.pcap"))) == shipped.sent
    export_run(shipped.run(shipped.frames), tmp_path / "images")
    assert len(list((tmp_path / "images").rglob("*.h5"))) == 4


def test_another_host_finds_them_by_what_the_run_says(shipped: Shipped, tmp_path: Path) -> None:
    shipped.catalog.close()
    shutil.rmtree(tmp_path / "captures")
    copy = tmp_path / "there" / "catalog"
    shutil.copytree(tmp_path / "catalog", copy)
    with Catalog.open(copy, ["s3://bucket/beam"]) as catalog:
        assert digest_of(capture_files(catalog.client[shipped.packets])) == shipped.sent
    # A copy of the whole folder remembers where the captures were.
    (tmp_path / "there" / "captures").mkdir()
    readable = [tmp_path / "there" / "captures", "s3://bucket/beam"]
    with Catalog.open(copy, readable) as catalog:
        assert digest_of(capture_files(catalog.client[shipped.packets])) == shipped.sent
    # A server needs to be told, since it has no run at hand.
    moved = {tmp_path / "captures": "s3://bucket/beam"}
    with Catalog.open(copy, readable[:1], moved=moved) as catalog:
        frames = frames_dataset(catalog.client[shipped.frames])
        assert (frames.frames[11].values == 11).all()
        assert digest_of(capture_files(catalog.client[shipped.packets])) == shipped.sent


def test_an_object_is_read_only_below_an_address_that_may_be_read(
    shipped: Shipped, tmp_path: Path
) -> None:
    shipped.catalog.close()
    copy = tmp_path / "there" / "catalog"
    shutil.copytree(tmp_path / "catalog", copy)
    for stores in ([], ["s3://bucket/bea"], ["s3://other/beam"]):
        with Catalog.open(copy, [tmp_path / "captures", *stores]) as catalog:
            run = catalog.client[shipped.packets]
            with pytest.raises(UnreadableFileError, match=r"s3://bucket/beam/.* is not below an"):
                capture_files(run)
            node = run.base["primary"].base["daq_camera_capture_files"]
            below = [*node.path_parts, "packets"]
            with pytest.raises((ClientError, HTTPStatusError), match="403"):
                from_context(node.context, node_path_parts=below).read()
            frames = catalog.client[shipped.frames].base["primary"].base["daq_camera_frames_images"]
            with pytest.raises((ClientError, HTTPStatusError), match="403"):
                frames.read()
    # A catalog that was opened with an address remembers it, in its own place.
    with Catalog.open(tmp_path / "catalog", [tmp_path / "captures"]) as catalog:
        assert digest_of(capture_files(catalog.client[shipped.packets])) == shipped.sent


def test_a_file_of_this_host_is_not_read_because_its_folder_is_in_a_store(
    shipped: Shipped, tmp_path: Path
) -> None:
    shipped.catalog.close()
    copy = tmp_path / "there" / "catalog"
    shutil.copytree(tmp_path / "catalog", copy)
    for mark in tmp_path.rglob("*.shipped"):
        mark.with_suffix("").write_bytes(b"secret")
    moved = {tmp_path / "captures": "s3://bucket/beam"}
    with Catalog.open(copy, [tmp_path / "there"], moved=moved) as catalog:
        with pytest.raises(UnreadableFileError, match="is not below an address"):
            capture_files(catalog.client[shipped.packets])
        packets = catalog.client[shipped.packets].base["primary"].base["daq_camera_capture_files"]
        frames = catalog.client[shipped.frames].base["primary"].base["daq_camera_frames_images"]
        for read in (packets.read, frames.read):
            with pytest.raises((ClientError, HTTPStatusError), match="403"):
                read()
        (first, *_) = packets.data_sources()[0].assets
        answer = packets.context.http_client.get(
            f"{packets.context.api_uri}asset/bytes/{'/'.join(packets.path_parts)}",
            params={"id": first.id},
        )
        assert answer.status_code == 403
        assert b"secret" not in answer.content


def test_frames_are_read_while_their_files_go(shipped: Shipped, used: FaultServer) -> None:
    marks = sorted(shipped.folder.rglob("*.h5.shipped"))
    local = [mark.with_suffix("") for mark in marks[2:]]
    for file in local:
        key = next(key for key in used.objects if key.endswith(f"/{file.parent.name}/{file.name}"))
        file.write_bytes(used.objects[key])
    frames = shipped.run(shipped.frames).base["primary"].base["daq_camera_frames_images"]
    for _ in range(2):
        assert (frames[35] == 35).all()
        for file in local:
            file.unlink(missing_ok=True)


def test_an_object_that_takes_data_from_other_files_is_refused(
    shipped: Shipped, used: FaultServer, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["data"] = np.zeros((10, PACKETS, BYTES), "u1")
    hostile = tmp_path / "hostile.h5"
    with h5py.File(hostile, "w") as file:
        file["entry/data/data"] = h5py.ExternalLink(str(secret), "/data")
    for key in used.objects:
        if key.endswith(".h5"):
            used.objects[key] = hostile.read_bytes()
    for mark in tmp_path.rglob("*.h5.shipped"):
        told = json.loads(mark.read_text()) | {"bytes": os.path.getsize(hostile)}
        mark.write_text(json.dumps(told))
    frames = shipped.run(shipped.frames).base["primary"].base["daq_camera_frames_images"]
    with pytest.raises((ClientError, HTTPStatusError), match="403"):
        frames.read()


@pytest.mark.parametrize("how", ["link", "storage", "virtual"])
def test_an_object_that_takes_data_from_other_files_is_not_sent(
    shipped: Shipped, used: FaultServer, tmp_path: Path, how: str
) -> None:
    """Nor is a file on this host: a catalog of others could have any file sent."""
    (file,) = [f for f in stored_files(shipped.run(shipped.frames)) if "000000" in f.name]
    assert isinstance(file, StoredObject)
    hostile = tmp_path / "hostile.h5"
    hostile.write_bytes(used.objects[file.key])
    raw, secret = tmp_path / "secret", tmp_path / "secret.h5"
    raw.write_bytes(bytes(10 * PACKETS * BYTES))
    with h5py.File(secret, "w") as other:
        other["data"] = np.zeros((10, PACKETS, BYTES), "u1")
    with h5py.File(hostile, "a") as opened:
        group = opened["entry/instrument/images"]
        del group["data"]
        if how == "link":
            group["data"] = h5py.ExternalLink(str(secret), "/data")
        elif how == "storage":
            shape = (10, PACKETS, BYTES)
            group.create_dataset("data", shape, "u1", external=[(raw, 0, raw.stat().st_size)])
        else:
            layout = h5py.VirtualLayout((10, PACKETS, BYTES), "u1")
            layout[:] = h5py.VirtualSource(str(secret), "data", (10, PACKETS, BYTES))
            group.create_virtual_dataset("data", layout)
    content = hostile.read_bytes()
    told = json.loads(used.objects[f"{file.key}.json"])
    told["object"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    used.store("foreign_000000.h5", content)
    used.store("foreign_000000.h5.json", json.dumps(told).encode())
    hostile.with_name("hostile.h5.json").write_text(json.dumps(told))
    for source in (StoredObject("s3://bucket/foreign_000000.h5"), hostile):
        with pytest.raises(ReplayError, match=r"'/entry/instrument/images/data' takes data from"):
            FrameReplay([source], shipped.daq.config, link_type=LINKTYPE_ETHERNET)


def test_a_store_that_is_away_is_named(shipped: Shipped, used: FaultServer) -> None:
    used.stop()
    with pytest.raises(StoreError, match=r"s3://bucket/.* cannot be read: .*refused"):
        capture_files(shipped.run(shipped.packets))
    used.start()


def test_another_host_finds_what_a_link_or_an_address_of_the_directory_names(
    tmp_path: Path, empty_catalog: Path, make: Callable[..., Daq]
) -> None:
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    daq = make()
    detector = daq.camera.capture
    detector.directory.put(str(tmp_path / "link"))
    with (
        Catalog.open(tmp_path / "catalog", ["s3://bucket/beam"]) as catalog,
        new_run_engine() as engine,
        daq,
    ):
        engine.subscribe(catalog.writer())
        for uri in ("", f"file://localhost{tmp_path}/mount"):
            detector.uri.put(uri)
            (uid,) = engine(capture(daq))
            sent = digest_of(detector.files)
            assert shipper_of("s3://bucket").wait(60)
            catalog.flush()
            shutil.rmtree(tmp_path / "disk")
            (tmp_path / "disk").mkdir()
            assert digest_of(capture_files(catalog.client[uid])) == sent


def test_a_copy_that_cannot_be_written_is_an_answer(
    shipped: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shipped.folder / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(shipped.folder / "file"))
    node = shipped.run(shipped.packets).base["primary"].base["daq_camera_capture_files"]
    (source,) = node.include_data_sources().data_sources()
    # Clients repeat requests after internal errors for 45 s.
    asset = source.assets[0]
    answer = node.context.http_client.get(
        f"{node.uri.replace('/metadata/', '/asset/bytes/')}?id={asset.id}",
        headers={"Accept": "application/octet-stream"},
    )
    assert answer.status_code == 422
    assert "Not a directory" in answer.text
