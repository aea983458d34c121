"""Master files: frames of several files as one dataset, for programs that open one file."""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from run_documents import Documents
from tiled.structures.array import ArrayStructure
from tiled.structures.core import StructureFamily
from tiled.structures.data_source import Asset, DataSource, Management

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.cli import _main
from daqiri_ophyd.devices import Daq, FrameDetector, make_daq, reductions
from daqiri_ophyd.devices.recording._errors import CaptureError
from daqiri_ophyd.documents import is_master, read_sidecar, sidecar_path

from .conftest import SHAPE, Source, configuration, fly, images, take_reading

COLUMNS = ("batch", "timestamp", "last_timestamp", "packets", "missing", "timed_out", "lossy")


def flight(detector: FrameDetector, source: Source, count: int) -> Any:
    """A fly scan of so many frames."""

    def motion() -> Any:
        yield from bps.null()
        source.send(count)

    return bpp.stage_wrapper(fly(detector, motion(), prepared=count), [detector])


def together(files: list[Path], name: str) -> np.ndarray:
    parts = []
    for path in files:
        with h5py.File(path) as file:
            parts.append(file[f"entry/data/{name}"][()])
    return np.concatenate(parts)


def test_a_master_has_the_frames_of_rolled_files_wherever_the_folder_is(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    captures: Path,
    tmp_path: Path,
) -> None:
    detector.roll_frames.put(3)
    detector.reductions = {"total": reductions.total()}
    run_engine(flight(detector, source, 8), energy=12.4, sample="Si", nested={"a": 1}, on=True)
    (start,) = documents.of("start")
    (master,) = detector.masters
    assert master == detector.files[0].with_name("images_000000_master.h5")
    assert len(detector.files) == 3
    assert "_master.h5" not in json.dumps(documents.of("stream_resource"))
    expected = {name: together(detector.files, name) for name in (*COLUMNS, "valid", "total")}
    moved = tmp_path / "elsewhere"
    shutil.move(captures, moved)
    captures.mkdir()
    with h5py.File(moved / master.relative_to(captures)) as file:
        frames = file["entry/data/data"]
        assert (frames.is_virtual, frames.shape, frames.dtype) == (True, (8, *SHAPE), "u2")
        np.testing.assert_array_equal(frames[()], images(range(8)))
        np.testing.assert_array_equal(frames[4, 2:5], images([4])[0, 2:5])
        for name, values in expected.items():
            np.testing.assert_array_equal(file[f"entry/data/{name}"][()], values)
            assert file[f"entry/data/{name}"].dtype == values.dtype
        entry, device = file["entry"], file["entry/instrument/images"]
        assert (entry.attrs["NX_class"], device.attrs["NX_class"]) == ("NXentry", "NXdetector")
        assert entry["data"].attrs["signal"] == "data"
        assert device["data"] == frames
        assert device["sequence_number"] == device["batch"]
        assert device["frame_start_number"][()] == 0
        assert entry["entry_identifier"].asstr()[()] == start["uid"]
        assert entry["sample/name"].asstr()[()] == "Si"
        run = {name: each[()] for name, each in entry["run"].items()}
        assert (run["energy"], run["on"], run["scan_id"]) == (12.4, True, start["scan_id"])
        assert "nested" not in run
        ends = [entry[name].asstr()[()].removesuffix("Z") for name in ("start_time", "end_time")]
        times = np.array(ends).astype("datetime64[ns]").astype(int)
        assert list(times) == [expected["timestamp"][0], expected["last_timestamp"][-1]]
    told = read_sidecar(moved / master.relative_to(captures))
    assert told is not None and told.packets == 64 and told.run["uid"] == start["uid"]


