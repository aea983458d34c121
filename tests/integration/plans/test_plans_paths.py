"""Where captures are written, and the paths in the documents."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureError, PathInfo, make_daq
from daqiri_ophyd.engine import PcapFile

from .conftest import loopback

BURST = {"count": 10, "size": 60}


def shot(daq, **md):
    return plans.capture(daq.port0.capture, 10, tx=daq.port0.tx.out, packets=BURST, md=md)


def test_a_directory_for_each_stage(daq, run_engine, documents, captures):
    for _ in range(2):
        run_engine(shot(daq))
    first, second = documents.files()
    assert first.parent != second.parent
    assert first.parent.parent == second.parent.parent
    assert first.parents[4] == captures and first.name == "port0_000000.pcap"


def test_paths_with_the_run(daq, run_engine, documents, captures):
    capture = daq.port0.capture
    capture.path.put("{start[sample]}/scan {scan_id:04d}")
    capture.file_prefix.put("{device}_{queue}")
    run_engine.subscribe(daq.run_started, "start")
    run_engine(shot(daq, sample="Fe/Ni #3"))
    run_engine(shot(daq, sample="Fe/Ni #3"))
    names = [str(file.relative_to(captures)) for file in documents.files()]
    assert names == [
        "Fe_Ni _3/scan 0001/daq_port0_capture_frames_000000.pcap",
        "Fe_Ni _3/scan 0002/daq_port0_capture_frames_000000.pcap",
    ]
    assert all(file.is_file() for file in documents.files())


def test_each_run_of_a_stage_has_its_path(daq, run_engine, documents, captures, send):
    capture = daq.port0.capture
    capture.path.put("{uid}")
    capture.num_packets.put(10)

    def reading():
        yield from bps.trigger(capture, group="capture")
        send(daq, 10)
        yield from bps.wait("capture")
        yield from bps.create("primary")
        yield from bps.read(capture)
        yield from bps.save()

    def plan():
        yield from bps.stage(capture)
        for _ in range(2):
            yield from bps.open_run()
            yield from reading()
            yield from reading()
            yield from bps.close_run()
        yield from bps.unstage(capture)

    run_engine.subscribe(daq.run_started, "start")
    run_engine(plan())
    uids = [doc["uid"] for doc in documents.of("start")]
    assert [file.parent.name for file in documents.files()] == [uids[0]] * 2 + [uids[1]] * 2


def test_a_path_with_the_run_needs_no_subscription(daq, run_engine, documents):
    daq.port0.capture.path.put("{scan_id}")
    run_engine(shot(daq))
    assert [file.parent.name for file in documents.files()] == ["1"]


def test_a_path_with_a_run_that_is_not_known(daq):
    daq.port0.capture.path.put("{scan_id}")
    daq.port0.capture.num_packets.put(1)
    daq.port0.capture.stage()
    with pytest.raises(CaptureError, match=r'RE.subscribe\(daq.run_started, "start"\)'):
        daq.port0.capture.trigger()
    daq.port0.capture.unstage()


def test_a_key_that_the_run_has_not(daq, run_engine):
    daq.port0.capture.path.put("{start[sample]}")
    run_engine.subscribe(daq.run_started, "start")
    with pytest.raises(CaptureError, match="'sample'"):
        run_engine(shot(daq))


@pytest.mark.parametrize("value", ["", "  "])
def test_a_key_that_is_empty(daq, run_engine, value):
    daq.port0.capture.path.put("{start[sample]}/{unique}")
    run_engine.subscribe(daq.run_started, "start")
    text = r"daq_port0_capture: start\[sample\] is empty, and the path '{start\[sample\]}/{unique}'"
    with pytest.raises(CaptureError, match=text):
        run_engine(shot(daq, sample=value))


def test_files_of_an_earlier_capture_are_not_mixed_with_new_ones(daq, run_engine):
    daq.port0.capture.path.put("same")
    run_engine(shot(daq))
    with pytest.raises(CaptureError, match="files of another capture, such as port0_000000.pcap"):
        run_engine(shot(daq))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("path", "{sample}", "has the field 'sample'; known are date, device"),
        ("path", "{", "is not a template"),
        ("path", "/tmp", "leads out of the directory"),
        ("path", "a/../../b", "leads out of the directory"),
        ("path", "a#b", "has '#'"),
        ("file_prefix", "a/b", "'a/b' cannot begin a file name"),
        ("file_prefix", "", "need a prefix"),
        ("directory", "/data/#1", "'#' is not allowed in the URI"),
        ("uri", "s3://bucket", "accepted is file://localhost/"),
    ],
)
def test_refused_when_set(daq, setting, value, message):
    signal = getattr(daq.port0.capture, setting)
    before = signal.get()
    with pytest.raises(ValueError, match=f"daq_port0_capture_{setting}.*{message}"):
        signal.set(value)
    assert signal.get() == before


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    daq = make_daq(loopback(), directory="~/data")
    assert daq.port0.capture.directory.get() == str(tmp_path / "data")
    daq.port0.capture.directory.put("~/other")
    assert daq.port0.capture.directory.get() == str(tmp_path / "other")


@pytest.mark.files_in_no_document("its address is that of another host")
def test_readers_find_the_directory_elsewhere(daq, run_engine, documents, captures):
    daq.port0.capture.uri.put("file://localhost/mnt/daq1/")
    run_engine(shot(daq))
    (resource,) = documents.of("stream_resource")
    (file,) = captures.rglob("*.pcap")
    below = file.parent.relative_to(captures)
    assert resource["uri"] == f"file://localhost/mnt/daq1/{below}/"


@pytest.mark.parametrize("uri", [None, "file://localhost/mnt/beamline/"])
def test_a_path_provider_decides(tmp_path, run_engine, documents, uri):
    asked = []

    def provider(device_name):
        asked.append(device_name)
        # The results of ophyd-async's providers have these and other attributes.
        return SimpleNamespace(directory_path=tmp_path / "a", filename="cam", directory_uri=uri)

    with make_daq(loopback(), directory=provider) as daq:
        run_engine(shot(daq))
    (resource,) = documents.of("stream_resource")
    assert asked == ["daq_port0_capture"]
    assert resource["uri"] == uri or f"file://localhost{tmp_path}/a/"
    with PcapFile(tmp_path / "a" / "cam_000000.pcap") as pcap:
        assert len(pcap) == 10


def test_a_provider_is_asked_once_in_a_stage(tmp_path, run_engine, documents):
    asked = itertools.count()

    def provider(_):
        return PathInfo(tmp_path / f"scan {next(asked)}", "cam")

    with make_daq(loopback(), directory=provider) as daq:
        daq.port0.capture.acquire_time.put(0.01)
        run_engine(bp.count([daq.port0.capture], 3))
    assert [file.name for file in documents.files()] == [f"cam_00000{i}.pcap" for i in range(3)]
    assert all(Path(file).is_file() for file in documents.files())
    assert next(asked) == 1


def test_a_date_does_not_lead_out_of_the_directory(daq, run_engine):
    daq.port0.capture.path.put("{date:/etc}")
    with pytest.raises(CaptureError, match="leads out of"):
        run_engine(shot(daq))
