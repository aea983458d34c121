"""Flows as devices: their counters, and keys of their matches that plans set."""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import yaml
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from free_ports import free_port
from run_documents import until
from waiting import eventually

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.devices.daq._configuration import flow_table
from daqiri_ophyd.devices.parts._ticker import default_ticker
from daqiri_ophyd.engine import ConfigError, NotReadyError, NotSupportedError

from .conftest import prepare

BURST = {"count": 50, "size": 100}
FRAME = 142
"""Bytes of a packet of `BURST`, headers included."""


def transmit(daq, **packets):
    """Send, and wait until all of it has arrived."""
    rx = daq.port0.rx
    before = rx.frames.received.get() + rx.rest.received.get()
    yield from prepare(daq.port0.tx.out, BURST | packets)
    yield from bps.trigger(daq.port0.tx.out, wait=True)
    count = (BURST | packets)["count"]
    yield from until(lambda: rx.frames.received.get() + rx.rest.received.get() == before + count)


def test_flows_count_what_they_match(daq, run_engine):
    flows = daq.port0.flows

    def plan():
        yield from transmit(daq, udp_dst=5000)
        yield from transmit(daq, udp_dst=5001, count=20)
        yield from transmit(daq, udp_dst=7000, count=10)  # of no flow

    with daq:
        run_engine(plan())
        values = [(flow.packets.get(), flow.bytes.get()) for flow in (flows.images, flows.other)]
        received = daq.port0.rx.frames.received.get() + daq.port0.rx.rest.received.get()
    assert values == [(50, 50 * FRAME), (20, 20 * FRAME)]
    assert received == 50 + 20 + 10


def test_a_run_reads_flows_and_their_matches(daq, run_engine, documents):
    images = daq.port0.flows.images
    run_engine(transmit(daq, udp_dst=5000))
    run_engine(bp.count([images], 2))
    assert [row["daq_port0_flows_images_packets"] for row in documents.rows()] == [50, 50]
    assert [row["daq_port0_flows_images_bytes"] for row in documents.rows()] == [50 * FRAME] * 2
    descriptor = documents.descriptor()
    assert descriptor["hints"][images.name] == {"fields": ["daq_port0_flows_images_packets"]}
    key = descriptor["data_keys"]["daq_port0_flows_images_bytes"]
    assert (key["dtype"], key["units"]) == ("integer", "byte")
    assert key["source"] == "daqiri://port0/flows/images/bytes"
    used = descriptor["configuration"][images.name]
    values = {key.rpartition("images_")[2]: value for key, value in used["data"].items()}
    assert (values["udp_src"], values["udp_dst"], values["ipv4_len"]) == (0, 5000, 0)
    assert (values["ipv4_src"], values["ipv4_dst"], values["queue"]) == ("", "", "frames")
    assert json.loads(values["match"]) == {"udp_dst": 5000}
    types = {
        key: used["data_keys"][f"{images.name}_{key}"]["dtype"] for key in ("udp_dst", "queue")
    }
    assert types == {"udp_dst": "integer", "queue": "string"}


def test_subscribed_counters_of_flows_follow_the_engine(daq, run_engine):
    images = daq.port0.flows.images
    seen: list[int] = []
    images.packets.subscribe(lambda value, **_: seen.append(value), run=False)

    def plan():
        yield from transmit(daq, udp_dst=5000)
        yield from until(lambda: seen and seen[-1] == 50)

    run_engine(plan())
    copied = images.take_copied(daq.engine.counters)
    assert copied == images.take_values() == {"packets": 50, "bytes": 50 * FRAME}


def test_a_plan_moves_a_key_of_a_match(daq, run_engine):
    images = daq.port0.flows.images

    def plan():
        yield from transmit(daq, udp_dst=6000)
        yield from bps.mv(images.udp_dst, 6000)
        yield from transmit(daq, udp_dst=6000)

    with daq:
        before = daq.engine
        run_engine(plan())
        assert daq.engine is before
        assert (images.packets.get(), daq.port0.rx.frames.received.get()) == (50, 100)
    assert images.udp_dst.get() == 6000
    assert json.loads(images.match.get()) == {"udp_dst": 6000}


def test_two_flows_are_changed_together(daq, run_engine, documents):
    images, other = daq.port0.flows.images, daq.port0.flows.other

    def plan():
        yield from bps.mv(images.udp_dst, "5001-5009", other.udp_dst, 5000, other.queue, "frames")
        yield from transmit(daq, udp_dst=5005)
        yield from transmit(daq, udp_dst=5000, count=20)

    run_engine(plan())
    assert (images.packets.get(), other.packets.get()) == (50, 20)
    assert daq.port0.rx.frames.received.get() == 70
    assert other.queues.get() == ["frames"]


