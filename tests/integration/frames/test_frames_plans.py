"""Plans that record frames."""

import numpy as np
import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.callbacks.best_effort import BestEffortCallback
from ophyd.sim import SynAxis
from ophyd.status import Status

from daqiri_ophyd import plans

from .test_frames_in_scans import read


def settings(detector):
    return {name: one["value"] for name, one in detector.read_configuration().items()}


@pytest.mark.parametrize(
    "plan",
    [
        lambda detector: plans.record(detector, 20),
        lambda detector: plans.capture(detector, 20),
        lambda detector: plans.record(detector, num_frames=20, roll_frames=8, flush_period=0.05),
    ],
    ids=["record", "capture", "in files"],
)
def test_a_number_of_frames_is_recorded(
    run_engine, documents, detector, source, catalog, daq, plan
):
    detector.acquire_time.put(30.0)
    detector.num_frames.put(3)
    before = settings(detector)
    bec = BestEffortCallback()
    bec.disable_plots()
    run_engine.subscribe(bec)
    source.start()
    (uid,) = run_engine(plan(detector))
    columns = read(catalog, uid)
    assert columns["data"].shape[0] == 20
    assert (np.diff(columns["batch"]) == 1).all()
    start = documents.of("start")[-1]
    assert start["plan_name"] == "record"
    assert start["detectors"] == [detector.name]
    assert start["daqiri"]["daq"]["engine"] == "loopback"
    assert settings(detector) == before


def test_frames_of_a_time_are_recorded(run_engine, detector, source, catalog, daq):
    source.start()
    (uid,) = run_engine(plans.record(detector, acquire_time=0.3))
    columns = read(catalog, uid)
    assert len(columns["batch"]) > 0
    assert (np.diff(columns["batch"]) == 1).all()


def test_a_recording_without_a_limit_is_refused(run_engine, detector, documents):
    with pytest.raises(ValueError, match="has no limit. Give num_frames or acquire_time"):
        run_engine(plans.record(detector))
    with pytest.raises(TypeError, match="give a frame detector: daq.<port>.frames.<plan>"):
        run_engine(plans.record(detector.daq.port0.capture, 10))
    with pytest.raises(TypeError, match="a capture: daq.port0.capture or a frame detector"):
        run_engine(plans.capture(detector.daq.port0, 10))
    assert documents == []


def test_frames_while_a_motor_moves(run_engine, documents, detector, source, catalog, daq):
    motor = SynAxis(name="motor", delay=0.2)
    before = settings(detector)
    source.start()
    (uid,) = run_engine(plans.fly_scan(detector, motor, -1, 5, md={"sample": "FeNi"}))
    columns = read(catalog, uid)
    assert len(columns["batch"]) > 5
    assert (np.diff(columns["batch"]) == 1).all()
    positions = [row["motor"] for row in documents.rows("motor_monitor")]
    assert (positions[0], positions[-1]) == (-1, 5)
    start = documents.of("start")[-1]
    assert (start["plan_name"], start["motors"], start["sample"]) == ("fly_scan", ["motor"], "FeNi")
    assert settings(detector) == before


class Piezo:
    """A motor that reports no positions while it moves."""

    name, parent, position = "piezo", None, 0.0

    def set(self, value):
        self.position = value
        status = Status()
        status.set_finished()
        return status

    def read(self):
        return {"piezo": {"value": self.position, "timestamp": 0.0}}

    def describe(self):
        return {"piezo": {"source": "sim", "dtype": "number", "shape": []}}


def test_a_motor_that_reports_nothing_is_read_before_and_after(
    run_engine, documents, detector, source
):
    source.start()
    run_engine(plans.fly_scan(detector, Piezo(), 2, 3))
    assert [row["piezo"] for row in documents.rows("baseline")] == [2, 3]


def test_packets_while_a_motor_moves(run_engine, documents, detector, source, daq):
    capture = daq.port0.capture
    capture.num_packets.put(3)
    source.start()
    run_engine(plans.fly_scan(capture, SynAxis(name="motor", delay=0.2), 0, 1))
    (row,) = documents.rows()
    assert row[capture.packets.name] > 3
    assert capture.num_packets.get() == 3


def test_a_number_of_frames_during_a_plan(run_engine, detector, source, catalog):
    detector.num_frames.put(0)

    @bpp.stage_decorator([detector])
    @bpp.run_decorator()
    def plan():
        yield from plans.capture_during(detector, bps.null(), num_frames=7, stream="seven")
        yield from bps.prepare(detector, 4, wait=True)
        yield from plans.capture_during(detector, bps.null(), num_frames=6, stream="six")

    source.start()
    (uid,) = run_engine(plan())
    assert read(catalog, uid, "seven")["data"].shape[0] == 7
    assert read(catalog, uid, "six")["data"].shape[0] == 6
    assert detector.num_frames.get() == 0


def test_frames_until_a_plan_ends_and_restored_settings(run_engine, detector, source, catalog):
    scan = bp.count([SynAxis(name="diode")], 2, delay=0.1)
    source.start()
    (uid,) = run_engine(plans.capture_during_wrapper(scan, detector, stream="images", num_frames=0))
    assert len(read(catalog, uid, "images")["batch"]) > 2
    assert detector.num_frames.get() == 1
