"""A capture continues a recording that was started before its run."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plans as bp
from bluesky.utils import FailedStatus
from run_documents import Documents

from daqiri_ophyd import plans
from daqiri_ophyd.cli._early_recording import _OPTIONS as OPTIONS
from daqiri_ophyd.devices import CaptureError, Daq
from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import Engine, QueueRecording

from .conftest import packets


@pytest.fixture
def started(
    daq: Daq, captures: Path
) -> Iterator[Callable[..., tuple[QueueRecording, Callable[[int], None]]]]:
    """Open the engine of the device, and start to record one of its queues."""
    begun: list[QueueRecording] = []

    def start(limit: int, **changes: Any) -> QueueRecording:
        engine = Engine.open(daq.config)
        daq.open(engine)
        folder = captures / "early"
        folder.mkdir(parents=True)
        rolls = {"roll_packets": 0, "roll_bytes": 0, "roll_seconds": 0.0}
        limits = {**rolls, "max_packets": limit, "max_seconds": 0.0}
        options = {**OPTIONS, **changes}
        port = engine.port("port0")
        begun.append(
            QueueRecording.start(port, ["frames"], folder, "early", limits=limits, options=options)
        )
        return begun[-1]

    yield start
    for recording in begun:
        recording.stop()


def test_the_run_has_the_packets_from_before_it(
    daq: Daq, started: Any, send: Any, run_engine: RunEngine, documents: Documents
) -> None:
    recording = started(100)
    send(daq, 60)
    capture = daq.port0.capture
    capture.adopt(recording)

    run_engine(plans.capture(capture, num_packets=100), {"descriptor": [lambda *_: send(daq, 40)]})
    (file,) = capture.files
    assert file == recording.directory / "early_000000.pcap"
    sidecar = read_sidecar(file)
    assert sidecar is not None and sidecar.run["uid"] == documents.of("start")[0]["uid"]
    assert packets([file]) == 100
    assert documents.files() == [file]
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [100]
    run_engine(plans.capture(capture, acquire_time=0.1))
    assert capture.files[0].parent != recording.directory


def test_settings_that_differ_are_refused(daq: Daq, started: Any, run_engine: RunEngine) -> None:
    capture = daq.port0.capture
    capture.adopt(started(100))
    with pytest.raises(CaptureError, match="has max_packets 100, and the setting is 7"):
        run_engine(plans.capture(capture, num_packets=7))


def test_other_queues_are_refused(daq: Daq, started: Any, run_engine: RunEngine) -> None:
    capture = daq.port0.rx.rest.capture
    capture.adopt(started(100))
    with pytest.raises(CaptureError, match="has queues .'frames'., and the setting is .'rest'."):
        run_engine(plans.capture(capture, num_packets=100))


def test_recordings_of_other_engines_are_refused(
    make: Callable[..., Daq], started: Any, run_engine: RunEngine
) -> None:
    capture = make().port0.capture
    capture.adopt(started(100))
    with pytest.raises(CaptureError, match="start it on port 'port0' of the open engine"):
        run_engine(plans.capture(capture, num_packets=100))


def test_files_that_do_not_begin_with_number_0_are_refused(
    daq: Daq, captures: Path, run_engine: RunEngine
) -> None:
    daq.open()
    captures.mkdir()
    settings: dict[str, Any] = {"limits": {"max_packets": 100}, "options": OPTIONS}
    recording = QueueRecording.start(
        daq.port("port0"), ["frames"], captures, "early", first_number=3, **settings
    )
    daq.port0.capture.adopt(recording)
    with pytest.raises(CaptureError, match="has first_number 3, and the setting is 0"):
        run_engine(plans.capture(daq.port0.capture, num_packets=100))
    recording.stop()


def test_a_step_scan_continues_no_recording(daq: Daq, started: Any, run_engine: RunEngine) -> None:
    capture = daq.port0.capture
    capture.num_packets.put(100)
    capture.adopt(started(100))
    with pytest.raises(CaptureError, match="a step scan cannot continue a recording"):
        run_engine(bp.count([capture]))


def test_packets_lost_before_the_run_fail_it(
    make: Callable[..., Daq], captures: Path, run_engine: RunEngine
) -> None:
    daq = make(drops=True)
    engine = Engine.open(daq.config)
    port = engine.port("port0")
    daq.open(engine)
    captures.mkdir()
    limits = {"roll_packets": 0, "roll_bytes": 0, "roll_seconds": 0.0}
    limits |= {"max_packets": 100, "max_seconds": 0.0}
    recording = QueueRecording.start(
        port, ["frames"], captures, "early", limits=limits, options=OPTIONS
    )
    lost = dict(recording.before[0])
    lost["ring_full"] -= 3  # as if three had been lost meanwhile
    object.__setattr__(recording, "before", (lost,))
    daq.port0.capture.adopt(recording)
    with pytest.raises(FailedStatus) as raised:
        run_engine(plans.capture(daq.port0.capture, num_packets=100))
    recording.stop()
    assert "3 ring_full" in str(raised.value.__cause__ or raised.value)


def test_a_recording_that_is_not_continued_is_logged(
    daq: Daq, started: Any, caplog: pytest.LogCaptureFixture
) -> None:
    capture = daq.port0.capture
    recording = started(100)
    capture.adopt(recording)
    capture.stage()
    with caplog.at_level(logging.WARNING):
        capture.unstage()
    assert f"the recording in {recording.directory} was not continued" in caplog.text


def test_a_second_engine_is_refused(daq: Daq) -> None:
    daq.open()
    with Engine.open(daq.config) as other, pytest.raises(RuntimeError, match="already open"):
        daq.open(other)
    with pytest.raises(RuntimeError, match="is closed"):
        daq.open(other)
