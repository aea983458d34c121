"""Links: who hears whom, how long a card is waited for, and what a receiver that hears none is."""

import itertools
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine, NetworkConfig, load_config
from daqiri_ophyd.field_test import _bench, _frames_step, _steps, _traffic
from daqiri_ophyd.field_test._bench import Bench
from daqiri_ophyd.field_test._budget import Budget
from daqiri_ophyd.field_test._lanes import Lane, groups_of, lanes_of
from daqiri_ophyd.field_test._step import StepFailedError, StepSkippedError

Config = dict[str, Any]


def queue(number: int) -> Config:
    return {
        "name": f"q{number}",
        "id": number,
        "cpu_core": "any",
        "batch_size": 64,
        "memory_regions": ["buffers"],
    }


def config_of(*interfaces: Config) -> NetworkConfig:
    region = {"name": "buffers", "kind": "host", "num_bufs": 1024, "buf_size": 2048}
    common = {"version": 1, "master_core": 0, "stream_type": "raw", "engine": "packet"}
    return load_config({**common, "memory_regions": [region], "interfaces": list(interfaces)})


def receiver(name: str, queues: int = 1, *flows: Config) -> Config:
    rx: Config = {"queues": [queue(number) for number in range(queues)]}
    if flows:
        rx["flows"] = [*flows]
    return {"name": name, "address": f"of-{name}", "rx": rx}


def sender(name: str) -> Config:
    return {"name": name, "address": f"of-{name}", "tx": {"queues": [queue(0)]}}


def flow(name: str, number: int, match: Config, *queues: int) -> Config:
    found = list(queues)
    action: Config = {"type": "queue", "id": found[0]}
    if len(found) > 1:
        action = {"type": "queue", "ids": found}
    return {"name": name, "id": number, "match": match, "action": action}


def bench_of(config: NetworkConfig, traffic: int = 10**9) -> Bench:
    return Bench(config, Path(), 0.05, Budget(100, traffic))


def joined(monkeypatch: pytest.MonkeyPatch, *links: tuple[str, str]) -> list[tuple[str, str]]:
    """Let only these hear each other; return the pairs that are tried."""
    tried: list[tuple[str, str]] = []

    def hears(_: Bench, sender: str, receiver: str) -> bool:
        tried.append((sender, receiver))
        return (sender, receiver) in links

    monkeypatch.setattr(Bench, "_hears", hears)
    return tried


def test_each_receiver_has_the_first_sender_that_it_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(sender("a"), sender("b"), receiver("one"), receiver("two"))
    tried = joined(monkeypatch, ("a", "one"), ("a", "two"), ("b", "two"))
    bench = bench_of(config)
    assert bench.links == [("a", "one"), ("a", "two")]
    assert bench.deaf == []
    assert tried == [("a", "one"), ("a", "two")]


def test_a_receiver_that_hears_none_fails_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of(config_of(sender("a"), receiver("one"), receiver("two")))
    tried = joined(monkeypatch)
    assert bench.links == []
    monkeypatch.setattr(Bench, "_hears", lambda _, a, b: (a, b) == ("a", "one"))
    assert len(tried) == 2
    assert bench.links == [("a", "one")]
    assert bench.deaf == ["two"]
    bench.require_heard("one")
    with pytest.raises(StepFailedError, match="two hears no port"):
        bench.require_heard("two")


@pytest.mark.parametrize("never", [False, True])
def test_links_that_are_down_are_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, never: bool
) -> None:
    states = iter(["down", "down", "up"])
    asked: list[str] = []

    def link() -> Any:
        asked.append("down" if never else next(states))
        return SimpleNamespace(state=asked[-1])

    engine = SimpleNamespace(ports=[SimpleNamespace(name="one", link=link)], closed=False)
    monkeypatch.setattr(Engine, "open", lambda _: engine)
    monkeypatch.setattr(_bench, "_LINK_POLL", 0.001)
    monkeypatch.setattr(_bench, "_LINK_WAIT", 0.01 if never else 10.0)
    bench = bench_of(config_of(sender("a"), receiver("one")))
    assert bench.engine is engine
    if not never:
        assert asked == ["down", "down", "up"]
        return
    engine.closed = True
    count = len(asked)
    assert bench.engine is engine
    # It was in vain before.
    assert len(asked) == count + 1


def test_links_that_are_down_are_not_waited_for_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = SimpleNamespace(name="one", link=lambda: SimpleNamespace(state="down"))
    engine = SimpleNamespace(ports=[port], closed=False)
    monkeypatch.setattr(Engine, "open", lambda _: engine)
    monkeypatch.setattr(_bench, "_LINK_WAIT", 1e9)
    bench = Bench(config_of(sender("a"), receiver("one")), Path(), 0.05, Budget(0, 10**9))
    assert bench.engine is engine


def lanes(config: NetworkConfig) -> list[Lane]:
    return lanes_of(config, ("a", "one"))[0]


