"""Plans that are checked before they run: nothing is touched."""

import inspect

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.simulators import RunEngineSimulator, check_limits, summarize_plan
from ophyd.sim import SynAxis, det

from daqiri_ophyd import plans
from daqiri_ophyd.devices import HostReadiness

from ..frames.conftest import configuration

CHECKS = {
    "summarize_plan": summarize_plan,
    "check_limits": check_limits,
    "RunEngineSimulator": lambda plan: RunEngineSimulator().simulate_plan(plan),
}
PACKETS = {"count": 10, "size": 64}


@pytest.fixture
def build():
    return configuration


def of_each_plan(daq, tmp_path):
    """Return a call of every public plan."""
    port = daq.port0
    capture, frames, tx = port.capture, port.frames.images, port.tx.out
    motor = SynAxis(name="motor")
    motor.check_value = lambda value: None
    readiness = HostReadiness(name="readiness")

    def unopened():
        raise AssertionError("a simulation opens no catalog")

    def scan():
        return bp.scan([det], motor, 0, 1, 3)

    return {
        "capture": lambda: plans.capture(capture, 10, tx=tx, packets=PACKETS),
        "capture of frames": lambda: plans.capture(frames, 10),
        "capture_scan": lambda: plans.capture_scan(capture, motor, 0, 1, 3, num_packets=5),
        "capture_during": lambda: plans.capture_during(
            {"images": frames, "packets": capture}, bps.mv(motor, 1), num_packets=10, num_frames=5
        ),
        "capture_during_wrapper": lambda: plans.capture_during_wrapper(
            scan(), capture, tx=tx, acquire_time=0.5
        ),
        "capture_during_decorator": lambda: plans.capture_during_decorator(frames)(scan)(),
        "configure": lambda: plans.configure(capture, {"num_packets": 5, "on_drop": "flag"}),
        "configure_flows": lambda: plans.configure_flows(
            daq, {"port0": {"data": {"udp_dst": 7777}}}
        ),
        "engine_metadata_wrapper": lambda: plans.engine_metadata_wrapper(bp.count([capture])),
        "reading_streams_wrapper": lambda: plans.reading_streams_wrapper(bp.count([capture])),
        "fly_scan": lambda: plans.fly_scan(frames, motor, 0, 1),
        "host_ready_wrapper": lambda: plans.host_ready_wrapper(scan(), readiness),
        "record": lambda: plans.record(frames, 10),
        "replay": lambda: plans.replay(tx, -1, unopened, detector=capture),
        "timed_tx": lambda: plans.timed_tx(tx, PACKETS),
        "verify_replay": lambda: plans.verify_replay(tx, -1, capture, unopened),
        "with_catalog": lambda: plans.with_catalog(plans.replay, unopened)(tx, -1),
    }


def test_every_public_plan_is_among_them(daq, tmp_path):
    public = {name for name in plans.__all__ if inspect.isfunction(getattr(plans, name))}
    assert public - {"packet_source", "setup"} == set(of_each_plan(daq, tmp_path)) - {
        "capture of frames"
    }


@pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_simulation_changes_nothing(daq, tmp_path, captures, run_engine, check, opened):
    if opened:
        daq.open()
    flows, engine = daq.flows, daq._engine
    settings = daq.read_configuration() | daq.port0.frames.images.read_configuration()
    settings = {name: reading["value"] for name, reading in settings.items()}
    for make in of_each_plan(daq, tmp_path).values():
        check(make())
    assert daq.flows == flows
    assert daq._engine is engine
    now = daq.read_configuration() | daq.port0.frames.images.read_configuration()
    assert {name: reading["value"] for name, reading in now.items()} == settings
    assert not captures.exists()


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_simulation_over_tcp_counts_no_bytes_of_a_closed_engine(profile, run_engine, check):
    daq, capture, tx = profile("tcp")
    check(plans.capture(capture, tx=tx, packets=PACKETS))
    assert not daq.is_open
