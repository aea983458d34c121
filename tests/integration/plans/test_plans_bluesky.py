"""Plans of Bluesky that send what they capture, over all engines, with all numbers checked."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.preprocessors import SupplementalData
from bluesky.utils import MsgGenerator
from checked_runs import check, parts, settings_of
from ophyd import Kind
from ophyd.sim import SynAxis, det

from daqiri_ophyd import plans
from daqiri_ophyd.devices import Capture, Daq, RxQueue, TxQueue

ENGINES = ["loopback", "udp", "tcp"]


class Bench(NamedTuple):
    """An engine, its sender and capture, and two motors."""

    daq: Daq
    capture: Capture
    tx: TxQueue
    x: SynAxis
    y: SynAxis
    packets: Mapping[str, Any]

    @property
    def devices(self) -> list[Any]:
        return [self.capture, self.tx]

    @property
    def signal(self) -> str:
        return f"{self.capture.name}_signal"

    def prepare(self) -> MsgGenerator[None]:
        source = plans.packet_source(self.packets, self.tx.link_type, self.tx.segment_size)
        yield from bps.prepare(self.tx, source, wait=True)

    def after_prepare(self, plan: MsgGenerator[Any]) -> MsgGenerator[Any]:
        yield from self.prepare()
        return (yield from plan)


@pytest.fixture
def bench(profile) -> Callable[[str], Bench]:
    def make(name: str) -> Bench:
        daq, capture, tx = profile(name)
        # TCP passes on what has arrived, so only a single message is a single packet.
        packets = {"count": 1, "size": 1000} if name == "tcp" else {"count": 50, "size": 100}
        capture.num_packets.put(packets["count"])
        tx.start_delay.put(0.0)
        x, y = SynAxis(name="x"), SynAxis(name="y")
        # A peak at 0.4, which scans can follow.
        capture.reductions = {"signal": lambda _: max(0.0, 1.0 - abs(x.position - 0.4))}
        return Bench(daq, capture, tx, x, y, packets)

    return make


# --- Plans of Bluesky


def fly(b: Bench) -> MsgGenerator[Any]:
    """Declare the streams, which `bp.fly` leaves to flyers that name their streams themselves."""
    streams = {b.capture: "primary", b.tx: "transmit"}

    def declare():
        for device, name in streams.items():
            yield from bps.declare_stream(device, name=name, collect=True)

    def declare_first(msg):
        return None, declare() if msg.command == "open_run" else None

    return bpp.stage_wrapper(bpp.plan_mutator(bp.fly(b.devices), declare_first), b.devices)


# Number of rows (None: the plan decides), and the plan.
CASES: dict[str, tuple[int | None, Callable[[Bench], MsgGenerator[Any]]]] = {
    "adaptive_scan": (
        None,
        lambda b: bp.adaptive_scan(b.devices, b.signal, b.x, 0, 1, 0.05, 0.3, 0.2, True),
    ),
    "count": (3, lambda b: bp.count(b.devices, 3)),
    "fly": (1, fly),
    "grid_scan": (
        6,
        lambda b: bp.grid_scan(b.devices, b.x, 0, 1, 2, b.y, 0, 1, 3, snake_axes=True),
    ),
    "scan": (3, lambda b: bp.scan(b.devices, b.x, 0, 1, b.y, 0, 2, num=3)),
}


def run_case(b: Bench, name: str, run_engine, documents, captures) -> list[int]:
    """Run a plan, check all of it, and return the packets of its rows."""
    rows, plan = CASES[name]
    before = settings_of(b.daq)
    run_engine(b.after_prepare(plan(b)))
    files = check(documents, b.daq, captures, before)
    packets = [row[f"{b.capture.name}_packets"] for row in documents.rows()]
    assert len(packets) == len(files) == rows if rows else len(packets) == len(files) > 1
    assert packets == [b.packets["count"]] * len(packets)
    return packets


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_plan_of_bluesky_captures_what_it_sends(
    engine, name, bench, run_engine, documents, captures
):
    b = bench(engine)
    packets = run_case(b, name, run_engine, documents, captures)
    assert b.tx.sent.get() == sum(packets)


# --- The plans of this package


@pytest.mark.parametrize("engine", ENGINES)
def test_a_capture_of_this_package(engine, bench, run_engine, documents, captures):
    b = bench(engine)
    before = settings_of(b.daq)
    count = b.packets["count"]
    run_engine(
        plans.capture(b.capture, count, tx=b.tx, packets=b.packets, roll_packets=20, start_delay=0)
    )
    files = check(documents, b.daq, captures, before)
    assert len(files) == -(-count // 20)
    assert documents.stop["num_events"] == {"primary": len(files), "transmit": 1}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_capture_during_a_scan(engine, bench, run_engine, documents, captures):
    b = bench(engine)
    before = settings_of(b.daq)
    scan = bp.scan([det], b.x, 0, 1, 3)
    run_engine(b.after_prepare(plans.capture_during_wrapper(scan, b.capture, tx=b.tx)))
    check(documents, b.daq, captures, before)
    assert documents.stop["num_events"] == {"primary": 3, "packets": 1, "transmit": 1}
    (row,) = documents.rows("packets")
    assert row[f"{b.capture.name}_packets"] == b.packets["count"]


# --- What users do around plans


@pytest.mark.parametrize("engine", ENGINES)
def test_baselines_and_monitors(engine, bench, run_engine, documents, captures):
    b = bench(engine)
    before = settings_of(b.daq)
    port = b.capture.parent
    received = parts(port, RxQueue)[0].received

    def readings():
        for number in (1, 2, 3):
            yield from bps.trigger_and_read(b.devices)
            while received._told != number * b.packets["count"]:  # the monitor has received it
                yield from bps.sleep(0.01)

    run_engine.preprocessors.append(SupplementalData(baseline=[b.daq], monitors=[received]))
    plan = bpp.stage_wrapper(bpp.run_wrapper(readings()), b.devices)
    run_engine(b.after_prepare(plan))
    check(documents, b.daq, captures, before)
    totals = [number * b.packets["count"] for number in range(4)]
    # A copy of the counters may show a part of a reading as well.
    monitored = [row[received.name] for row in documents.rows(f"{received.name}_monitor")]
    assert monitored == sorted(monitored) and set(totals) <= set(monitored)
    assert [row[received.name] for row in documents.rows("baseline")] == [0, totals[-1]]


@pytest.mark.parametrize("engine", ENGINES)
def test_several_streams_in_several_runs_of_one_stage(
    engine, bench, run_engine, documents, captures
):
    b = bench(engine)
    before = settings_of(b.daq)

    @bpp.stage_decorator(b.devices)
    def plan():
        for _ in range(2):
            yield from b.prepare()
            yield from bps.open_run()
            for stream in ("dark", "primary", "primary", "dark"):
                yield from bps.trigger_and_read(b.devices, name=stream)
            yield from bps.close_run()

    run_engine(plan())
    files = check(documents, b.daq, captures, before, runs=2)
    assert len(files) == 8
    assert [doc["num_events"] for doc in documents.of("stop")] == [{"dark": 2, "primary": 2}] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_several_captures_on_the_fly_in_a_run(engine, bench, run_engine, documents, captures):
    b = bench(engine)
    before = settings_of(b.daq)

    @bpp.stage_decorator(b.devices)
    @bpp.run_decorator()
    def plan():
        for stream in ("dark", "primary", "primary"):
            yield from b.prepare()
            yield from plans.capture_during(b.capture, bps.null(), tx=b.tx, stream=stream)

    run_engine(plan())
    files = check(documents, b.daq, captures, before)
    assert len(files) == 3
    assert documents.stop["num_events"] == {"dark": 1, "primary": 2, "transmit": 3}


@pytest.mark.parametrize("engine", ENGINES)
def test_stage_signatures_and_kinds(engine, bench, run_engine, documents, captures):
    b = bench(engine)
    b.capture.stage_sigs["on_drop"] = "flag"
    b.capture.bytes.kind = Kind.omitted
    b.capture.t_first_ns.kind = Kind.hinted
    b.tx.sent.kind = Kind.omitted
    before = settings_of(b.daq)
    for fly_too in (False, True):
        documents.clear()
        beside = len(list(captures.rglob("*.pcap")))
        scan = CASES["fly" if fly_too else "scan"][1](b)
        run_engine(b.after_prepare(scan))
        check(documents, b.daq, captures, before, beside=beside)
        row, name = documents.rows()[0], b.capture.name
        assert row[f"{name}_lossy"] is False
        assert f"{name}_bytes" not in row and b.tx.sent.name not in row
        fields = documents.descriptor()["hints"][name]["fields"]
        assert f"{name}_t_first_ns" in fields


def test_several_queues_of_a_port(bench, run_engine, documents, captures):
    b = bench("loopback")
    b.capture.queues.put("all")
    before = settings_of(b.daq)
    run_engine(b.after_prepare(bp.scan(b.devices, b.x, 0, 1, 3)))
    files = check(documents, b.daq, captures, before)
    assert len(files) == 6