def test_numbers_of_queues_are_those_that_packets_reach() -> None:
    spread = flow("spread", 1, {"udp_dst": 5000}, 0, 1, 2, 3)
    config = config_of(sender("a"), receiver("one", 4, spread))
    assert [lane.flow for lane in _steps._spread(lanes(config), 4)] == ["spread"]
    for queues in (1, 2):
        assert _steps._spread(lanes(config), queues) == []
    single = [flow(f"f{n}", 2 + n, {"udp_dst": 6000 + n}, n) for n in range(2)]
    config = config_of(sender("a"), receiver("one", 4, spread, *single))
    found = {n: [lane.flow for lane in _steps._spread(lanes(config), n)] for n in (1, 2, 3, 4)}
    assert found == {1: ["f0"], 2: ["f0", "f1"], 3: [], 4: ["spread"]}
    fixed = flow("fixed", 1, {"udp_dst": 5000, "udp_src": 7}, 0, 1)
    config = config_of(sender("a"), receiver("one", 2, fixed))
    assert _steps._spread(lanes(config), 2) == []


def test_rates_are_not_measured_with_multicast_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(
        sender("a"),
        receiver(
            "one",
            2,
            flow("group", 1, {"ipv4_dst": "239.1.2.3"}, 0),
            flow("own", 2, {"udp_dst": 5}, 1),
        ),
    )
    assert groups_of(config) == ["239.1.2.3"]
    monkeypatch.setattr(Bench, "open_lanes", lambda self: lanes(self.config))
    bench = bench_of(config)
    with pytest.raises(
        StepSkippedError, match=r"flow one/group is of multicast group 239\.1\.2\.3"
    ):
        _steps._rate(64, 2, bench)
    own = [lane for lane in bench.open_lanes() if not lane.group]
    assert [lane.flow for lane in own] == ["own"]


def test_the_group_of_a_socket_is_known() -> None:
    group = "udp://239.1.2.4:5000"
    ends = [
        ("one", receiver("one"), "server", "local_addr"),
        ("a", sender("a"), "client", "remote_addr"),
    ]
    interfaces = [
        each | {"address": "127.0.0.1", "socket_config": {"mode": mode, key: group}}
        for _, each, mode, key in ends
    ]
    region = {"name": "buffers", "kind": "host", "num_bufs": 1024, "buf_size": 2048}
    common = {"version": 1, "master_core": 0, "stream_type": "socket"}
    config = load_config({**common, "memory_regions": [region], "interfaces": interfaces})
    assert groups_of(config) == ["239.1.2.4"]


def test_bytes_that_a_step_needs_are_asked_for_before() -> None:
    budget = Budget(100, 1000)
    budget.spend(400)
    budget.require_bytes(600)
    with pytest.raises(StepSkippedError, match="left; the same command goes on") as stopped:
        budget.require_bytes(601)
    assert stopped.value.again


def test_strays_are_not_compared_where_the_sender_changes_packets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tag = {"name": "tag", "id": 9, "action": {"type": "vlan_push", "vlan_id": 5}}
    tagging = sender("a")
    tagging["tx"]["flows"] = [tag]
    bench = bench_of(config_of(tagging, receiver("one", 1, flow("f", 1, {"udp_dst": 5}, 0))))
    joined(monkeypatch, ("a", "one"))
    ports = {
        each.name: SimpleNamespace(config=each, flows=each.rx.flows)
        for each in bench.config.interfaces
    }
    monkeypatch.setattr(Bench, "engine", SimpleNamespace(port=ports.__getitem__))
    monkeypatch.setattr(Bench, "open_lanes", lambda _: [])
    with pytest.raises(StepSkippedError, match="flows of a change the packets that it sends"):
        _steps._unmatched(bench)


def test_frames_of_others_are_not_counted_and_do_not_keep_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = np.arange(8).reshape(2, 4)

    def frame(batch: int, missing: int = 0, add: int = 0) -> Any:
        data = images[(batch - 1) % 2] + add
        return SimpleNamespace(batch=batch, missing=missing, data=data)

    own = [frame(7, missing=5), frame(1, missing=1), frame(2, add=1)]
    assert _frames_step._compare([*own, frame(1)], images, None) == (2, 1, 1)
    monkeypatch.setattr(_frames_step, "_LONGEST", 0.0)
    assert _frames_step._compare(itertools.repeat(frame(7)), images, None) == (0, 0, 0)
    monkeypatch.setattr(_frames_step, "_LONGEST", 1e9)
    assert _frames_step._compare(itertools.repeat(frame(7)), images, None, 0.0) == (0, 0, 0)


def test_packets_of_others_without_end_do_not_keep_a_receiver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_traffic, "_DRAIN", 0.01)
    ended = threading.Event()
    ended.set()
    taken: list[Any] = []

    class Endless:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    traffic: Any = SimpleNamespace(_quiet=ended, _stop=threading.Event())
    queue: Any = SimpleNamespace(receive=lambda _: Endless())
    arrivals: Any = SimpleNamespace(take=lambda burst, **_: taken.append(burst))
    _traffic.Traffic._receive(traffic, queue, arrivals, False, False)
    assert taken
