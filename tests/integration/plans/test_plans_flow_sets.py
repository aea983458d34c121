"""Adding and removing flows with their devices: in which states, and with other threads."""

import json
import operator
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp

from daqiri_ophyd import plans
from daqiri_ophyd.engine import NotReadyError

MORE = {"id": 70, "queue": "rest", "udp_dst": 6500}


def staged_alone(*devices):
    """Stage only these devices for a plan; Bluesky's decorator stages the whole engine."""

    def decorate(plan):
        def staged():
            yield from bps.stage_all(*devices)
            yield from bpp.finalize_wrapper(plan(), lambda: bps.unstage_all(*devices))

        return staged

    return decorate


def test_flows_are_added_and_removed_while_only_a_queue_is_staged(daq, run_engine, documents):
    @staged_alone(daq.port0.capture, daq.port0.tx.out)
    @bpp.run_decorator()
    def plan():
        yield from plans.configure_flows(daq, {"port0": {"more": MORE, "other": None}})
        yield from plans.configure_flows(daq, {"port0": {"more": None}})

    run_engine(plan())
    names = [
        [flow["name"] for flow in json.loads(row["daq_flow_table"])["port0"]]
        for row in documents.rows("flows")
    ]
    assert names == [["images", "more"], ["images"]]


@pytest.mark.parametrize(
    ("staged", "flows"),
    [
        ("", {"more": MORE}),
        ("", {"other": None}),
        ("port0", {"more": MORE}),
        ("port0.flows", {"more": MORE}),
        ("port0.flows.other", {"other": None}),
    ],
)
def test_no_flow_is_added_or_removed_while_what_reads_it_is_staged(daq, run_engine, staged, flows):
    device = operator.attrgetter(staged)(daq.open()) if staged else daq.open()
    before = daq.flows

    @staged_alone(device)
    @bpp.run_decorator()
    def plan():
        yield from plans.configure_flows(daq, {"port0": flows | {"images": {"udp_dst": 6000}}})

    with pytest.raises(RuntimeError, match=f"^{device.name} is staged.* between runs"):
        run_engine(plan())
    assert daq.flows == before

    @staged_alone(device)
    def change_a_key():
        yield from plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 6000}}})

    run_engine(change_a_key())
    assert daq.port0.flows.images.udp_dst.get() == 6000


def test_a_flow_that_is_not_staged_goes_while_another_is(daq, run_engine):
    daq.open()

    @staged_alone(daq.port0.flows.images)
    def plan():
        yield from plans.configure_flows(daq, {"port0": {"other": None}})

    run_engine(plan())
    assert [flow.member_name for flow in daq.port0.flows.members] == ["images"]


@pytest.mark.parametrize("opened", [False, True])
def test_flows_whose_devices_would_have_one_name_are_refused(daq, opened):
    before = daq.flows
    if opened:
        daq.open()
    table = {"port0": {"a-b": MORE, "a_b": MORE | {"id": 71, "udp_dst": 7000}}}
    with pytest.raises(ValueError, match="'a-b' and 'a_b' would both be the attribute 'a_b'"):
        daq.change_flows(table)
    assert daq.flows == before
    assert daq.port0.flows.component_names == ("images", "other")
    assert daq.is_open == opened


def test_threads_that_add_and_remove_flows_leave_their_devices(daq):
    daq.open()
    start = threading.Barrier(3)

    def add(number: int) -> None:
        start.wait()
        for _ in range(10):
            more = MORE | {"id": 70 + number, "udp_dst": 6000 + number}
            daq.change_flows({"port0": {f"more{number}": more}})
            daq.change_flows({"port0": {f"more{number}": None}})
        daq.change_flows({"port0": {f"more{number}": more}})

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(add, number) for number in range(3)]:
            done.result(timeout=60)
    devices = [flow.member_name for flow in daq.port0.flows.members]
    assert devices == [flow["name"] for flow in daq.flows["port0"]]
    assert len(devices) == 5


def test_devices_follow_the_later_of_two_changes(daq, monkeypatch):
    """The thread of the earlier change reaches the devices last."""
    daq.open()
    began, go_on = threading.Event(), threading.Event()
    flows = type(daq).flows

    def read_late(owner):
        table = flows.fget(owner)
        if threading.current_thread() is first:
            began.set()
            go_on.wait(1)  # the lock blocks the other thread, which would set it
        return table

    def change_later() -> None:
        assert began.wait(60)
        daq.change_flows({"port0": {"more": None}})
        go_on.set()

    first = threading.Thread(target=lambda: daq.change_flows({"port0": {"more": MORE}}))
    second = threading.Thread(target=change_later)
    monkeypatch.setattr(type(daq), "flows", property(read_late))
    for thread in (first, second):
        thread.start()
    for thread in (first, second):
        thread.join(60)
    monkeypatch.undo()
    assert [flow["name"] for flow in daq.flows["port0"]] == ["images", "other"]
    assert daq.port0.flows.component_names == ("images", "other")


def test_subscribers_of_a_key_are_told_the_later_of_two_values_last(daq, monkeypatch):
    key = daq.port0.flows.images.udp_dst
    seen: list[object] = []
    key.subscribe(lambda value, **_: seen.append(value))

    def configured_late() -> int:
        monkeypatch.undo()
        key.put(7000)  # by another thread, after this one has found the value before
        return 6000

    monkeypatch.setattr(key, "configured", configured_late)
    key.follow()
    assert (seen[0], seen[-1]) == (5000, 7000)


def test_a_tick_between_a_change_and_its_devices_says_nothing(daq, monkeypatch, caplog):
    flows = daq.port0.flows
    daq.open()
    seen: list[int] = []
    for flow in (flows.images, flows.other):
        flow.packets.subscribe(lambda value, **_: seen.append(value))
    follow = daq._requests._follow

    def follow_late() -> None:
        for flow in (flows.images, flows.other):
            flow._seen = 0
            flow._notify_subscribers()
        follow()

    monkeypatch.setattr(daq._requests, "_follow", follow_late)
    daq.change_flows({"port0": {"images": None, "other": None}})
    assert flows.component_names == ()
    assert not caplog.records


@pytest.mark.parametrize("name", ["port0.link.mtu", "regions.rx.free"])
def test_a_tick_does_not_open_an_engine_that_is_closed_meanwhile(daq, monkeypatch, name):
    signal = operator.attrgetter(name)(daq.open())
    device = signal.parent
    copied = daq.engine.counters
    signal.subscribe(lambda **_: None)
    take = device.take_copied

    def close_first(counters):
        daq.close()
        return take(counters)

    monkeypatch.setattr(device, "take_copied", close_first)
    device._seen = 0
    device._notify_subscribers()
    assert not daq.is_open
    with pytest.raises(NotReadyError):
        take(copied)
    assert not daq.is_open
