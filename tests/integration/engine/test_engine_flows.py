"""Flows that are added, changed and removed while an engine runs."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from daqiri_ophyd.engine import (
    ConfigError,
    Engine,
    InvalidParameterError,
    NoSpaceAvailableError,
    NotReadyError,
    NotSupportedError,
)


@pytest.fixture(params=["loopback", "dpdk"])
def config(request):
    queue = {"batch_size": 8, "timeout_us": 500}
    regions = [
        {"name": f"{name}_buffers", "kind": "host", "num_bufs": 512, "buf_size": 2048}
        for name in ("rx", "tx")
    ]
    build = request.getfixturevalue(request.param)
    built = build(rx=queue, tx={"batch_size": 8}, regions=regions)
    rx = built["interfaces"][0]["rx"]
    rx["queues"].append({**rx["queues"][0], "name": "rx1", "id": 1})
    rx["flows"][0]["name"] = "images"
    return built


def frame(udp_dst: int) -> np.ndarray:
    """An Ethernet, IPv4 and UDP header with a payload of 22 bytes."""
    bytes_ = np.zeros(64, np.uint8)
    bytes_[12:14] = (8, 0)
    bytes_[14], bytes_[17], bytes_[22], bytes_[23] = 0x45, 50, 64, 17
    bytes_[36:38] = divmod(udp_dst, 256)
    bytes_[39] = 30
    return bytes_


def flows_of(port, queue: int, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        burst = port.rx[queue].receive(timeout=20)
        assert burst is not None
        found += burst.flow_ids.tolist()
    return found


def send(port, udp_dst: int, count: int = 4) -> None:
    assert port.tx[0].send(np.tile(frame(udp_dst), (count, 1))) == count


def test_added_flows_come_first_and_go(config):
    with Engine.open(config) as engine:
        port = engine.ports[0]
        flow = port.add_flow({"name": "a", "match": {"udp_dst": "5000-5009"}, "queue": "rx1"})
        assert flow.added
        assert flow.id > 0x7FFFFF
        send(port, 5000)
        assert flows_of(port, 1, 4) == [flow.id] * 4
        two = port.add_flows(
            [
                {"name": "b", "match": {"udp_dst": 5000}, "action": {"type": "queue", "id": 0}},
                {"name": "c", "match": {"ipv4_len": 50, "udp_dst": 6000}, "queue": 1},
            ]
        )
        assert [each.id for each in two] == [flow.id + 1, flow.id + 2]
        send(port, 5000)
        assert flows_of(port, 0, 4) == [flow.id + 1] * 4
        send(port, 6000)
        assert flows_of(port, 1, 4) == [flow.id + 2] * 4
        assert [each.name for each in port.flows] == ["images", "a", "b", "c"]
        assert [each.counters().packets for each in port.flows] == [0, 4, 4, 4]
        assert port.flow("b").config.match.udp_dst == (5000, 5000)
        assert [each.flow for each in engine.snapshot().flows] == ["images", "a", "b", "c"]
        for each in ("a", flow.id + 1, two[1]):
            port.remove_flow(each)
        with pytest.raises(InvalidParameterError, match="was removed"):
            flow.counters()
        send(port, 5000)
        assert flows_of(port, 0, 4) == [7] * 4
        shown = {each.flow: each.counters.packets for each in engine.snapshot().flows}
        assert shown == {"images": 4, "(removed)": 12}


@pytest.mark.parametrize(
    ("flows", "text"),
    [
        ([{"name": "a", "queue": 9}], "no receive queue 9; it has 'rx0'"),
        ([{"name": "a", "action": {"type": "queue", "id": 9}}], "flow 'a': action.id: found 9"),
        ([{"name": "a", "queue": 0, "match": {"udp_dts": 1}}], r"flows\[0\].match.*udp_dts"),
        ([{"name": "a", "queue": 0, "id": 5}], r"flows\[0\].id: found 5"),
        ([{"queue": 0}], r"flows\[0\].*name"),
        ([{"name": "images", "queue": 0}], r"the name of flow 'images' \(7\)"),
        ([{"name": "a", "queue": 0}] * 2, r"the name of flow 'a' \(\d+\)"),
        (
            [{"name": "a", "queue": 0}, {"name": "b", "queue": 0}],
            r"flow 'b' \(id \d+\) has the match and the actions of flow 'a'",
        ),
    ],
)
def test_flows_that_are_wrong_add_none(config, flows, text):
    with Engine.open(config) as engine:
        with pytest.raises(InvalidParameterError, match=text):
            engine.ports[0].add_flows(flows)
        assert [flow.name for flow in engine.ports[0].flows] == ["images"]


def test_threads_add_one_flow_of_a_name(config):
    with Engine.open(config) as engine:
        port = engine.ports[0]
        together = threading.Barrier(4)

        def add(number):
            flow = {"name": "one", "match": {"udp_dst": 6000 + number}, "queue": 0}
            together.wait(60.0)
            with contextlib.suppress(InvalidParameterError):
                return port.add_flow(flow)

        with ThreadPoolExecutor(4) as pool:
            for _ in range(50):
                added = [flow for flow in pool.map(add, range(4)) if flow is not None]
                assert port.flows[1:] == tuple(added)
                assert len(added) == 1
                port.remove_flow("one")


def test_a_thread_removes_what_another_adds(config):
    with Engine.open(config) as engine:
        port = engine.ports[0]
        stop = threading.Event()

        def remove_all():
            while not stop.is_set():
                for flow in port.flows[1:]:
                    # It may have been added only in part.
                    with contextlib.suppress(InvalidParameterError):
                        port.remove_flow(flow)

        thread = threading.Thread(target=remove_all)
        thread.start()
        try:
            for number in range(1000):
                name = f"flow{number}"
                match = {"udp_dst": 1 + number}
                assert port.add_flow({"name": name, "match": match, "queue": 0}).name == name
        finally:
            stop.set()
            thread.join()


def test_the_capacity_is_kept(config):
    config["interfaces"][0]["rx"]["dynamic_flow_capacity"] = 2
    with Engine.open(config) as engine:
        port = engine.ports[0]
        port.add_flows([{"name": f"f{i}", "match": {"udp_dst": i}, "queue": 0} for i in (1, 2)])
        with pytest.raises(NoSpaceAvailableError, match="dynamic_flow_capacity is 2"):
            port.add_flow({"name": "f3", "match": {"udp_dst": 3}, "queue": 0})
        port.remove_flow("f1")
        port.add_flow({"name": "f3", "match": {"udp_dst": 3}, "queue": 0})
        with pytest.raises(InvalidParameterError, match="flow 7 is flow 'images'"):
            port.remove_flow(7)
    with pytest.raises(NotReadyError):
        port.add_flow({"name": "f4", "match": {"udp_dst": 4}, "queue": 0})


def test_the_configuration_s_flows_change_and_keep_their_counters(config):
    flows = config["interfaces"][0]["rx"]["flows"]
    with Engine.open(config) as engine:
        port = engine.ports[0]
        send(port, 5000)
        flows_of(port, 0, 4)
        flows[0]["match"]["udp_dst"] = 6000
        flows.append(
            {
                "name": "more",
                "id": 8,
                "match": {"udp_dst": 5000},
                "action": {"type": "queue", "id": 1},
            }
        )
        engine.change_flows(config)
        send(port, 6000)
        assert flows_of(port, 0, 4) == [7] * 4
        send(port, 5000)
        assert flows_of(port, 1, 4) == [8] * 4
        assert [(f.name, f.counters().packets) for f in port.flows] == [("images", 8), ("more", 4)]
        assert engine.config.interfaces[0].rx.flows[1].name == "more"
        assert engine.counters.dtype["flows"]["port0"].names == ("images", "more")
        flows[0]["action"]["id"] = 4
        with pytest.raises(ConfigError, match="found 4"):
            engine.change_flows(config)
        flows[0]["action"]["id"] = 0
        config["interfaces"][0]["rx"]["queues"][0]["batch_size"] = 4
        with pytest.raises(NotSupportedError, match="more than rx.flows"):
            engine.check_flows(config)


def test_counters_have_the_flows_that_there_are_while_these_change(config):
    flows = config["interfaces"][0]["rx"]["flows"]
    stop = threading.Event()
    wrong: list[object] = []
    with Engine.open(config) as engine:

        def read() -> None:
            while not stop.is_set():
                try:
                    counters = engine.counters
                    names = counters.dtype["flows"]["port0"].names
                    if counters["flows"]["port0"]["images"]["packets"] != 4 or len(names) > 2:
                        wrong.append(names)
                except Exception as error:
                    wrong.append(error)

        send(engine.ports[0], 5000)
        flows_of(engine.ports[0], 0, 4)
        engine.change_flows(config)
        reader = threading.Thread(target=read)
        reader.start()
        more = {"name": "before", "id": 8, "action": {"type": "queue", "id": 1}}
        for i in range(100):
            config["interfaces"][0]["rx"]["flows"] = [more, *flows] if i % 2 == 0 else flows
            engine.change_flows(config)
        stop.set()
        reader.join()
    assert wrong == []


def test_a_configured_flow_has_no_name_of_one_that_was_added(config):
    flows = config["interfaces"][0]["rx"]["flows"]
    with Engine.open(config) as engine:
        port = engine.ports[0]
        added = port.add_flow({"name": "more", "match": {"udp_dst": 6000}, "queue": 1})
        flows.append({"name": "more", "id": 8, "action": {"type": "queue", "id": 0}})
        text = rf"flow 'more' \(id 8\) .* flow 'more' \({added.id}\), .* at run time"
        for change in (engine.check_flows, engine.change_flows):
            with pytest.raises(InvalidParameterError, match=text):
                change(config)
        assert [flow.id for flow in port.flows] == [7, added.id]
        port.remove_flow("more")
        engine.change_flows(config)
        assert [flow.id for flow in port.flows] == [7, 8]