def test_readings_of_one_stream_have_a_master(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    """Each run of a stage has its own."""
    detector.roll_frames.put(2)

    def runs() -> Any:
        for readings in (3, 1, 5):
            yield from bps.open_run()
            for _ in range(readings):
                yield from take_reading(detector, source)
            yield from bps.close_run()

    run_engine(bpp.stage_wrapper(runs(), [detector]))
    assert [path.name for path in detector.files] == [f"images_{n:06d}.h5" for n in range(6)]
    names = [path.name for path in detector.masters]
    assert names == ["images_000000_master.h5", "images_000003_master.h5"]
    starts = documents.of("start")
    for path, start, numbers in zip(
        detector.masters, (starts[0], starts[2]), (range(3), range(4, 9)), strict=True
    ):
        with h5py.File(path) as file:
            assert file["entry/data/batch"][:].tolist() == list(numbers)
            np.testing.assert_array_equal(file["entry/data/data"][()], images(numbers))
            assert file["entry/entry_identifier"].asstr()[()] == start["uid"]


def test_a_reading_that_was_interrupted_is_in_no_master(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    detector.roll_frames.put(1)

    def plan() -> Any:
        yield from bps.open_run()
        yield from take_reading(detector, source)
        yield from take_reading(detector, source)
        yield from bps.trigger(detector, group="torn")
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [detector]))
    (master,) = detector.masters
    with h5py.File(master) as file:
        np.testing.assert_array_equal(file["entry/data/data"][()], images(range(2)))


