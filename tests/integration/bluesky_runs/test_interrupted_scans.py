"""Step scans that are suspended, paused and ended, at several points of a reading."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import Msg, MsgGenerator, RunEngineInterrupted
from waiting import wait_for

from .benches import Bench
from .conftest import NETWORKS
from .interrupts import STATUS, Beam
from .stored_runs import StoredRuns

POINTS = ["between", "recording", "triggered", "read"]


def at_point(
    plan: MsgGenerator[Any], point: str, b: Bench, stub: Callable[[], MsgGenerator[Any]]
) -> MsgGenerator[Any]:
    """Run a stub once, at a point of the second reading of a scan."""
    seen: dict[Any, int] = {}

    def insert(msg: Msg) -> tuple[Any, Any]:
        key: str | None = msg.command
        if key == "wait":  # also for the motor
            key = f"wait for {seen.get('trigger', 0)}"
        if key == "trigger" and msg.obj is not b.instrument:
            key = None
        seen[key] = seen.get(key, 0) + 1
        match point, key, seen[key]:
            case (
                ("between", "checkpoint", 3) | ("saved", "save", 2) | ("triggered", "wait for 2", 1)
            ):
                return None, stub()
            case ("read", "save", 2):
                return before(msg), None
        return None, None

    def before(msg: Msg) -> MsgGenerator[Any]:
        yield from stub()
        return (yield msg)

    return bpp.plan_mutator(plan, insert)


def interrupted(run_engine: RunEngine, b: Bench, how: str, point: str) -> None:
    """Run a scan of four points, interrupt its second reading, and let it continue or end."""
    scan = bp.scan(b.detectors, b.x, 0, 1, 4)
    beam = Beam(run_engine) if how == "suspend" else None
    stub = {"deferred": bps.deferred_pause, "suspend": beam and beam.off}.get(how, bps.pause)
    watcher = None
    if point == "recording":
        b.instrument.held_at.add(b.instrument.next + 1)

        def watch() -> None:
            wait_for(b.half_has_arrived)
            if beam is not None:
                beam.go_off()
                return
            run_engine.request_pause(defer=how == "deferred")
            if how == "deferred":  # it takes effect after the reading
                b.instrument.release()

        watcher = threading.Thread(target=watch)
        watcher.start()
    else:
        scan = at_point(scan, point, b, stub)
    try:
        if beam is not None:
            run_engine(scan)
            return
        with pytest.raises(RunEngineInterrupted):
            run_engine(scan)
    finally:
        if watcher is not None:
            watcher.join()
        if beam is not None:
            beam.end()
            run_engine.clear_suspenders()
    assert run_engine.state == "paused"
    getattr(run_engine, how if how in STATUS else "resume")()


def check(b: Bench, runs: StoredRuns, first: int, how: str, point: str) -> None:
    repeated = point != "between" and how != "deferred"
    if how in STATUS:
        rows = [first] if repeated else [first, first + 1]
    else:
        rows = [first, *range(first + 1 + repeated, first + 4 + repeated)]
    left_out = [first + 1] if repeated else []
    runs.check(b, {"primary": rows}, status=STATUS.get(how, "success"), left_out=left_out)


@pytest.mark.parametrize(
    ("how", "point"),
    [
        *[(how, point) for how in ("suspend", "pause", "abort") for point in POINTS],
        *[(how, point) for how in ("deferred", "stop", "halt") for point in POINTS[1:3]],
    ],
)
def test_an_interrupted_scan(
    benches: Callable[[str], Bench], run_engine: RunEngine, runs: StoredRuns, how: str, point: str
) -> None:
    check_interrupted(benches("loopback"), run_engine, runs, how, point)


def check_interrupted(
    b: Bench, run_engine: RunEngine, runs: StoredRuns, how: str, point: str
) -> None:
    first = b.instrument.next
    interrupted(run_engine, b, how, point)
    check(b, runs, first, how, point)
    if how == "halt" and point == "recording":  # another one follows
        b.instrument.held_at.clear()
        first = b.instrument.next
        run_engine(bp.count(b.detectors, 2))
        runs.check(b, {"primary": [first, first + 1]})


@pytest.mark.parametrize("bench", NETWORKS, indirect=True)
@pytest.mark.parametrize(
    ("how", "point"),
    [
        ("suspend", "recording"),
        ("deferred", "recording"),
        ("abort", "recording"),
        ("stop", "triggered"),
        ("halt", "recording"),
    ],
)
def test_an_interrupted_scan_of_a_network(
    bench: Bench, run_engine: RunEngine, runs: StoredRuns, how: str, point: str
) -> None:
    check_interrupted(bench, run_engine, runs, how, point)


def test_a_pause_between_two_readings_repeats_the_first(
    bench: Bench, run_engine: RunEngine, runs: StoredRuns
) -> None:
    """As in the delay of a count: the last checkpoint is before the reading; both are rows."""
    first = bench.instrument.next
    with pytest.raises(RunEngineInterrupted):
        run_engine(at_point(bp.count(bench.detectors, 3), "saved", bench, bps.pause))
    run_engine.resume()
    runs.check(bench, {"primary": range(first, first + 4)}, repeated=1)
