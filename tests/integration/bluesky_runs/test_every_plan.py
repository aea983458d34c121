"""Every plan of Bluesky that takes a detector, with packets and images."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import MsgGenerator
from cycler import cycler
from ophyd.sim import SynAxis

from .benches import Bench
from .conftest import NETWORKS

SIGNAL = "instrument_signal"


def tweak(b: Bench) -> MsgGenerator[Any]:
    """Step three times; the instrument sends when the plan's only detector is triggered."""

    def send_too(msg):
        if msg.command == "trigger" and msg.obj is b.capture:
            return None, triggered(msg.kwargs["group"])
        return None, None

    def triggered(group):
        for one in (b.frames, b.instrument):
            yield from bps.trigger(one, group=group)

    def read_too(msg):
        if msg.command == "save":
            return read_others(msg), None
        return None, None

    def read_others(msg):
        for one in (b.frames, b.instrument):
            yield from bps.read(one)
        return (yield msg)

    plan = bp.tweak(b.capture, f"{b.capture.name}_peak", b.x, 0.1)
    return bpp.plan_mutator(bpp.plan_mutator(plan, send_too), read_too)


def fly(b: Bench) -> MsgGenerator[Any]:
    """Declare the streams, which `bp.fly` leaves to flyers that name their streams themselves."""
    b.capture.roll_packets.put(4)
    b.capture.num_packets.put(12)

    def declare():
        for device in b.recorded:
            yield from bps.declare_stream(device, name=device.name, collect=True)

    def insert(msg):
        if msg.command == "open_run":
            return None, declare()
        if msg.command == "complete" and msg.obj is b.capture:
            return send(msg), None
        return None, None

    def send(msg):
        b.instrument.send(3)
        return (yield msg)

    def prepared():
        yield from bps.prepare(b.frames, 3, wait=True)
        yield from bpp.plan_mutator(bp.fly(b.recorded), insert)

    return bpp.stage_wrapper(prepared(), b.recorded)


def ramp(b: Bench) -> MsgGenerator[Any]:
    """Take readings while a motor moves, with a monitored counter of the engine."""
    slow = SynAxis(name="slow", delay=0.3)

    def go():
        return (yield from bps.abs_set(slow, 1.0))

    def inner():
        yield from bps.checkpoint()
        yield from bps.trigger_and_read([*b.detectors, slow])

    plan = bp.ramp_plan(go(), b.daq.port0.tx.tx_q0.sent, inner)
    return bpp.stage_wrapper(plan, b.detectors)


