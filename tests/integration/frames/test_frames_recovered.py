"""Rows of files of frames that the run of a killed process lacks."""

import json
import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from preloaded_processes import Preloaded
from run_documents import Documents, until

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.catalog._unfinished import UnfinishedRun
from daqiri_ophyd.cli import _frame_file, _main
from daqiri_ophyd.devices import FrameDetector
from daqiri_ophyd.engine import examine_frames

from .conftest import Source, images

KEY = "daq_port0_frames_images"
COLUMNS = [KEY, f"{KEY}_timestamp", f"{KEY}_batch", f"{KEY}_missing"]
PROCESS = Path(__file__).with_name("killed_process.py")


def rows(documents: Documents) -> dict[str, list[tuple[int, str, int]]]:
    """Rows of each column: their number, and the file and place in it where they are."""
    resources = {doc["uid"]: doc for doc in documents.of("stream_resource")}
    assert len(resources) == len(documents.of("stream_resource"))
    assert len({doc["uid"] for doc in documents.of("stream_datum")}) == len(
        documents.of("stream_datum")
    )
    found: dict[str, list[tuple[int, str, int]]] = {}
    for doc in documents.of("stream_datum"):
        resource = resources[doc["stream_resource"]]
        name = resource["data_key"].removeprefix(KEY).removeprefix("_") or "data"
        assert resource["parameters"]["dataset"] == f"/entry/data/{name}"
        numbers = range(doc["seq_nums"]["start"], doc["seq_nums"]["stop"])
        places = range(doc["indices"]["start"], doc["indices"]["stop"])
        files = resource["parameters"]
        for number, place in zip(numbers, places, strict=True):
            uri, at = resource["uri"], place
            if "template" in files:
                name = files["template"].format(place // files["frames_per_file"])
                uri, at = f"{uri}/{name}", place % files["frames_per_file"]
            found.setdefault(resource["data_key"], []).append((number, uri, at))
    return found


@pytest.mark.parametrize(
    ("kept", "added"),
    [
        ("announced", 12),  # no row, the file has been named
        ("rows", 9),
        ("half a row", 12),  # some columns of the first rows
        ("a file", 7),
        ("the next file", 5),
    ],
)
def test_rows_of_a_killed_process_are_added(
    run_engine: RunEngine,
    documents: Documents,
    detector: FrameDetector,
    source: Source,
    captures: Path,
    kept: str,
    added: int,
) -> None:
    """The documents end where the process was killed; later files of 5 frames exist."""
    detector.roll_frames.put(5)

    def plan() -> Any:
        yield from bps.prepare(detector, 12, wait=True)
        yield from bps.open_run()
        yield from bps.declare_stream(detector, name="primary", collect=True)
        yield from bps.kickoff(detector, wait=True)
        for count, total in ((0, 0), (3, 3), (2, 5), (2, 7), (5, 12)):
            source.send(count)
            yield from until(lambda n=total: detector.get_index() >= n)
            yield from bps.collect(detector, name="primary")
        yield from bps.complete(detector, wait=True)
        yield from bps.collect(detector, name="primary")
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [detector]))
    whole = rows(documents)
    assert [len(places) for places in whole.values()] == [12] * 4
    datums = [n for n, (name, _) in enumerate(documents) if name == "stream_datum"]
    cut = {
        "announced": datums[0],
        "rows": datums[3] + 1,
        "half a row": datums[1] + 1,
        "a file": datums[7] + 1,
        "the next file": datums[11] + 1,
    }[kept]
    if kept in ("a file", "the next file"):
        number = 5 if kept == "a file" else 7
        last = [n for n in datums if documents[n][1]["seq_nums"]["stop"] == number + 1]
        cut = last[3] + 1
    run = UnfinishedRun(documents[:cut], [captures], _frame_file.repair)
    mended = Documents()
    for name, doc in run.complete():
        mended.take(name, doc)
    assert (run.rows, run.unlisted, run.mended) == (added, [], [])
    assert rows(mended) == whole
    assert mended.of("stop")[0]["num_events"] == {"primary": 12}


@pytest.mark.parametrize(("kind", "roll"), [("fly", 0), ("fly", 5), ("step", 0)])
def test_frames_of_a_process_that_was_killed_are_in_its_run(
    tmp_path: Path,
    empty_catalog: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    roll: int,
) -> None:
    process = Preloaded(PROCESS, tmp_path, empty_catalog, kind, roll)
    try:
        assert process.stdout.readline() == "recording\n"
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    files = sorted((tmp_path / "captures").rglob("*.h5"))
    told = [examine_frames(path).run for path in files]
    assert _main._run(["catalog", "recover", "--data", str(tmp_path), "--json"]) == 0
    ((uid, found),) = json.loads(capsys.readouterr().out).items()
    assert (found["problem"], found["unlisted"]) == ("", []), found
    assert [run["uid"] for run in told] == [uid] * len(files)
    assert [examine_frames(path).run for path in files] == told  # after the repair
    recorded = []
    for path in files:
        with h5py.File(path) as file:
            recorded += file["entry/data/batch"][:].tolist()
            last = file["entry/data/last_timestamp"][-1:]
            ends = np.array([file["entry/end_time"].asstr()[()].removesuffix("Z")] * len(last))
            np.testing.assert_array_equal(ends.astype("datetime64[ns]").astype(int), last)
    with Catalog.open(tmp_path / "catalog", readable=[tmp_path / "captures"]) as catalog:
        run = catalog.client[uid]
        assert run.metadata["stop"]["exit_status"] == "abort"
        columns = run["primary"].base
        batches = columns[f"{KEY}_batch"].read()
        sent = images(batches)
        np.testing.assert_array_equal(columns[KEY].read(), sent)
        np.testing.assert_allclose(
            run["primary"].read()[f"{KEY}_mean"],
            sent.mean(axis=tuple(range(1, sent.ndim))),
            rtol=1e-12,
        )
        stored = run.metadata["stop"]["num_events"]["primary"]
        if kind == "fly":
            assert batches.tolist() == recorded
            assert len(recorded) >= 12 and found["rows"] > 0
        else:
            assert found["rows"] == 0
            assert batches.ravel().tolist() == recorded == list(range(6))
        assert stored == len(batches)
        if not roll:
            assert run.validate(raise_on_error=True) is True
    masters = sorted((tmp_path / "captures").rglob("*_master.h5"))
    assert len(masters) == (roll > 0)
    for master in masters:
        assert f"{master}: written, the master of {len(files)} files" in found["mended"]
        with h5py.File(master) as file:
            assert file["entry/data/batch"][:].tolist() == recorded
            np.testing.assert_array_equal(file["entry/data/data"][()], images(recorded))
            assert file["entry/entry_identifier"].asstr()[()] == uid
            assert file["entry/run/plan_type"].asstr()[()] == "generator"
    assert _main._run(["frames", "check", *map(str, files)]) == 0
    capsys.readouterr()
    assert _main._run(["catalog", "recover", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {}
