"""Fly scans, with Bluesky's own stubs and with the plans of this package, rolled and not."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import Msg, MsgGenerator
from ophyd.sim import SynAxis
from ophyd.status import Status
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureTrigger

from .benches import PACKETS, Bench
from .flights import COUNT, EACH, arrived, by_stream, no_limit, sent
from .stored_runs import StoredRuns

# A stream of bytes has no images.
WHAT = pytest.mark.parametrize(
    ("bench", "per_file", "what"),
    [
        ("loopback", EACH, "packets"),
        ("loopback", 0, "images"),
        ("udp", 0, "packets"),
        ("udp", EACH, "images"),
        ("tcp", EACH, "packets"),
        pytest.param("packet", EACH, "packets", marks=pytest.mark.root),
        pytest.param("packet", EACH, "images", marks=pytest.mark.root),
    ],
    indirect=["bench", "per_file"],
)


def sending(plan: MsgGenerator[Any], b: Bench, last: Any, count: int = COUNT) -> MsgGenerator[Any]:
    """Send once the last device of a plan was kicked off."""

    def send() -> MsgGenerator[None]:
        b.instrument.send(count)
        yield from bps.null()

    def insert(msg: Msg) -> tuple[None, Any]:
        return None, send() if msg.command == "kickoff" and msg.obj is last else None

    return bpp.plan_mutator(plan, insert)


def streams(b: Bench, first: int, names: Sequence[str]) -> dict[str, range]:
    return dict.fromkeys(names, range(first, first + COUNT))


def test_during_a_motion(
    bench: Bench, per_file: int, run_engine: RunEngine, runs: StoredRuns
) -> None:
    no_limit(bench)
    first, given = bench.instrument.next, by_stream(bench)

    @bpp.stage_decorator(bench.recorded)
    @bpp.run_decorator()
    def plan() -> Any:
        motion = sent(bench, bench.recorded)
        yield from plans.capture_during(given, motion, flush_period=0.0)

    run_engine(plan())
    runs.check(bench, streams(bench, first, list(given)), per_file=per_file)


@pytest.mark.parametrize("per_file", [EACH], indirect=True)
def test_during_a_scan(
    bench: Bench, per_file: int, run_engine: RunEngine, runs: StoredRuns
) -> None:
    first, given = bench.instrument.next, by_stream(bench)
    scan = bp.scan([bench.instrument], bench.x, 0, 1, COUNT)
    limits = {"num_packets": COUNT * PACKETS} | ({"num_frames": COUNT} if bench.frames else {})
    run_engine(plans.capture_during_wrapper(scan, given, **limits))
    assert runs.documents.stop["num_events"]["primary"] == COUNT
    runs.check(bench, streams(bench, first, list(given)), per_file=per_file)


class Slider(SynAxis):
    """A motor, while whose motion to 1 the instrument sends."""

    def __init__(self, bench: Bench, device: Any) -> None:
        super().__init__(name="slider")
        self._bench, self._device = bench, device

    def set(self, value: float) -> Status:
        super().set(value)
        moved = Status()
        if value != 1:
            moved.set_finished()
            return moved

        def run() -> None:
            self._bench.instrument.send(COUNT)
            wait_for(lambda: arrived(self._bench, [self._device], COUNT))
            moved.set_finished()

        threading.Thread(target=run).start()
        return moved


@WHAT
def test_while_a_motor_moves(
    bench: Bench, per_file: int, run_engine: RunEngine, runs: StoredRuns, what: str
) -> None:
    device, first = by_stream(bench)[what], bench.instrument.next
    run_engine(plans.fly_scan(device, Slider(bench, device), 0, 1))
    assert "slider_monitor" in runs.documents.stop["num_events"]
    runs.check(bench, streams(bench, first, ["primary"]), per_file=per_file)


@WHAT
def test_a_number_of_packets_and_of_images(
    bench: Bench, per_file: int, run_engine: RunEngine, runs: StoredRuns, what: str
) -> None:
    device, first = by_stream(bench)[what], bench.instrument.next
    if what == "packets":
        plan = plans.capture(
            device, COUNT * PACKETS, roll_packets=per_file * PACKETS, flush_period=0.02
        )
    else:
        plan = plans.record(device, COUNT, roll_frames=per_file, flush_period=0.02)
    run_engine(sending(plan, bench, device))
    runs.check(bench, streams(bench, first, ["primary"]), per_file=per_file)


def collected(
    b: Bench, devices: Sequence[Any], stream: str, period: float | None
) -> MsgGenerator[None]:
    """Complete and collect devices, with Bluesky's own stubs."""
    if period is None:
        yield from bps.complete_all(*devices, wait=True)
        yield from bps.collect(*devices, name=stream)
    else:
        yield from bps.collect_while_completing(
            devices, devices, flush_period=period, stream_name=stream
        )


@pytest.mark.parametrize(
    ("bench", "period"),
    [
        ("loopback", None),
        ("loopback", 0.02),
        ("udp", None),
        ("tcp", 0.02),
        pytest.param("packet", 0.02, marks=pytest.mark.root),
    ],
    indirect=["bench"],
)
def test_prepared_devices_share_a_stream(
    bench: Bench, run_engine: RunEngine, runs: StoredRuns, period: float | None
) -> None:
    first = bench.instrument.next
    if bench.frames is not None:
        bench.frames.roll_frames.put(EACH)

    @bpp.stage_decorator(bench.recorded)
    def plan() -> Any:
        trigger = CaptureTrigger(number_of_files=COUNT, packets_per_file=PACKETS)
        yield from bps.prepare(bench.capture, trigger, wait=True)
        if bench.frames is not None:
            yield from bps.prepare(bench.frames, COUNT, wait=True)
        yield from bps.open_run()
        yield from bps.declare_stream(*bench.recorded, name="primary", collect=True)
        yield from bps.kickoff_all(*bench.recorded, wait=True)
        bench.instrument.send(COUNT)
        yield from collected(bench, bench.recorded, "primary", period)
        yield from bps.close_run()

    run_engine(plan())
    runs.check(bench, streams(bench, first, ["primary"]))


def test_devices_have_a_stream_each(
    bench: Bench, per_file: int, run_engine: RunEngine, runs: StoredRuns
) -> None:
    first, given = bench.instrument.next, by_stream(bench)
    bench.capture.num_packets.put(COUNT * PACKETS)
    period = None if per_file else 0.02
    if bench.frames is not None:
        bench.frames.num_frames.put(COUNT)

    @bpp.stage_decorator(bench.recorded)
    @bpp.run_decorator()
    def plan() -> Any:
        for stream, device in given.items():
            yield from bps.declare_stream(device, name=stream, collect=True)
        yield from bps.kickoff_all(*bench.recorded, wait=True)
        bench.instrument.send(COUNT)
        for stream, device in given.items():
            yield from collected(bench, [device], stream, period)

    run_engine(plan())
    runs.check(bench, streams(bench, first, list(given)), per_file=per_file)
