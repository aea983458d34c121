"""Numbers from packets that go with their frames, from the engine to the catalog."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from numpy.typing import NDArray
from run_documents import Documents

from daqiri_ophyd.catalog import Catalog, frames_dataset
from daqiri_ophyd.cli import _main
from daqiri_ophyd.devices import Daq, FrameDetector
from daqiri_ophyd.engine import check_config, cut_frames, examine_frames

from .conftest import PACKETS, SHAPE, Source, configuration, fly, image

KEY = "daq_port0_frames_images"
# Of the first four pixels of a packet, and of the first one.
COLUMNS: dict[str, dict[str, Any]] = {
    "pulse_id": {
        "bit_offset": 32,
        "bit_width": 64,
        "base": "udp_payload",
        "byte_order": "little",
    },
    "hits": {
        "bit_offset": 32,
        "bit_width": 16,
        "base": "udp_payload",
        "byte_order": "little",
        "from": "sum",
    },
    "pulses": {
        "bit_offset": 32,
        "bit_width": 64,
        "base": "udp_payload",
        "byte_order": "little",
        "from": "packets",
    },
}


class Counter(Source):
    """Sends images that begin with numbers beyond those of 63 bits."""

    def image(self, batch: int) -> NDArray[np.uint16]:
        made = image(batch)
        made[:, 3] |= 0x8000
        return made


def numbers(batches: Any, without: tuple[int, ...] = ()) -> dict[str, list[Any]]:
    """Return the columns of images with these numbers."""
    kept = [slot for slot in range(PACKETS) if slot not in without]
    found: dict[str, list[Any]] = {"pulse_id": [], "hits": [], "pulses": []}
    for batch in np.ravel(batches):
        rows = Counter.image(None, int(batch))  # pyright: ignore[reportArgumentType]
        pulses = rows[:, :4].copy().view("<u8")[:, 0]
        pulses[list(without)] = 0
        found["pulse_id"].append(int(pulses[kept[0]]))
        found["hits"].append(int(rows[kept, 0].astype(np.uint64).sum()))
        found["pulses"].append(pulses.tolist())
    return found


def told(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a frame in the form of `numbers`."""
    pulses = columns["pulses"]
    assert (pulses.shape, pulses.dtype) == ((PACKETS,), np.uint64)
    return columns | {"pulses": pulses.tolist()}


@pytest.fixture
def build() -> Callable[..., dict[str, Any]]:
    return partial(configuration, columns=COLUMNS)


@pytest.fixture
def source(daq: Daq) -> Iterator[Source]:
    daq.open()
    source = Counter(daq)
    yield source
    source.stop()


def test_frames_have_the_numbers_of_their_packets(source: Source, daq: Daq) -> None:
    plan = daq.port("port0").reorder["images"]
    assert plan.columns == ("pulse_id", "hits", "pulses")
    assert [column.source for column in plan.config.columns] == ["first", "sum", "packets"]
    assert plan.preview() is None  # the next one is kept
    with plan.frames(timeout=5.0) as frames:
        source.send()
        whole = next(frames)
        assert told(whole.columns) == {n: values[0] for n, values in numbers([0]).items()}
        assert whole.columns["pulse_id"] >= 2**63
        source.send(without=(0, 1, 5))
        source.send(2)
        torn = next(frames)
        assert torn.batch == 1
        expected = numbers([1], without=(0, 1, 5))
        assert told(torn.columns) == {name: values[0] for name, values in expected.items()}
    kept = torn.columns["pulses"]
    del whole, torn
    shown = plan.preview()
    assert shown is not None
    assert told(shown.columns) == {n: values[0] for n, values in numbers([shown.batch]).items()}
    assert kept.tolist() == expected["pulses"][0]  # a copy


