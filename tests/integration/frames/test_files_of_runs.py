"""What files of frames and of packets, and their metadata files, report about their run."""

import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from run_documents import Documents

from daqiri_ophyd.cli import _main
from daqiri_ophyd.devices import Daq, FrameDetector
from daqiri_ophyd.documents import read_sidecar, sidecar_path
from daqiri_ophyd.engine import InvalidParameterError, PcapFile, examine_frames, load_config

from .conftest import Source, fly, take_reading

NAME = "daq_port0_frames_images"


def text(file: h5py.File, path: str) -> str:
    return file[path].asstr()[()]


def run_of(path: Path) -> dict[str, Any]:
    """Return what a file of frames and its metadata file report; it must be the same."""
    sidecar = read_sidecar(path)
    assert sidecar is not None
    found = examine_frames(path)
    assert (found.run, found.detector) == (sidecar.run, sidecar.detector)
    assert found.configuration == sidecar.configuration != ""
    return found.run


def expected(start: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return what files of a run report."""
    return {
        "uid": start["uid"],
        "scan_id": start["scan_id"],
        "plan_name": start["plan_name"],
        "start_time": datetime.fromtimestamp(start["time"], UTC).isoformat(),
        "title": f"scan {start['scan_id']} {start['plan_name']}",
        **more,
    }


def count(source: Source, detector: FrameDetector, readings: int) -> Any:
    """Read a detector, whose frames are sent after each trigger."""

    def motion(msg: Any) -> Any:
        if msg.command != "trigger" or msg.obj is not detector:
            return None, None

        def send() -> Any:
            yield from bps.null()
            source.send(1)

        return None, send()

    return bpp.plan_mutator(bp.count([detector], readings), motion)


def test_files_of_a_scan_report_their_run(
    run_engine: RunEngine,
    documents: Documents,
    daq: Daq,
    detector: FrameDetector,
    source: Source,
    capsys: pytest.CaptureFixture[str],
) -> None:
    detector.roll_frames.put(2)
    pixels = {NAME: {"x_pixel_size": 75e-6, "y_pixel_size": 75e-6, "count_time": 0.25, "other": 1}}
    run_engine(
        count(source, detector, 3),
        sample={"name": "Si", "mass": 3},
        proposal_id="p42",
        detector_metadata=pixels,
    )
    (start,) = documents.of("start")
    first, second = detector.files
    run = expected(start, sample="Si", experiment_identifier="p42")
    assert [run_of(path) for path in (first, second)] == [run, run]
    assert examine_frames(first).detector == {
        "name": NAME,
        "count_time": 0.25,
        "x_pixel_size": 75e-6,
        "y_pixel_size": 75e-6,
    }
    assert load_config(examine_frames(first).configuration) == daq.config
    with h5py.File(second) as file:
        assert text(file, "entry/entry_identifier") == start["uid"]
        assert text(file, "entry/experiment_identifier") == "p42"
        assert text(file, "entry/sample/name") == "Si"
        assert text(file, "entry/program_name") == file.attrs["creator"] == "daqiri-ophyd"
        assert file["entry/run/scan_id"][()] == start["scan_id"]
        device = file["entry/instrument/images"]
        assert device["bit_depth_readout"][()] == 16
        assert (device["x_pixel_size"][()], device["x_pixel_size"].attrs["units"]) == (75e-6, "m")
        assert device["data"].attrs["units"] == "counts"
        assert file["entry/data"].attrs["axes"].tolist() == ["timestamp", ".", "."]
        assert datetime.fromisoformat(file.attrs["file_time"]).tzinfo is UTC
    assert _main._run(["frames", "info", str(first)]) == 0
    printed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert printed["run"] == start["uid"]
    assert (printed["scan"], printed["sample"]) == (f"{start['scan_id']} count", "Si")
    assert (printed["started"], printed["detector"]) == (run["start_time"], NAME)
    assert _main._run(["frames", "info", "--json", str(first)]) == 0
    assert json.loads(capsys.readouterr().out)[str(first)]["run"] == run


def test_runs_of_one_stage_have_files_of_their_own(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    def two_runs() -> Any:
        for _ in range(2):
            yield from bps.open_run({"plan_name": "own"})
            for _ in range(2):
                yield from take_reading(detector, source)
            yield from bps.close_run()

    run_engine(bpp.stage_wrapper(two_runs(), [detector]))
    starts = documents.of("start")
    assert [run_of(path) for path in detector.files] == [expected(start) for start in starts]
    assert [examine_frames(path).frames for path in detector.files] == [2, 2]


def test_the_file_of_a_fly_scan_reports_its_run(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    detector.num_frames.put(2)

    def send() -> Any:
        yield from bps.null()
        source.send(2)

    run_engine(bpp.stage_wrapper(fly(detector, send()), [detector]))
    (path,), (start,) = detector.files, documents.of("start")
    assert run_of(path)["uid"] == start["uid"]


@pytest.mark.files_in_no_document("the last reading is in no run")
def test_a_run_that_has_ended_is_not_that_of_later_files(
    run_engine: RunEngine, documents: Documents, detector: FrameDetector, source: Source
) -> None:
    run_engine(count(source, detector, 1))
    detector.stage()
    status = detector.trigger()
    source.send(1)
    status.wait(10)
    list(detector.collect_asset_docs())
    detector.unstage()
    (path,) = detector.files
    assert run_of(path) == {}
    assert examine_frames(path).detector == {"name": NAME}
    with h5py.File(path) as file:
        assert text(file, "entry/entry_identifier") == ""


def test_a_run_that_becomes_known_while_files_are_written(
    detector: FrameDetector, source: Source, tmp_path: Path
) -> None:
    """Files that are complete before cannot report it; one that is open has reserved space."""
    plan = detector.daq.port("port0").reorder["images"]
    later = {"uid": "u" * 36, "scan_id": 7, "sample": "é" * 200}
    with plan.record(tmp_path, roll_frames=3, metadata={"detector": "camera"}) as recorder:
        source.send(4)
        while recorder.snapshot().frames < 4:
            recorder.wait(10)
        recorder.describe({"detector": "camera", **later})
        recorder.roll()
        recorder.describe({"detector": "camera", "uid": "another run"})
        source.send(1)
        while recorder.snapshot().frames < 5:
            recorder.wait(10)
        recorder.describe({"detector": "camera", "uid": "a third run"})  # not of this file
    first, second, third = (file.path for file in recorder.files())
    assert run_of(first) == {}
    sidecar = read_sidecar(second)
    assert sidecar is not None and sidecar.run == later
    assert examine_frames(second).run == {**later, "sample": "é" * 128}
    assert run_of(third) == {"uid": "another run"}


def test_files_without_a_run(detector: FrameDetector, source: Source, tmp_path: Path) -> None:
    plan = detector.daq.port("port0").reorder["images"]
    with plan.record(tmp_path, max_frames=1) as recorder:
        source.send(1)
        while recorder.snapshot().running:
            recorder.wait(10)
    (file,) = recorder.files()
    assert run_of(file.path) == examine_frames(file.path).detector == {}
    with h5py.File(file.path) as opened:
        assert {"entry_identifier", "title", "run"}.isdisjoint(opened["entry"])
    with pytest.raises(InvalidParameterError, match="metadata has the key 'colour'; accepted are"):
        plan.record(tmp_path, "other", metadata={"colour": "red"})
    with pytest.raises(InvalidParameterError, match="'three' as scan_id; accepted is an integer"):
        plan.record(tmp_path, "other", metadata={"scan_id": "three"})


def test_files_of_earlier_versions_are_read(
    detector: FrameDetector, source: Source, tmp_path: Path
) -> None:
    plan = detector.daq.port("port0").reorder["images"]
    with plan.record(tmp_path, max_frames=1, metadata={"uid": "u", "scan_id": 3}) as recorder:
        source.send(1)
        while recorder.snapshot().running:
            recorder.wait(10)
    (file,) = recorder.files()
    assert run_of(file.path) == {"uid": "u", "scan_id": 3}
    with h5py.File(file.path, "a") as opened:
        for name in ("entry_identifier", "run", "configuration", "end_time"):
            del opened["entry"][name]
        opened["entry/title"] = b"not \xff UTF-8"
    found = examine_frames(file.path)
    assert (found.run, found.configuration) == ({"title": "not � UTF-8"}, "")
    assert found.frames == 1
    content = json.loads(sidecar_path(file.path).read_bytes())
    for name in ("run", "configuration"):
        del content[name]
    sidecar_path(file.path).write_text(json.dumps(content))
    assert _main._run(["frames", "check", str(file.path)]) == 0


def test_captures_report_their_run(
    run_engine: RunEngine,
    documents: Documents,
    make: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    daq = make()
    capture = daq.port0.capture
    daq.open()
    source = Source(daq)
    capture.num_packets.put(8)

    def send(msg: Any) -> Any:
        if msg.command != "trigger":
            return None, None

        def sending() -> Any:
            yield from bps.null()
            source.send(1)

        return None, sending()

    run_engine(bpp.plan_mutator(bp.count([capture], 2), send), sample="Ge")
    (start,) = documents.of("start")
    sidecars = [read_sidecar(path) for path in capture.files]
    run = expected(start, sample="Ge")
    assert [sidecar and sidecar.run for sidecar in sidecars] == [run, run]
    for sidecar in sidecars:
        assert sidecar is not None
        assert sidecar.detector == {"name": "daq_port0_capture"}
        assert load_config(sidecar.configuration) == daq.config
    first = capture.files[0]
    assert _main._run(["pcap", "info", str(first)]) == 0
    printed = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if " " in line
    )
    assert (printed["run"], printed["detector"]) == (start["uid"], "daq_port0_capture")
    copy = shutil.copy(first, tmp_path / "alone.pcap")
    with PcapFile(copy) as pcap:
        assert len(pcap) == 8
    assert subprocess.run(["tcpdump", "-nr", copy], capture_output=True, check=True).stdout