def test_when_a_master_is_written(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    run_engine(flight(detector, source, 2))
    assert detector.masters == []
    detector.master.put("always")
    run_engine(flight(detector, source, 2))
    (master,) = detector.masters
    with h5py.File(master) as file:
        np.testing.assert_array_equal(file["entry/data/data"][()], images([2, 3]))
    detector.master.put("never")
    detector.roll_frames.put(1)
    run_engine(flight(detector, source, 2))
    assert detector.masters == [] and len(detector.files) == 2


def test_reference_data_are_in_the_master(
    run_engine: RunEngine, detector: FrameDetector, source: Source, tmp_path: Path
) -> None:
    """Also for a single file."""
    mask = np.zeros(SHAPE, bool)
    mask[2, 3] = True
    np.save(tmp_path / "mask.npy", mask)
    with h5py.File(tmp_path / "calibration.h5", "w") as file:
        file["entry/dark"] = np.full(SHAPE, 7, "u2")
        file["entry/flat"] = np.full(SHAPE, 1.5, "f4")
    detector.pixel_mask.put(str(tmp_path / "mask.npy"))
    detector.dark.put(f"{tmp_path}/calibration.h5:/entry/dark")
    detector.flatfield.put(f"{tmp_path}/calibration.h5:/entry/flat")
    run_engine(flight(detector, source, 2))
    (master,) = detector.masters
    with h5py.File(master) as file:
        device = file["entry/instrument/images"]
        assert device["pixel_mask"].dtype == np.uint32
        np.testing.assert_array_equal(device["pixel_mask"][()], mask)
        np.testing.assert_array_equal(device["dark"][()], np.full(SHAPE, 7))
        assert (device["dark"].dtype, device["flatfield"].dtype) == ("u2", "f4")
        applied = [f"{name}_applied" for name in ("pixel_mask", "dark", "flatfield")]
        assert [bool(device[name][()]) for name in applied] == [False] * 3
        np.testing.assert_array_equal(device["data"][()], images([0, 1]))


def test_gaps_between_modules_are_in_the_mask(
    run_engine: RunEngine, make: Any, tmp_path: Path
) -> None:
    (rows, columns), half = SHAPE, SHAPE[0] // 2
    positions = [{"origin": [0, 0]}, {"origin": [half + 1, 0], "flip": "rows"}]
    modules = {"shape": [half, columns], "positions": positions}
    daq = make(frame={"shape": [rows + 1, columns], "dtype": "uint16", "modules": modules}, fill=9)
    daq.open()
    detector = daq.port0.frames.images
    mask = np.zeros((rows + 1, columns), np.uint8)
    mask[0, 0] = 2
    np.save(tmp_path / "mask.npy", mask)
    detector.pixel_mask.put(str(tmp_path / "mask.npy"))
    run_engine(flight(detector, Source(daq), 2))
    sent = images([0, 1])
    gap = np.full((2, 1, columns), 9 * 257, np.uint16)  # of bytes
    with h5py.File(detector.masters[0]) as file:
        found = file["entry/data/data"][()]
        marked = file["entry/instrument/images/pixel_mask"][()]
    expected = np.concatenate([sent[:, :half], gap, sent[:, : half - 1 : -1]], axis=1)
    np.testing.assert_array_equal(found, expected)
    mask[half] = 1
    np.testing.assert_array_equal(marked, mask)


@pytest.mark.parametrize(
    ("name", "source", "text"),
    [
        ("pixel_mask", "small.npy", "has the shape 2 x 2, and a frame 8 x 32"),
        ("pixel_mask", "float.npy", "has the type float64; accepted are integers and booleans"),
        ("pixel_mask", "negative.npy", "values from -1 to -1; accepted is 0 to 4294967295"),
        ("dark", "complex.npy", "has the type complex128; accepted are integers and floats"),
        ("dark", "text.npy", "is no array of numpy"),
        ("flatfield", "some.tiff", "accepted are NAME.npy and NAME.h5:/DATASET"),
        ("flatfield", "file.h5:/entry/flat", "no dataset '/entry/flat'; it has /entry/other"),
        ("flatfield", "none.npy", "No such file"),
    ],
)
def test_reference_data_that_do_not_fit_are_refused(
    daq: Daq, detector: FrameDetector, tmp_path: Path, name: str, source: str, text: str
) -> None:
    np.save(tmp_path / "small.npy", np.zeros((2, 2), "u1"))
    np.save(tmp_path / "float.npy", np.zeros(SHAPE))
    np.save(tmp_path / "negative.npy", np.full(SHAPE, -1))
    np.save(tmp_path / "complex.npy", np.zeros(SHAPE, complex))
    (tmp_path / "text.npy").write_text("text")
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["entry/other"] = 1
    getattr(detector, name).put(f"{tmp_path}/{source}")
    with pytest.raises(CaptureError, match=f"^daq_port0_frames_images_{name}: .*{text}"):
        detector.stage()
    getattr(detector, name).put("")
    detector.stage()
    detector.unstage()


def test_reference_data_without_a_master_are_refused(
    daq: Daq, detector: FrameDetector, tmp_path: Path
) -> None:
    np.save(tmp_path / "mask.npy", np.zeros(SHAPE, bool))
    detector.pixel_mask.put(str(tmp_path / "mask.npy"))
    detector.master.put("never")
    with pytest.raises(CaptureError, match="images_master is 'never': reference data are in"):
        detector.stage()


def test_rows_of_images_that_did_not_come_are_marked(run_engine: RunEngine, make: Any) -> None:
    """Of fill value, with 0 packets, in the files as in their master."""
    daq = make(fill=9)
    daq.open()
    detector, source = daq.port0.frames.images, Source(daq)
    detector.roll_frames.put(2)
    detector.on_drop.put("flag")

    def motion() -> Any:
        yield from bps.null()
        source.send(2)
        source.next += 1  # is not sent
        source.send(3)

    run_engine(bpp.stage_wrapper(fly(detector, motion(), prepared=6), [detector]))
    (master,) = detector.masters
    with h5py.File(master) as file:
        data = file["entry/data"]
        assert data["batch"][:].tolist() == list(range(6))
        assert data["packets"][:].tolist() == [8, 8, 0, 8, 8, 8]
        assert data["missing"][:].tolist() == [0, 0, 8, 0, 0, 0]
        assert data["lossy"][:].tolist() == [False, False, True, True, False, False]
        expected = images(range(6))
        expected[2] = 9 * 257
        np.testing.assert_array_equal(data["data"][()], expected)


def test_a_file_that_is_not_there_has_rows_without_packets(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    capsys: pytest.CaptureFixture[str],
) -> None:
    detector.roll_frames.put(2)
    run_engine(flight(detector, source, 6))
    (master,) = detector.masters
    files = [str(path) for path in [*detector.files, master]]
    assert _main._run(["frames", "check", *files]) == 0
    assert f"{master}: sound master, 6 frames of 3 files" in capsys.readouterr().out
    assert _main._run(["frames", "info", "--json", str(master)]) == 0
    told = json.loads(capsys.readouterr().out)[str(master)]
    assert (told["frames"], told["packets"], told["shape"]) == (6, 48, list(SHAPE))
    kept = detector.files[1].rename(detector.files[1].with_suffix(".away"))
    with h5py.File(master) as file:
        data = file["entry/data"]
        assert data["packets"][:].tolist() == [8, 8, 0, 0, 8, 8]
        assert data["missing"][:].tolist() == [0, 0, 8, 8, 0, 0]
        assert data["lossy"][:].tolist() == [False, False, True, True, False, False]
        assert not data["data"][2:4].any()
    assert _main._run(["frames", "check", str(master)]) == 2
    assert "1 of its files are not where it names them, such as images_000001.h5" in (
        capsys.readouterr().err
    )
    kept.rename(detector.files[1])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    subprocess.run(command, check=True, capture_output=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.root
def test_a_full_disk_leaves_the_frames_and_names_the_master(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    small_disk: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    detector.directory.put(str(small_disk))
    detector.roll_frames.put(3)
    ballast = small_disk / "ballast"

    def plan() -> Any:
        yield from flight(detector, source, 8)

    def fill(msg: Any) -> Any:
        if msg.command != "unstage":
            return None, None

        def full() -> Any:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            return (yield msg)

        return full(), None

    with pytest.raises(CaptureError, match=r"images_000000_master\.h5 could not be written \(No"):
        run_engine(bpp.plan_mutator(plan(), fill))
    assert documents.stop["exit_status"] == "success"
    assert len(detector.files) == 3
    np.testing.assert_array_equal(together(detector.files, "data"), images(range(8)))
    folder = detector.files[0].parent
    assert {path.suffix for path in folder.iterdir()} == {".h5", ".json"}
    assert not list(folder.glob("*master*")) and not list(folder.glob(".*"))
    ballast.unlink()
    assert _main._run(["frames", "master", *map(str, detector.files)]) == 0
    assert capsys.readouterr().out == (f"{folder}/images_000000_master.h5: 8 frames of 3 files\n")
    with h5py.File(folder / "images_000000_master.h5") as file:
        np.testing.assert_array_equal(file["entry/data/data"][()], images(range(8)))


def test_a_tiled_server_serves_the_master(
    run_engine: RunEngine, detector: FrameDetector, source: Source, captures: Path, tmp_path: Path
) -> None:
    """Stock Tiled, without anything of this package."""
    detector.roll_frames.put(3)
    run_engine(flight(detector, source, 8))
    (master,) = detector.masters
    script = """
import asyncio, sys
import numpy as np
from pathlib import Path
from tiled.client import from_uri
from tiled.client.register import register
from tiled.server.simple import SimpleTiledServer

folder, captures, master = map(Path, sys.argv[1:])
with SimpleTiledServer(folder, readable_storage=[captures]) as server:
    client = from_uri(server.uri)
    asyncio.run(register(client, master))
    data = client[master.stem]["entry"]["data"]
    np.savez(folder / "read.npz", part=data["data"][2:5], batch=data["batch"].read())
"""
    command = [sys.executable, "-c", script, tmp_path / "server", captures, master]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "server" / "read.npz") as read:
        np.testing.assert_array_equal(read["part"], images([2, 3, 4]))
        assert read["batch"].tolist() == list(range(8))


def test_a_catalog_reads_the_parts_and_accepts_the_master(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    captures: Path,
    tmp_path: Path,
    empty_catalog: Path,
) -> None:
    """A master whose files are where they may not be read is refused."""
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    detector.roll_frames.put(3)
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        run_engine.subscribe(catalog.writer())
        (uid,) = run_engine(flight(detector, source, 8))
        node = catalog.client[uid].base["primary"].base[detector.name]
        np.testing.assert_array_equal(node.read(), images(range(8)))
        named = [asset.data_uri for asset in node.data_sources()[0].assets]
        assert named == [f"file://localhost{path}" for path in detector.files]
        (master,) = detector.masters
        outside = tmp_path / "outside"
        outside.mkdir()
        for path in detector.files:
            shutil.copy(path, outside)
            shutil.copy(sidecar_path(path), outside)
        command = ["frames", "master", *map(str, sorted(outside.glob("*.h5")))]
        assert _main._run([*command, "--output", str(captures / "foreign.h5")]) == 0
        for path, code in ((master, 200), (captures / "foreign.h5", 403)):
            register(catalog, path)
            api, client = catalog.client.context.api_uri, catalog.client.context.http_client
            answer = client.get(f"{api}array/full/runs/{path.stem}?format=application/json")
            assert answer.status_code == code, answer.text
            if code == 200:
                np.testing.assert_array_equal(answer.json(), images(range(8)))


def register(catalog: Catalog, path: Path) -> None:
    """Register the frames of a file, as any client may."""
    structure = ArrayStructure.from_array(images(range(8)))
    source = DataSource(
        structure_family=StructureFamily.array,
        structure=structure,
        mimetype="application/x-hdf5",
        management=Management.external,
        assets=[Asset(f"file://localhost{path}", False, "data_uris", 0)],
        parameters={"dataset": "/entry/data/data"},
    )
    catalog.client.new(
        key=path.stem, structure_family=StructureFamily.array, data_sources=[source], metadata={}
    )


def test_the_command_adds_attributes_and_reference_data(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    detector.master.put("never")
    detector.roll_frames.put(2)
    run_engine(flight(detector, source, 4))
    files = [str(path) for path in detector.files]
    np.save(tmp_path / "mask.npy", np.ones(SHAPE, bool))
    np.save(tmp_path / "small.npy", np.ones((2, 2), bool))
    command = ["frames", "master", *files, "--output", str(tmp_path / "whole.h5")]
    for wrong, text in (
        (["--attribute", "energy"], "--attribute is 'energy'; accepted is NAME=VALUE"),
        (["--attribute", f"energy={2**64}"], "energy is 18446744073709551616; accepted are whole"),
        (["--pixel-mask", str(tmp_path / "small.npy")], "has the shape 2 x 2, and a frame 8 x 32"),
        (["--dark", str(tmp_path / "none.npy")], "none.npy: No such file or directory"),
        (["--dark", f"{tmp_path}/none.h5:/entry/dark"], "none.h5"),
    ):
        assert _main._run([*command, *wrong]) == 1
        assert text in capsys.readouterr().err
        assert not (tmp_path / "whole.h5").exists()
    more = ["--attribute", "energy=12.4", "--attribute", "beam=on", "--attribute", "step=3"]
    more += ["--pixel-mask", str(tmp_path / "mask.npy"), "--by-row", "--json"]
    assert _main._run([*command, *more]) == 0
    told = json.loads(capsys.readouterr().out)[str(tmp_path / "whole.h5")]
    assert (told["frames"], len(told["parts"])) == (4, 2)
    with h5py.File(tmp_path / "whole.h5") as file:
        np.testing.assert_array_equal(file["entry/data/data"][()], images(range(4)))
        run = file["entry/run"]
        assert (run["energy"][()], run["beam"].asstr()[()], run["step"][()]) == (12.4, "on", 3)
        assert (file["entry/instrument/images/pixel_mask"][()] == 1).all()
    assert _main._run(command) == 1
    assert "whole.h5 exists; remove it to write it again" in capsys.readouterr().err
    # A pattern finds masters, too.
    with_masters = [*command[:2], str(tmp_path / "whole.h5"), *files]
    assert _main._run([*with_masters, "--output", str(tmp_path / "again.h5")]) == 0
    assert "again.h5: 4 frames of 2 files" in capsys.readouterr().out
    assert _main._run(["frames", "master", str(tmp_path / "whole.h5")]) == 1
    assert "whole.h5 is a master file itself; name the files that" in capsys.readouterr().err
    broken = tmp_path / "broken_000000.h5"
    broken.write_bytes(b"no HDF5")
    mask = ["--pixel-mask", str(tmp_path / "mask.npy")]
    assert _main._run(["frames", "master", str(broken), *mask]) == 1
    assert str(broken) in capsys.readouterr().err
    of_master = ["frames", "master", str(tmp_path / "whole.h5"), "--dark", str(tmp_path / "m.npy")]
    assert _main._run(of_master) == 1
    assert "whole.h5 is a master file itself; name the files" in capsys.readouterr().err


def test_the_command_tells_recordings_that_are_beside_each_other(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    detector.master.put("never")
    run_engine(flight(detector, source, 4))
    (path,) = detector.files
    other = tmp_path / "other" / path.name
    other.parent.mkdir()
    shutil.copy(path, other)
    shutil.copy(f"{path}.json", f"{other}.json")
    command = ["frames", "master", str(path), str(other), "--output", str(tmp_path / "all.h5")]
    assert _main._run(command) == 0
    told = "4 frames of 2 files, 2 detectors: images_0, images_1"
    assert told in capsys.readouterr().out


@pytest.fixture
def two_plans(captures: Path) -> Iterator[Daq]:
    """A port with plans ``images`` and ``others``, whose packets go to UDP port 4999."""
    config = configuration(flow_ids=[7])
    plans = config["interfaces"][0]["rx"]["reorder_configs"]
    plans.append(plans[0] | {"name": "others", "flow_ids": [6]})
    with make_daq(config, "daq", directory=captures) as daq:
        daq.open()
        yield daq


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_plans_of_one_stream_have_a_master(
    run_engine: RunEngine, two_plans: Daq, kind: str, tmp_path: Path, captures: Path
) -> None:
    """If they have equally many frames, whatever their numbers."""
    detectors = [two_plans.port0.frames.images, two_plans.port0.frames.others]
    first, second = Source(two_plans), Source(two_plans)
    second.next = 20

    def send(count: int) -> None:
        first.send(count)
        second.send(count, port=4999)

    def step() -> Any:
        yield from bps.open_run()
        for _ in range(4):
            for each in detectors:
                yield from bps.trigger(each, group="reading")
            send(1)
            yield from bps.wait("reading")
            yield from bps.create()
            for each in detectors:
                yield from bps.read(each)
            yield from bps.save()
        yield from bps.close_run()

    def flown() -> Any:
        for each in detectors:
            yield from bps.prepare(each, 4, wait=True)
        yield from bps.open_run()
        yield from bps.declare_stream(*detectors, name="primary", collect=True)
        for each in detectors:
            yield from bps.kickoff(each, wait=True)
        send(4)
        yield from bps.collect_while_completing(
            detectors, detectors, flush_period=0.05, stream_name="primary"
        )
        yield from bps.close_run()

    detectors[0].roll_frames.put(3)
    run_engine(bpp.stage_wrapper(step() if kind == "step" else flown(), detectors))
    (master,) = two_plans.masters
    assert master == detectors[0].files[0].with_name("images_000000_plans_master.h5")
    shutil.move(captures, tmp_path / "moved")
    captures.mkdir()
    with h5py.File(tmp_path / "moved" / master.relative_to(captures)) as file:
        device = file["entry/instrument"]
        np.testing.assert_array_equal(device["images/data"][()], images(range(4)))
        np.testing.assert_array_equal(device["others/data"][()], images(range(20, 24)))
        assert device["others/batch"][:].tolist() == list(range(20, 24))
    two_plans.unstage()
    assert two_plans.masters == []


def test_plans_of_different_lengths_have_no_master(run_engine: RunEngine, two_plans: Daq) -> None:
    detectors = [two_plans.port0.frames.images, two_plans.port0.frames.others]
    first, second = Source(two_plans), Source(two_plans)

    detectors[1].num_frames.put(2)

    def plan() -> Any:
        yield from bps.open_run()
        for each in detectors:
            yield from bps.trigger(each, group="reading")
        first.send(1)
        second.send(2, port=4999)
        yield from bps.wait("reading")
        yield from bps.create()
        for each in detectors:
            yield from bps.read(each)
        yield from bps.save()
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), detectors))
    assert two_plans.masters == []


def test_a_later_capture_cannot_write_beside_a_master(
    run_engine: RunEngine, detector: FrameDetector, source: Source
) -> None:
    detector.path.put("same")
    detector.roll_frames.put(1)
    run_engine(flight(detector, source, 2))
    (master,) = detector.masters
    assert is_master(master) and not is_master(detector.files[0])
    for path in detector.files:
        path.unlink()
        sidecar_path(path).unlink()
    with pytest.raises(CaptureError, match="files of another capture, such as images_000000_mast"):
        run_engine(flight(detector, source, 2))
