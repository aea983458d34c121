"""Flows configured by a plan, and values that the devices reject."""

import json
import time

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from run_documents import until
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import ConfigError, NotReadyError

from .conftest import loopback

BURST = {"count": 50, "size": 100, "udp_dst": 6000}


def capture_of(daq, queue: str):
    daq.port0.capture.queues.put(queue)
    return plans.capture(daq.port0.capture, 50, tx=daq.port0.tx.out, packets=BURST, timeout=30.0)


def test_configured_flows_steer(daq, run_engine, documents):
    table = None

    def plan():
        nonlocal table
        table = yield from plans.configure_flows(
            daq, {"port0": {"images": {"udp_dst": 6000, "queue": "rest", "id": 70}}}
        )
        yield from capture_of(daq, "rest")

    run_engine(plan())

    assert documents.rows()[0]["daq_port0_capture_packets"] == 50
    flow = table["port0"][0]
    assert (flow["id"], flow["match"], flow["action"]["id"]) == (70, {"udp_dst": 6000}, 1)
    used = documents.descriptor()["configuration"]["daq_port0_capture"]["data"]
    assert json.loads(used["daq_flow_table"]) == table
    images = daq.port0.flows.images
    assert images.flow_id.get() == 70
    assert images.queues.get() == ["rest"]
    assert json.loads(images.match.get()) == {"udp_dst": 6000}


@pytest.mark.usefixtures("fixed_flows")
def test_an_open_engine_is_opened_anew(daq, run_engine, documents):
    with daq:
        before = daq.engine
        run_engine(plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 6000}}}))
        assert daq.is_open
        assert daq.engine is not before
        assert before.closed
        run_engine(capture_of(daq, "frames"))
    assert documents.rows()[0]["daq_port0_capture_packets"] == 50


def test_a_closed_engine_stays_closed(daq, run_engine):
    run_engine(plans.configure_flows(daq, {"port0": {"images": {"ipv4_len": 128}}}))
    assert not daq.is_open
    assert daq.flows["port0"][0]["match"] == {"udp_dst": 5000, "ipv4_len": 128}
    run_engine(plans.configure_flows(daq, {"port0": {"images": {"ipv4_len": None}}}))
    assert daq.flows["port0"][0]["match"] == {"udp_dst": 5000}


@pytest.mark.usefixtures("fixed_flows")
def test_flows_are_fixed_while_staged(daq, run_engine):
    def plan():
        yield from bps.stage(daq)
        yield from plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 6000}}})

    with pytest.raises(RuntimeError, match="fixed until it is unstaged"):
        run_engine(plan())
    assert daq.flows["port0"][0]["match"] == {"udp_dst": 5000}


@pytest.mark.parametrize(
    ("flows", "error", "text"),
    [
        ({"port1": {"images": {}}}, LookupError, "daq has no port 'port1'; there are 'port0'"),
        ({"port0": {"image": {}}}, LookupError, "no flow 'image'; there are 'images', 'other'"),
        ({"port0": {"images": {"queue": "x"}}}, LookupError, "no receive queue 'x'"),
        ({"port0": {"images": {"udp_dts": 1}}}, ConfigError, "udp_dts"),
        ({"port0": {"images": {"udp_dst": 70000}}}, ConfigError, "70000"),
        ({"port0": {"images": {"id": 8}}}, ConfigError, "id"),
    ],
)
def test_wrong_flows_change_nothing(daq, run_engine, flows, error, text):
    before = daq.flows
    with daq:
        with pytest.raises(error, match=text):
            run_engine(plans.configure_flows(daq, flows))
        assert daq.flows == before
        assert daq.is_open


def test_a_closed_engine_says_what_to_do(daq):
    with pytest.raises(NotReadyError, match=r"daq.open\(\)"):
        daq.rx_queue("port0", "frames")
    assert daq.port0.rx.frames.batch_size.get() == 64  # what is configured is known


def test_settings_are_checked(daq):
    capture = daq.port0.capture
    with pytest.raises(ValueError, match="accepted are 'fail', 'flag', 'ignore'"):
        capture.on_drop.put("explode")
    with pytest.raises(ValueError, match="accepted is 0 or more"):
        capture.num_packets.set(-1)
    with pytest.raises(TypeError, match="accepted is an integer"):
        capture.num_packets.put(1.5)
    with pytest.raises(ValueError, match="accepted are 'frames', 'rest'"):
        capture.queues.put("nowhere")
    capture.acquire_time.put(3e9)
    for setting in (capture.acquire_time, capture.roll_seconds, capture.linger):
        with pytest.raises(ValueError, match=rf"{setting.name} is 4000000000.0; .* 3e\+09 or less"):
            setting.put(4e9)


def test_settings_that_a_run_has_noted_stay(daq, run_engine):
    capture = daq.port0.capture

    def plan():
        yield from bps.stage(daq)
        yield from bps.abs_set(capture.num_packets, 5, wait=True)
        yield from bps.abs_set(capture.on_drop, "flag", wait=True)

    with pytest.raises(RuntimeError, match="on_drop cannot be changed while .* is staged"):
        run_engine(plan())
    assert capture.num_packets.get() == 5