# Number of rows (None: the plan decides), and the plan.
CASES: dict[str, tuple[int | None, Callable[[Bench], MsgGenerator[Any]]]] = {
    "adaptive_scan": (
        None,
        lambda b: bp.adaptive_scan(b.detectors, SIGNAL, b.x, 0, 1, 0.05, 0.3, 0.2, True),
    ),
    "count": (3, lambda b: bp.count(b.detectors, 3)),
    "fly": (3, fly),
    "grid_scan": (
        6,
        lambda b: bp.grid_scan(b.detectors, b.x, 0, 1, 2, b.y, 0, 1, 3, snake_axes=True),
    ),
    "inner_product_scan": (
        3,
        lambda b: bp.inner_product_scan(b.detectors, 3, b.x, 0, 1, b.y, 0, 1),
    ),
    "list_grid_scan": (4, lambda b: bp.list_grid_scan(b.detectors, b.x, [0, 1], b.y, [2, 3])),
    "list_scan": (3, lambda b: bp.list_scan(b.detectors, b.x, [0, 1, 3])),
    "log_scan": (3, lambda b: bp.log_scan(b.detectors, b.x, 1, 10, 3)),
    "ramp_plan": (None, ramp),
    "rel_adaptive_scan": (
        None,
        lambda b: bp.rel_adaptive_scan(
            b.detectors, f"{b.capture.name}_peak", b.x, 0, 1, 0.05, 0.3, 0.2, False
        ),
    ),
    "rel_grid_scan": (4, lambda b: bp.rel_grid_scan(b.detectors, b.x, -1, 1, 2, b.y, -1, 1, 2)),
    "rel_list_grid_scan": (
        4,
        lambda b: bp.rel_list_grid_scan(b.detectors, b.x, [0, 1], b.y, [0, 1]),
    ),
    "rel_list_scan": (3, lambda b: bp.rel_list_scan(b.detectors, b.x, [0, 1, 3])),
    "rel_log_scan": (3, lambda b: bp.rel_log_scan(b.detectors, b.x, 1, 10, 3)),
    "rel_scan": (3, lambda b: bp.rel_scan(b.detectors, b.x, -1, 1, 3)),
    "rel_spiral": (None, lambda b: bp.rel_spiral(b.detectors, b.x, b.y, 1, 1, 0.5, 3)),
    "rel_spiral_fermat": (
        None,
        lambda b: bp.rel_spiral_fermat(b.detectors, b.x, b.y, 1, 1, 0.2, 1),
    ),
    "rel_spiral_square": (9, lambda b: bp.rel_spiral_square(b.detectors, b.x, b.y, 1, 1, 3, 3)),
    "relative_inner_product_scan": (
        3,
        lambda b: bp.relative_inner_product_scan(b.detectors, 3, b.x, 0, 1, b.y, 0, 1),
    ),
    "scan": (3, lambda b: bp.scan(b.detectors, b.x, 0, 1, b.y, 0, 2, num=3)),
    "scan_nd": (
        3,
        lambda b: bp.scan_nd(b.detectors, cycler(b.x, [0, 1, 2]) + cycler(b.y, [3, 4, 5])),
    ),
    "spiral": (None, lambda b: bp.spiral(b.detectors, b.x, b.y, 0, 0, 1, 1, 0.5, 3)),
    "spiral_fermat": (None, lambda b: bp.spiral_fermat(b.detectors, b.x, b.y, 0, 0, 1, 1, 0.2, 1)),
    "spiral_square": (9, lambda b: bp.spiral_square(b.detectors, b.x, b.y, 0, 0, 1, 1, 3, 3)),
    "tune_centroid": (
        None,
        lambda b: bp.tune_centroid(b.detectors, SIGNAL, b.x, 0, 1, 0.05, 5, snake=True),
    ),
    "tweak": (3, tweak),
    "x2x_scan": (3, lambda b: bp.x2x_scan(b.detectors, b.x, b.y, 0, 1, 3)),
}


def plans_of_bluesky() -> set[str]:
    """Names of the plans of Bluesky, each plan once: some have several names."""
    return {
        function.__name__
        for name, function in vars(bp).items()
        if not name.startswith("_")
        and inspect.isgeneratorfunction(inspect.unwrap(function))
        and function.__module__ == bp.__name__
    }


def test_every_plan_of_bluesky_has_a_case():
    assert plans_of_bluesky() == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_of_bluesky_records_packets_and_images(name, benches, run_engine, runs):
    b = benches("loopback")
    b.capture.reductions = {"peak": lambda _: b.peak()}
    answers = iter(["", "0.2", "end"])

    async def answer(_):
        return next(answers)

    run_engine.register_command("input", answer)
    rows, plan = CASES[name]
    first = b.instrument.next
    run_engine(plan(b))
    numbers = range(first, b.instrument.next)
    assert len(numbers) == rows if rows else len(numbers) > 1
    streams = [one.name for one in b.recorded] if name == "fly" else ["primary"]
    runs.check(b, dict.fromkeys(streams, numbers))


@pytest.mark.parametrize("bench", NETWORKS, indirect=True)
def test_a_scan_records_from_a_network(bench, run_engine, runs):
    first = bench.instrument.next
    run_engine(CASES["adaptive_scan"][1](bench))
    runs.check(bench, {"primary": range(first, bench.instrument.next)})
