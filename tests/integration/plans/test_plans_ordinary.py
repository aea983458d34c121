"""Uses of any device: settings, kinds, stage signatures, monitors."""

import math
import time

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.preprocessors import SupplementalData
from bluesky.utils import FailedStatus
from ophyd.sim import det
from run_documents import until
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.engine import PcapFile

from .pauses import paused_when

BURST = {"count": 50, "size": 100}
SLOW = {"count": 600, "size": 100, "rate": 500}


# --- Monitors


def test_a_monitored_counter_has_an_event_for_each_value(daq, run_engine, documents, caplog, send):
    received = daq.port0.rx.frames.received

    def plan():
        yield from bps.stage(daq)
        yield from bps.open_run()
        yield from bps.monitor(received, name="traffic")
        for number in range(1, 6):
            send(daq, 10)
            yield from until(lambda n=number: received.get() == 10 * n)
            yield from until(lambda n=number: received._told == 10 * n)
        yield from bps.unmonitor(received)
        yield from bps.close_run()
        yield from bps.unstage(daq)

    run_engine(plan())
    values = [row[received.name] for row in documents.rows("traffic")]
    assert values == [0, 10, 20, 30, 40, 50]
    assert not [record for record in caplog.records if record.exc_info]


def test_subscribers_may_read_the_device(daq, run_engine, send):
    queue = daq.port0.rx.frames
    seen = []
    with daq:
        for signal in (queue.received, queue.delivered, queue.held):
            signal.subscribe(lambda **_: seen.append(queue.read()[queue.received.name]["value"]))
        send(daq, 10)
        wait_for(lambda: 10 in seen)


# --- Kinds and stage signatures


def run_both(daq, run_engine):
    """Take one reading in a step scan, and one file in a fly scan."""
    capture, tx = daq.port0.capture, daq.port0.tx.out

    def step():
        yield from bps.mv(capture.num_packets, 50)
        yield from bps.prepare(tx, plans.packet_source(BURST, tx.link_type), wait=True)
        yield from bp.count([capture, tx])

    yield "step", step()
    yield "fly", plans.capture(capture, 50, tx=tx, packets=BURST)


@pytest.mark.parametrize("attributes", [["packets"], ["dropped", "t_last_ns"]])
def test_a_capture_may_read_fewer_attributes(daq, run_engine, documents, attributes):
    capture = daq.port0.capture
    capture.read_attrs = attributes
    for _, plan in run_both(daq, run_engine):
        documents.clear()
        run_engine(plan)
        (file,) = documents.files()
        assert file.exists()
        (row,) = documents.rows()
        names = {name for name in row if name.startswith(capture.name)}
        assert names == {f"{capture.name}_{each}" for each in attributes}


def test_a_capture_without_any_attribute_is_refused(daq, run_engine):
    daq.port0.capture.read_attrs = []
    for _, plan in run_both(daq, run_engine):
        with pytest.raises(ValueError, match="needs at least one counter"):
            run_engine(plan)


def test_stage_signatures_take_effect(daq, run_engine, documents):
    capture = daq.port0.capture
    capture.stage_sigs["on_drop"] = "flag"
    for kind, plan in run_both(daq, run_engine):
        documents.clear()
        run_engine(plan)
        (row,) = documents.rows()
        # An argument of the plan takes precedence.
        assert row.get(f"{capture.name}_lossy") is False, kind
        assert len(documents.files()) == 1
    assert capture.on_drop.get() == "fail"


def test_the_source_of_files_is_the_queue_that_is_staged(daq, run_engine, documents):
    capture = daq.port0.capture
    capture.stage_sigs["queues"] = "rest"
    packets = {**BURST, "udp_dst": 5001}
    run_engine(plans.capture(capture, 50, tx=daq.port0.tx.out, packets=packets))
    key = documents.descriptor()["data_keys"][f"{capture.name}_files"]
    assert key["source"] == "daqiri://port0/rx/rest"
    with PcapFile(documents.files()[0]) as pcap:
        assert len(pcap) == 50


# --- Settings


def settings_of(daq):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    return {
        name: getattr(device, name).get()
        for device in (capture, tx)
        for name in device.configuration_attrs
    }


@pytest.mark.parametrize("outcome", ["success", "refused", "failed", "aborted"])
def test_plans_leave_settings_as_they_were(daq, run_engine, outcome):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.acquire_time.put(0.2)
    capture.roll_seconds.put(1.0)
    capture.on_drop.put("flag")
    tx.start_delay.put(0.05)
    before = settings_of(daq)
    if outcome == "success":
        run_engine(plans.capture(capture, 50, tx=tx, packets=BURST))
    elif outcome == "refused":
        with pytest.raises((FailedStatus, ValueError)):
            run_engine(plans.capture(capture, 50, tx=tx, packets=BURST, timeout=-1))
    elif outcome == "failed":
        with pytest.raises(FailedStatus):
            run_engine(plans.capture(capture, 51, tx=tx, packets=BURST, timeout=0.5))
    else:
        with paused_when(run_engine, lambda: tx.transmission is not None, tx):
            run_engine(plans.capture(capture, 600, tx=tx, packets=SLOW))
        run_engine.abort("enough")
    assert settings_of(daq) == before
    run_engine(plans.timed_tx(tx, BURST, start_delay=0.2))
    assert settings_of(daq) == before


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_times_are_finite(daq, value):
    with pytest.raises((TypeError, ValueError), match="accepted is a (finite )?number"):
        daq.port0.capture.acquire_time.put(value)