def test_absent_keys_have_a_value_that_removes_them(daq, run_engine):
    images = daq.port0.flows.images
    keys = {
        images.udp_src: (4000, 0),
        images.udp_dst: ("6000-6003", 0),
        images.ipv4_len: (128, 0),
        images.ipv4_src: ("192.0.2.1", ""),
        images.ipv4_dst: ("192.0.2.2", ""),
    }
    for signal, (value, _) in keys.items():
        run_engine(bps.mv(signal, value))
    assert daq.flows["port0"][0]["match"] == {
        signal.attr_name: value for signal, (value, _) in keys.items()
    }
    dtype = images.describe_configuration()["daq_port0_flows_images_udp_dst"]["dtype"]
    assert dtype == "string"
    for signal, (value, absent) in keys.items():
        assert signal.get() == value
        run_engine(bps.mv(signal, absent))
        assert signal.get() == absent
    assert json.loads(images.match.get()) == {}


@pytest.mark.usefixtures("fixed_flows")
def test_a_scan_cannot_move_a_match_where_that_takes_a_new_engine(daq, run_engine):
    capture, udp_dst = daq.port0.capture, daq.port0.flows.images.udp_dst
    with pytest.raises(RuntimeError, match="daq is staged, and the flows of daq are fixed"):
        run_engine(bp.list_scan([capture], udp_dst, [6000, 5000]))
    assert udp_dst.get() == 5000
    run_engine(bps.mv(udp_dst, 6000))
    run_engine(plans.capture(capture, 50, tx=daq.port0.tx.out, packets=BURST | {"udp_dst": 6000}))
    assert daq.port0.flows.images.packets.get() == 50


def test_flows_change_within_a_run(daq, run_engine, documents):
    images = daq.port0.flows.images

    @bpp.stage_decorator([images])
    @bpp.run_decorator()
    def plan():
        yield from transmit(daq, udp_dst=5000)
        yield from bps.trigger_and_read([images])
        table = {"port0": {"images": {"udp_dst": 6000}}}
        yield from plans.configure_flows(daq, table)
        yield from transmit(daq, udp_dst=6000)
        yield from transmit(daq, udp_dst=5000, count=20)
        yield from bps.trigger_and_read([images])

    with daq:
        before = daq.engine
        run_engine(plan())
        assert daq.engine is before
    rows = documents.rows()
    assert [row["daq_port0_flows_images_packets"] for row in rows] == [50, 100]
    (row,) = documents.rows("flows")
    assert json.loads(row["daq_flow_table"])["port0"][0]["match"] == {"udp_dst": 6000}
    assert [each["name"] for each in documents.of("descriptor")] == ["primary", "flows"]
    assert row["daq_configuration_sha256"] == daq.config_sha256


def test_flows_and_their_devices_come_and_go(daq, run_engine):
    flows, images = daq.port0.flows, daq.port0.flows.images
    table = {"port0": {"more-of-it": {"id": 70, "queue": "rest", "udp_dst": 6000}}}
    with daq:
        engine = daq.engine
        run_engine(plans.configure_flows(daq, table))
        more = flows.more_of_it
        assert [flow.member_name for flow in flows.members] == ["images", "other", "more-of-it"]
        assert (more.flow_id.get(), more.queue.get(), more.udp_dst.get()) == (70, "rest", 6000)
        run_engine(transmit(daq, udp_dst=6000))
        assert more.packets.get() == 50
        run_engine(plans.configure_flows(daq, table))
        assert flows.more_of_it is more
        assert "daq_port0_flows_more_of_it_packets" in daq.read()
        run_engine(plans.configure_flows(daq, {"port0": {"more-of-it": None}}))
        run_engine(plans.configure_flows(daq, {"port0": {"more-of-it": None}}))
        assert flows.component_names == ("images", "other")
        assert flows.images is images
        assert not hasattr(flows, "more_of_it")
        assert "daq_port0_flows_more_of_it_packets" not in daq.read()
        assert daq.engine is engine
        run_engine(transmit(daq, udp_dst=6000))
        assert daq.port0.rx.rest.received.get() == 50


def test_a_closed_engine_has_added_flows_when_it_is_opened(daq, run_engine):
    run_engine(
        plans.configure_flows(daq, {"port0": {"more": {"id": 70, "queue": "rest"}, "other": None}})
    )
    assert not daq.is_open
    run_engine(transmit(daq, udp_dst=6000))
    assert daq.port0.flows.more.packets.get() == 50