def test_files_have_a_dataset_for_each_column(source: Source, daq: Daq, tmp_path: Path) -> None:
    plan = daq.port("port0").reorder["images"]
    with plan.record(tmp_path, max_frames=4) as recorder:
        source.send(4)
        recorder.wait(5.0)
    (file,) = recorder.files()

    def check(count: int) -> None:
        lengths = examine_frames(file.path).lengths
        assert [lengths[name] for name in COLUMNS] == [count] * 3
        with h5py.File(file.path) as found:
            for name, values in numbers(range(count)).items():
                dataset = found[f"entry/data/{name}"]
                assert dataset == found[f"entry/instrument/images/{name}"]
                assert dataset.dtype == np.uint64
                assert dataset[:].tolist() == values
                assert dataset.attrs["from_packets"] == COLUMNS[name].get("from", "first")

    check(4)
    cut_frames(file.path, 2)
    check(2)


@pytest.mark.parametrize("num_frames", [1, 2])
def test_readings_have_columns(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
    num_frames: int,
) -> None:
    detector.num_frames.put(num_frames)
    source.start()
    (uid,) = run_engine(bp.count([detector], 3))
    source.stop()
    (descriptor,) = documents.of("descriptor")
    key = descriptor["data_keys"][f"{KEY}_pulse_id"]
    assert key["dtype_numpy"] == "<u8"
    assert key["shape"] == ([num_frames] if num_frames > 1 else [])
    key = descriptor["data_keys"][f"{KEY}_pulses"]
    assert (key["dtype"], key["dtype_numpy"]) == ("array", "<u8")
    assert key["shape"] == ([num_frames] if num_frames > 1 else []) + [PACKETS]
    run = catalog.client[uid]
    assert run.validate()
    stream = run["primary"].base
    batches = stream[f"{KEY}_batch"].read()
    for name, values in numbers(batches).items():
        found = stream[f"{KEY}_{name}"].read()
        assert found.dtype == np.uint64
        assert found.shape == (*batches.shape, *np.shape(values)[1:])
        assert found.reshape(np.shape(values)).tolist() == values
    data = frames_dataset(run)
    assert data[f"{KEY}_pulses"].dims == ("frame", "packet")
    for name, values in numbers(data["batch"]).items():
        assert data[f"{KEY}_{name}"].to_numpy().tolist() == values
    # Joined with what another system recorded for a pulse.
    by_pulse = data.swap_dims(frame=f"{KEY}_pulse_id")
    pulse = numbers(batches.ravel()[2:3])["pulse_id"][0]
    found = by_pulse.sel({f"{KEY}_pulse_id": np.uint64(pulse)})["batch"]
    assert int(found) == int(batches.ravel()[2])


def test_rows_of_fly_scans_have_columns(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    catalog: Catalog,
) -> None:
    """An image that does not come has 0 in its row, also in the master of several files."""
    nothing = {"pulse_id": 0, "hits": 0, "pulses": [0] * PACKETS}
    detector.roll_frames.put(2)
    detector.on_drop.put("ignore")

    def motion() -> Any:
        yield from bps.null()
        source.send(2)
        source.next += 1  # is not sent
        source.send(2)

    run_engine(bpp.stage_wrapper(fly(detector, motion(), prepared=5), [detector]))
    uid = documents.of("start")[0]["uid"]
    resources = {doc["data_key"]: doc for doc in documents.of("stream_resource")}
    assert resources[f"{KEY}_hits"]["parameters"]["dataset"] == "/entry/data/hits"
    data = frames_dataset(catalog.client[uid])
    assert data["frames"].shape == (5, *SHAPE)
    (master,) = detector.masters
    table = catalog.databroker()[uid].table("primary")
    with h5py.File(master) as file:
        for name, values in numbers([0, 1, 2, 3, 4]).items():
            expected = [nothing[name] if row == 2 else value for row, value in enumerate(values)]
            assert data[f"{KEY}_{name}"].to_numpy().tolist() == expected
            assert file[f"entry/data/{name}"].dtype == np.uint64
            assert file[f"entry/data/{name}"][:].tolist() == expected
            if name != "pulses":  # as images, no column of a table
                assert table[f"{KEY}_{name}"].tolist() == expected