def test_readings_follow_when_the_clock_is_set_back(daq, run_engine, documents, monkeypatch):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    clock = time.time
    sizes = (100, 50, 20)

    def plan():
        for number, count in enumerate(sizes):
            monkeypatch.setattr(time, "time", lambda back=60 * number: clock() - back)
            yield from plans.capture(capture, count, tx=tx, packets={"count": count, "size": 64})

    run_engine(plan())
    pages = [page["data"] for page in documents.of("event_page")]
    name = f"{capture.name}_packets"
    assert [value for page in pages for value in page.get(name, [])] == list(sizes)


def test_a_deferred_pause_takes_effect(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    with paused_when(run_engine, lambda: tx.transmission is not None, tx, defer=True):
        run_engine(
            plans.capture(capture, 600, tx=tx, packets=SLOW, flush_period=0.05, roll_packets=100)
        )
    run_engine.resume()
    rows = documents.rows()
    assert sum(row[f"{capture.name}_packets"] for row in rows) == 600
    assert documents.stop["exit_status"] == "success"


# --- A closed engine, and inspecting it


def test_baseline_and_monitors_open_the_engine(daq, run_engine, documents):
    assert not daq.connected
    received = daq.port0.rx.frames.received
    run_engine.preprocessors.append(SupplementalData(baseline=[daq], monitors=[received]))
    run_engine(bp.count([det]))
    assert daq.connected
    assert [doc["name"] for doc in documents.of("descriptor")].count("baseline") == 1
    assert [row[received.name] for row in documents.rows("baseline")] == [0, 0]


def test_waiting_for_a_connection_opens_the_engine(daq):
    assert not daq.connected
    daq.wait_for_connection(timeout=1)
    assert daq.connected
    daq.close()
    assert not daq.connected


def test_captures_are_the_detectors(daq):
    assert daq.port0.capture._ophyd_labels_ == {"daqiri", "detectors"}
    assert "detectors" not in daq._ophyd_labels_


def test_a_reading_says_what_was_discarded_before_it_began(daq, run_engine):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(50)
    capture.timeout.put(0.5)
    tx.start_delay.put(0.0)

    def sent_first():
        yield from bps.prepare(tx, plans.packet_source(BURST, tx.link_type), wait=True)
        daq.open()
        yield from bps.trigger(tx, wait=True)
        yield from bp.count([capture])

    with pytest.raises(FailedStatus, match="list the capture before the transmit queue"):
        run_engine(sent_first())


def test_rates_do_not_depend_on_who_looks(daq, send):
    queue = daq.port0.rx.frames
    began = time.monotonic()
    with daq:
        queue.read()
        send(daq, 1000)
        end = began + 20
        while queue.read()[queue.received.name]["value"] < 1000:
            assert time.monotonic() < end
        for _ in range(5):  # others
            time.sleep(0.011)
            rate = queue.rate.get()
        elapsed = time.monotonic() - began
    if elapsed < 1.0:  # all of it is within the second that a rate covers
        assert rate >= 1000 / elapsed


def test_rates_after_a_pause_are_of_the_last_second(daq, send):
    queue, tx = daq.port0.rx.frames, daq.port0.tx.out
    with daq:
        send(daq, 1000)
        wait_for(lambda: queue.read()[queue.received.name]["value"] == 1000)
        now = time.monotonic_ns()
        wait_for(lambda: int(daq.engine.counters["steady_ns"]) > now)
        copied = time.monotonic_ns()
        wait_for(lambda: time.monotonic_ns() > copied + 1_000_000_000)
        for device in (queue, tx):
            assert device.rate.get() == device.data_rate.get() == 0
            assert device.read()[device.rate.name]["value"] == 0


@pytest.mark.parametrize(
    ("make_plan", "message"),
    [
        (lambda port: plans.capture(port, 10), r"a Port; give a capture: daq.port0.capture"),
        (lambda port: plans.capture(port.rx.frames, 10), "give a capture: daq.<port>.capture"),
        (lambda port: plans.timed_tx(port.capture, BURST), "give a transmit queue of a port"),
        (lambda port: plans.capture(port.capture, tx=port, packets=BURST), "give a transmit queue"),
    ],
)
def test_a_device_of_another_kind_is_refused_in_words(daq, run_engine, make_plan, message):
    with pytest.raises(TypeError, match=message):
        run_engine(make_plan(daq.port0))