@pytest.mark.usefixtures("fixed_flows")
def test_stage_sigs_are_refused(daq, run_engine):
    daq.stage_sigs["port0.flows.images.udp_dst"] = 6000
    with pytest.raises(RuntimeError, match="daq is staged"):
        run_engine(bp.count([daq]))
    assert daq.port0.flows.images.udp_dst.get() == 5000
    assert not daq.port0.capture.busy


@pytest.mark.usefixtures("fixed_flows")
def test_a_part_that_is_staged_or_sends_keeps_the_flows(daq, run_engine):
    capture, tx, udp_dst = daq.port0.capture, daq.port0.tx.out, daq.port0.flows.images.udp_dst

    def staged():
        yield from bps.stage(capture)
        yield from bps.mv(udp_dst, 6000)

    with pytest.raises(RuntimeError, match="daq_port0_capture is staged, and the flows of daq"):
        run_engine(staged())
    capture.unstage()

    def sending():
        yield from prepare(tx, BURST | {"interval": 1.0})
        yield from bps.trigger(tx)
        yield from bps.mv(udp_dst, 6000)

    with pytest.raises(RuntimeError, match="daq_port0_tx_out is sending, and the flows of daq"):
        run_engine(sending())
    tx.stop()
    assert udp_dst.get() == 5000


@pytest.mark.parametrize(
    ("key", "value", "error", "text"),
    [
        ("udp_dst", 70000, ConfigError, r"flows\[0\].match.udp_dst: found '70000'"),
        ("udp_dst", "6003-6000", ConfigError, "udp_dst"),
        ("ipv4_len", 70000, ConfigError, "ipv4_len"),
        ("ipv4_src", "192.0.2", ConfigError, "ipv4_src"),
        ("udp_dst", None, TypeError, "images_udp_dst is None; accepted is a text or an integer"),
        ("udp_dst", 5000.5, TypeError, "images_udp_dst is 5000.5"),
        ("ipv4_len", "100", TypeError, "images_ipv4_len is '100'; accepted is an integer, and 0"),
        ("ipv4_src", 7, TypeError, "images_ipv4_src is 7; accepted is a text, and '' for none"),
        ("udp_dst", True, TypeError, "images_udp_dst is True"),
        ("queue", "nowhere", LookupError, "no receive queue 'nowhere'; there are 'frames', 'rest'"),
        ("queue", 1, TypeError, "images_queue is 1; accepted is the name of a receive queue"),
    ],
)
def test_wrong_values_change_nothing(daq, run_engine, key, value, error, text):
    before = daq.flows
    with daq:
        engine = daq.engine
        with pytest.raises(error, match=text):
            run_engine(bps.mv(getattr(daq.port0.flows.images, key), value))
        assert daq.engine is engine
    assert daq.flows == before


def test_the_value_that_is_there_changes_nothing(daq, run_engine):
    images = daq.port0.flows.images
    with daq:
        engine = daq.engine
        run_engine(bps.mv(images.udp_dst, 5000, images.queue, "frames", images.ipv4_src, ""))
        run_engine(bps.mv(images.udp_dst, "5000", images.ipv4_src, "0.0.0.0"))
        assert daq.engine is engine


def test_an_engine_that_cannot_be_opened_is_opened_as_it_was(captures, run_engine):
    port = str(free_port("udp"))
    configuration = yaml.safe_load(profiles.path("udp").read_text().replace("47100", port))
    rx = configuration["daqiri"]["cfg"]["interfaces"][0]["rx"]
    # Sockets reject flows with this match.
    rx["flows"] = [
        {
            "name": "images",
            "id": 1,
            "match": {"udp_dst": 5000},
            "action": {"type": "queue", "id": 0},
        }
    ]
    daq = make_daq(configuration, directory=captures)
    match = {"ecpri": {"msg_type": 0, "pc_id": 8}}
    with daq:
        with pytest.raises(NotSupportedError, match="flow 'images'"):
            run_engine(plans.configure_flows(daq, {"receiver": {"images": {"match": match}}}))
        assert daq.is_open
        assert daq.flows["receiver"][0]["match"] == {"udp_dst": 5000}


def test_subscribers_are_told_of_changed_keys(daq, run_engine):
    images = daq.port0.flows.images
    seen: list[int | str] = []
    images.udp_dst.subscribe(lambda value, **_: seen.append(value))
    run_engine(bps.mv(images.udp_dst, 6000))
    run_engine(plans.configure_flows(daq, {"port0": {"images": {"udp_dst": "6000-6003"}}}))
    run_engine(plans.configure_flows(daq, {"port0": {"other": {"udp_dst": 7000}}}))
    assert seen == [5000, 6000, "6000-6003"]