def test_the_command_joins_by_a_column(
    source: Source, daq: Daq, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = daq.port("port0").reorder["images"]
    files = []
    for prefix in ("a", "b"):
        with plan.record(tmp_path, prefix, max_frames=2) as recorder:
            source.send(2)
            recorder.wait(5.0)
        files.append(str(recorder.files()[0].path))
    target = tmp_path / "all.h5"
    command = ["frames", "master", *files, "--output", str(target), "--join"]
    assert _main._run([*command, "pulse"]) == 1
    shown = capsys.readouterr().err
    assert "cannot be joined by 'pulse'" in shown
    assert "columns of its plan with one for each frame: hits, pulse_id." in shown
    assert _main._run([*command, "pulses"]) == 1
    shown = capsys.readouterr().err
    assert "cannot be joined by 'pulses', which has several numbers for each frame" in shown
    assert _main._run([*command, "pulse_id", "--by-row"]) == 2
    assert "accepted is one of them" in capsys.readouterr().err
    assert _main._run([*command, "pulse_id"]) == 0
    with h5py.File(target) as file:
        sent = dict(zip(numbers(range(4))["pulse_id"], range(4), strict=True))
        assert file["entry/data/pulse_id"][:].tolist() == sorted(sent)
        batches = [sent[pulse] for pulse in sorted(sent)]
        assert file["entry/data/batch"][:].tolist() == batches
        assert file["entry/data/pulses"][:].tolist() == numbers(batches)["pulses"]


def test_names_that_are_in_use_are_refused(make: Callable[..., Daq]) -> None:
    field = COLUMNS["pulse_id"]
    report = check_config(configuration(columns={"missing": field}))
    (problem,) = report.errors
    assert problem.path == "interfaces[0].rx.reorder_configs[0].columns"
    assert problem.message.startswith(
        "found 'missing' as a name, which frames have already; accepts up to 64 letters"
    )
    # Of a device that uses the plan.
    detector = make(columns={"Compression": field}).port0.frames.images
    with pytest.raises(ValueError, match="column 'Compression' of reorder plan 'images' has the"):
        detector.describe()
    long = "energy_" * 8
    detector = make(columns={long: field}).port0.frames.images
    with pytest.raises(ValueError, match=f"Give column '{long}' of its plan a shorter name"):
        detector.describe()


def test_all_names_of_files_and_rows_are_in_use(
    run_engine: RunEngine, make: Callable[..., Daq]
) -> None:
    daq = make(columns=None)
    daq.open()
    detector, source = daq.port0.frames.images, Source(daq)
    detector.master.put("always")
    detector.on_drop.put("flag")

    def motion() -> Any:
        yield from bps.null()
        source.send(1)

    plan = fly(detector, motion(), prepared=1)
    run_engine(bpp.stage_wrapper(plan, [detector]))
    names = {key.removeprefix(f"{KEY}_") for key in detector.describe() if key != KEY}
    for path in (*detector.files, *detector.masters):
        with h5py.File(path) as file:
            names |= {*file["entry/data"], *file["entry/instrument/images"]}
    assert {"batch", "sequence_number", "frame_start_number", "dropped"} <= names
    for name in names:
        report = check_config(configuration(columns={name: COLUMNS["pulse_id"]}))
        assert "which frames have already" in str(report.errors), name


def test_reductions_have_other_names(detector: FrameDetector) -> None:
    with pytest.raises(ValueError, match="cannot be named 'Hits', like one of the plan's columns"):
        detector.reductions = {"Hits": float}


def test_a_column_of_packets_needs_packets_with_a_number() -> None:
    field = {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"}
    method = {"batch_number": field, "byte_offset": field | {"bit_offset": 32}, "batch_bytes": 512}
    config = configuration(columns=COLUMNS, method={"batch_byte_offset": method})
    (problem,) = check_config(config).errors
    assert problem.path == "interfaces[0].rx.reorder_configs[0].columns.pulses.from"
    assert problem.message == (
        "found 'packets' with batch_byte_offset, where packets have no number in the frame; "
        "accepts first and sum, or another method"
    )
    config = configuration(columns={"n": COLUMNS["pulses"] | {"from": "each"}})
    (problem,) = check_config(config).errors
    assert problem.message == "found 'each', unknown word; accepts 'first', 'sum' or 'packets'"