def test_captures_belong_to_runs(daq):
    capture = daq.port0.capture
    capture.num_packets.put(1)
    with daq, pytest.raises(RuntimeError, match="not staged"):
        capture.trigger()


def test_reading_the_whole_engine(daq, run_engine, documents):
    run_engine(bp.count([daq], 2))
    row = documents.rows()[0]
    assert {"daq_port0_rx_frames_received", "daq_port0_tx_out_sent"} <= set(row)
    configuration = documents.descriptor()["configuration"]["daq"]["data"]
    assert configuration["daq_port0_flows_images_flow_id"] == 7
    assert configuration["daq_port0_rx_frames_batch_size"] == 64
    assert configuration["daq_port0_capture_on_drop"] == "fail"


def test_subscribed_counters_follow_the_engine(daq, run_engine):
    tx, frames = daq.port0.tx.out, daq.port0.rx.frames
    seen, idle, sent = [], [], []
    frames.received.subscribe(lambda value, **_: seen.append(value), run=False)
    frames.dropped.subscribe(lambda value, **_: idle.append(value), run=False)
    tx.lateness_histogram.subscribe(lambda value, **_: sent.append(sum(value)), run=False)
    # Nobody frees them; a flight that ends when values from within it have come.
    packets = plans.packet_source({"count": 60_000, "size": 64, "rate": 50}, tx.link_type)

    def plan():
        yield from bps.prepare(tx, packets, wait=True)
        yield from bps.kickoff(tx, wait=True)
        yield from until(lambda: len(seen) > 1 and any(sent))
        raise RuntimeError("that is enough")

    with pytest.raises(RuntimeError, match="that is enough"):
        run_engine(bpp.run_wrapper(bpp.stage_wrapper(plan(), [tx])))
    assert len([value for value in seen if 0 < value < 60_000]) > 1
    assert any(0 < value < 60_000 for value in sent)
    assert seen == sorted(seen)
    # Subscribers are notified only of changes, except by a reading.
    assert len(idle) < len(seen)


def test_what_is_followed_is_what_is_read(daq, send):
    sender, receiver = daq.port0.tx.out, daq.port0.rx.frames
    with daq:
        now = time.time_ns()
        send(daq, 100)
        sender.lateness_histogram.subscribe(lambda **_: None, run=False)
        wait_for(
            lambda: receiver.received.get() >= 100 and daq.engine.counters["time_ns"] >= now + 10**9
        )
        for device in (sender, receiver):
            copied, fresh = device.take_copied(daq.engine.counters), device.take_values()
            for values in (copied, fresh):
                del values["rate"], values["data_rate"]
            assert copied == fresh


def test_a_plan_drops_all_traffic_of_a_port(daq, run_engine, send):
    port, received = daq.port0, daq.port0.rx.frames
    with pytest.raises(NotReadyError, match="not open"):
        port.drop_all_traffic.put(True)

    def plan():
        yield from bps.stage(daq)
        yield from bps.mv(port.drop_all_traffic, True)
        send(daq, 10)
        wait_for(lambda: received.read()["daq_port0_rx_frames_received"]["value"] == 10)
        yield from bps.mv(port.drop_all_traffic, False)
        send(daq, 5)
        wait_for(lambda: received.read()["daq_port0_rx_frames_received"]["value"] == 15)
        yield from bps.unstage(daq)

    run_engine(plan())
    values = received.read()
    assert values["daq_port0_rx_frames_dropped_filtered"]["value"] == 10
    assert values["daq_port0_rx_frames_received"]["value"] == 15
    port.drop_all_traffic.put(True)
    daq.close()
    with daq:
        assert not port.drop_all_traffic.get()
        send(daq, 5)
        assert received.dropped_filtered.get() == 0


def test_regions_tell_their_free_buffers(daq, send):
    rx, tx = daq.regions.rx, daq.regions.tx
    assert (rx.buffers.get(), rx.buf_size.get(), rx.region_kind.get()) == (8192, 1024, "host")
    before = rx.free.get()
    assert rx.read()["daq_regions_rx_free"]["value"] == before
    seen: list[int] = []
    rx.free.subscribe(lambda value, **_: seen.append(value))
    send(daq, 640)  # ten bursts, which are not received
    end = time.monotonic() + 60
    while not seen or seen[-1] != before - 640:
        assert time.monotonic() < end, (before, seen)
        time.sleep(0.01)
    assert 0 < tx.free.get() <= 4096
    assert rx.describe()["daq_regions_rx_free"]["source"] == "daqiri://daq/regions/rx/free"


def test_a_port_may_be_named_regions(captures):
    configuration = loopback()
    configuration["interfaces"][0]["name"] = "regions"
    daq = make_daq(configuration, directory=captures)
    assert daq.regions_.capture.name == "daq_regions__capture"
    assert daq.regions.rx.buffers.get() == 8192
