"""Settings as a plan, and limits of one recording."""

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from ophyd.sim import SynAxis, det
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureError
from daqiri_ophyd.engine import PcapFile

BURST = {"count": 50, "size": 64, "rate": 10_000}


def test_configure_sets_and_returns_what_was(daq, run_engine):
    capture = daq.port0.capture
    before = []

    def plan():
        settings = {"num_packets": 5.0, "on_drop": "flag", "path": "{uid}"}
        before.append((yield from plans.configure(capture, settings)))

    run_engine(plan())
    assert before == [{"num_packets": 0, "on_drop": "fail", "path": "{date:%Y/%m/%d}/{unique}"}]
    assert capture.num_packets.get() == 5
    assert capture.on_drop.get() == "flag"
    assert capture.path.get() == "{uid}"


def test_configure_of_parts_of_flows_and_of_other_devices(daq, run_engine):
    settings = {"rx.rest.capture.num_packets": 7, "flows.images.udp_dst": 6000}
    run_engine(plans.configure(daq.port0, settings))
    assert daq.port0.rx.rest.capture.num_packets.get() == 7
    assert daq.flows["port0"][0]["match"] == {"udp_dst": 6000}
    motor = SynAxis(name="motor")
    run_engine(plans.configure(motor, {"velocity": 3}))
    assert motor.velocity.get() == 3


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"num_packets": 5, "num_packet": 5},
            ValueError,
            "daq_port0_capture has no setting 'num_packet'; accepted are writer, .* num_packets, ",
        ),
        ({"packets": 5}, ValueError, "daq_port0_capture has no setting 'packets'; accepted are "),
        (
            {"rx.a.b": 5},
            ValueError,
            "daq_port0_capture has no setting 'rx.a.b': it has no part 'rx'",
        ),
        (
            {"num_packets": 5, "on_drop": "stop"},
            ValueError,
            "daq_port0_capture_on_drop is 'stop'; accepted are 'fail', 'flag', 'ignore'",
        ),
        (
            {"on_drop": "flag", "num_packets": "many"},
            TypeError,
            "daq_port0_capture_num_packets is 'many'; accepted is an integer",
        ),
        ([5], TypeError, "settings is \\[5\\]; accepted is a dict"),
    ],
)
def test_configure_changes_nothing_if_one_is_not_accepted(
    daq, run_engine, settings, error, message
):
    capture = daq.port0.capture
    with pytest.raises(error, match=message):
        run_engine(plans.configure(capture, settings))
    assert capture.num_packets.get() == 0
    assert capture.on_drop.get() == "fail"


def test_configure_of_something_else(run_engine):
    with pytest.raises(TypeError, match="device is a dict; accepted is an ophyd device"):
        run_engine(plans.configure({}, {"num_packets": 5}))


def test_configure_restores_what_was_set_before_a_setting_in_use(daq, run_engine):
    capture = daq.port0.capture

    def plan():
        yield from plans.configure(capture, {"num_packets": 5, "directory": "/elsewhere"})

    with pytest.raises(CaptureError, match="directory cannot be changed while"):
        run_engine(bpp.stage_wrapper(plan(), [capture]))
    assert capture.num_packets.get() == 0


def send(tx):
    yield from bps.prepare(tx, plans.packet_source(BURST, tx.link_type), wait=True)
    yield from bps.trigger(tx, wait=True)


def counts(documents, stream="primary"):
    found = []
    for file in documents.files(stream):
        with PcapFile(file) as pcap:
            found.append(len(pcap))
    return found


def test_limits_of_a_capture_during_a_plan(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(7)
    capture.acquire_time.put(30.0)  # of an earlier plan

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from plans.capture_during(capture, send(tx), num_packets=20)
        yield from plans.capture_during(capture, send(tx), num_packets=0)  # while it runs

    run_engine(plan())
    assert counts(documents) == [20, 50]
    assert (capture.num_packets.get(), capture.acquire_time.get()) == (7, 30.0)


def test_limits_are_restored_after_a_failure(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(7)

    def fail():
        yield from send(tx)
        wait_for(lambda: capture.progress.packets == 50)  # sent, and maybe in transit
        raise ValueError("the motor is stuck")

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from plans.capture_during(capture, fail(), acquire_time=60.0)

    with pytest.raises(ValueError, match="the motor is stuck"):
        run_engine(plan())
    assert counts(documents) == [50]
    assert (capture.num_packets.get(), capture.acquire_time.get()) == (7, 0.0)


def test_limits_of_the_wrapper(daq, run_engine, documents):
    capture = daq.port0.capture
    motor = SynAxis(name="motor")
    capture.num_packets.put(7)
    scan = bp.scan([det], motor, 0, 1, 3)
    run_engine(plans.capture_during_wrapper(scan, capture, acquire_time=0.05))
    assert counts(documents, "packets") == [0]
    assert (capture.num_packets.get(), capture.acquire_time.get()) == (7, 0.0)


def test_a_limit_that_no_detector_has(daq, run_engine):
    capture = daq.port0.capture
    text = "num_frames is 5, and no detector has it: daq_port0_capture. Captures have num_packets"
    with pytest.raises(ValueError, match=text):
        run_engine(plans.capture_during(capture, iter(()), num_frames=5))