def test_flows_of_udp_sockets_count_and_move(captures, run_engine):
    port = str(free_port("udp"))
    configuration = yaml.safe_load(profiles.path("udp").read_text().replace("47100", port))
    receiver = configuration["daqiri"]["cfg"]["interfaces"][0]
    receiver["rx"]["flows"] = [
        {"name": name, "id": i, "match": match, "action": {"type": "queue", "id": 0}}
        for i, (name, match) in enumerate(
            {"short": {"ipv4_len": 128}, "local": {"ipv4_src": "127.0.0.1"}}.items(), 1
        )
    ]
    with make_daq(configuration, "daq", directory=captures) as daq:
        short, local = daq.receiver.flows.short, daq.receiver.flows.local
        queue, tx = daq.receiver.rx.rx_q0, daq.sender.tx.tx_q0

        def transmit(size):
            before = queue.received.get()
            yield from prepare(tx, {"count": 50, "size": size})
            yield from bps.trigger(tx, wait=True)
            yield from until(lambda: queue.received.get() == before + 50)

        def plan():
            yield from transmit(100)
            yield from transmit(200)
            counted = [(flow.packets.get(), flow.bytes.get()) for flow in (short, local)]
            assert counted == [(50, 5000), (50, 10_000)]
            yield from bps.mv(short.ipv4_len, 228, local.ipv4_src, "127.0.0.2")
            yield from transmit(100)
            yield from transmit(200)
            counted = [(flow.packets.get(), flow.bytes.get()) for flow in (short, local)]
            assert counted == [(50, 10_000), (0, 0)]

        run_engine(plan())
        assert queue.received.get() == 100


def test_keys_that_threads_set_at_once_are_all_there(daq):
    images, other = daq.port0.flows.images, daq.port0.flows.other
    daq.open()
    for number in range(1, 6):
        changes = [
            (images.udp_dst, 6000 + number),
            (images.udp_src, 7000 + number),
            (images.ipv4_len, 100 + number),
            (other.udp_dst, 8000 + number),
        ]
        start = threading.Barrier(len(changes))

        def change(key, value, start=start):
            start.wait()
            key.put(value)

        with ThreadPoolExecutor(len(changes)) as threads:
            for done in [threads.submit(change, *one) for one in changes]:
                done.result(timeout=60)
        assert [key.get() for key, _ in changes] == [value for _, value in changes]
        assert flow_table(daq.engine.config.to_dict()) == daq.flows


@pytest.mark.usefixtures("fixed_flows")
def test_an_engine_that_is_read_while_flows_change_has_the_new_ones(daq):
    images = daq.port0.flows.images
    daq.open()
    end = threading.Event()

    def read():
        while not end.is_set():
            with contextlib.suppress(NotReadyError):
                images.packets.get()

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read)
        try:
            for port in range(6000, 6040):
                images.udp_dst.put(port)
                assert flow_table(daq.engine.config.to_dict()) == daq.flows
        finally:
            end.set()
        reading.result(timeout=60)


def test_a_truth_value_of_numpy_is_not_a_port(daq):
    with pytest.raises(TypeError, match="udp_dst is np.True_; accepted is a text or an integer"):
        daq.port0.flows.images.udp_dst.put(np.True_)


def test_an_engine_that_opens_while_its_monitor_ends_is_monitored(daq, monkeypatch, send):
    seen: list[int] = []
    daq.open()
    daq.port0.flows.images.packets.subscribe(lambda value, **_: seen.append(value))
    ticker, opened = default_ticker(), threading.Event()
    remove = ticker.remove

    def remove_late(call):
        monkeypatch.undo()
        daq.open()
        remove(call)
        opened.set()

    monkeypatch.setattr(ticker, "remove", remove_late)
    daq.close()
    assert opened.wait(60)
    send(daq, 50)
    eventually(lambda: seen[-1] == 50, 60)
    assert seen[-1] == 50


@pytest.mark.parametrize("wait", [False, True], ids=["put", "set"])
def test_a_subscriber_of_a_key_may_change_another_key(make, wait):
    def follow(value, **_) -> None:
        if wait:
            other.set(value).wait(60)
        else:
            other.put(value)

    daq = make()
    images = daq.port0.flows.images
    other = images.udp_src
    images.udp_dst.subscribe(follow, run=False)
    daq.open()
    # On a thread that the end of the tests does not wait for.
    changing = threading.Thread(target=lambda: images.udp_dst.put(6000), daemon=True)
    changing.start()
    changing.join(60)
    assert not changing.is_alive()
    assert (images.udp_dst.get(), images.udp_src.get()) == (6000, 6000)
    assert daq.engine.config.to_dict() == daq.configuration_dict
