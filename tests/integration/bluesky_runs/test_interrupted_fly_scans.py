"""Fly scans that are suspended, paused and ended, while they move and while they complete."""

import threading
from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import MsgGenerator, RunEngineInterrupted
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureError

from .benches import PACKETS, Bench
from .flights import COUNT, EACH, by_stream, sent
from .interrupts import STATUS, Beam
from .stored_runs import StoredRuns

HALF = COUNT // 2 + 1


def limited(b: Bench) -> None:
    b.capture.num_packets.put(COUNT * PACKETS)
    if b.frames is not None:
        b.frames.num_frames.put(COUNT)


def stock(b: Bench, motion: MsgGenerator[Any]) -> MsgGenerator[Any]:
    """Bluesky's own stubs."""
    given = by_stream(b)

    @bpp.stage_decorator(b.recorded)
    @bpp.run_decorator()
    def plan() -> Any:
        for stream, device in given.items():
            yield from bps.declare_stream(device, name=stream, collect=True)
        yield from bps.kickoff_all(*b.recorded, wait=True)
        yield from motion
        for stream, device in given.items():
            yield from bps.collect_while_completing(
                [device], [device], flush_period=0.02, stream_name=stream
            )

    return plan()


def during(b: Bench, motion: MsgGenerator[Any]) -> MsgGenerator[Any]:
    """The plan stub of this package."""

    @bpp.stage_decorator(b.recorded)
    @bpp.run_decorator()
    def plan() -> Any:
        yield from plans.capture_during(by_stream(b), motion, flush_period=0.02)

    return plan()


def interrupted(run_engine: RunEngine, b: Bench, make: Any, how: str, where: str) -> None:
    """Interrupt a fly scan after some rows, send the rest, and let it continue or end."""
    beam = Beam(run_engine) if how == "suspend" else None
    stub = {"deferred": bps.deferred_pause, "suspend": beam and beam.off}.get(how, bps.pause)
    completing = threading.Event()

    def motion() -> MsgGenerator[None]:
        yield from sent(b, b.recorded, HALF)
        yield from bps.checkpoint()
        if where == "moving":
            yield from stub()
            if how == "deferred":
                yield from bps.checkpoint()
            b.instrument.send(COUNT - HALF)
        else:
            completing.set()

    def watch() -> None:
        completing.wait(60)
        if beam is not None:
            beam.go_off()
            return
        run_engine.request_pause(defer=how == "deferred")

    watcher = threading.Thread(target=watch) if where == "completing" else None
    if watcher is not None:
        watcher.start()
    try:
        if beam is not None:
            if where == "completing":
                beam.then = lambda: send_when_running(b)
            run_engine(make(b, motion()))
            return
        with pytest.raises(RunEngineInterrupted):
            run_engine(make(b, motion()))
    finally:
        if watcher is not None:
            completing.set()
            watcher.join()
        if beam is not None:
            beam.end()
            run_engine.clear_suspenders()
    assert run_engine.state == "paused"
    if how in STATUS:
        getattr(run_engine, how)()
        return
    rest = threading.Thread(target=send_when_running, args=(b,))
    if where == "completing":
        rest.start()
    run_engine.resume()
    if where == "completing":
        rest.join()


def send_when_running(b: Bench) -> None:
    """Send the rest, once the paused engine records again."""
    wait_for(lambda: all(device.is_recording for device in b.recorded))
    b.instrument.send(COUNT - HALF)


HERE = [
    (during, "suspend", "moving"),
    (during, "pause", "moving"),
    (during, "deferred", "completing"),
    (during, "stop", "completing"),
    (stock, "suspend", "moving"),
    (stock, "pause", "completing"),
    (stock, "abort", "moving"),
    (stock, "halt", "moving"),
]
EVERYWHERE = [
    (during, "suspend", "completing"),
    (during, "pause", "completing"),
    (during, "deferred", "moving"),
    (during, "abort", "moving"),
    (during, "halt", "moving"),
    (stock, "pause", "moving"),
]


@pytest.mark.parametrize("per_file", [EACH], indirect=True)
@pytest.mark.parametrize(
    ("bench", "make", "how", "where"),
    [
        *[("loopback", *case) for case in HERE + EVERYWHERE],
        *[("udp", *case) for case in EVERYWHERE],
        *[("tcp", *case) for case in EVERYWHERE],
        *[pytest.param("packet", *case, marks=pytest.mark.root) for case in EVERYWHERE],
    ],
    indirect=["bench"],
)
def test_an_interrupted_fly_scan(
    bench: Bench,
    per_file: int,
    run_engine: RunEngine,
    runs: StoredRuns,
    make: Any,
    how: str,
    where: str,
) -> None:
    limited(bench)
    first = bench.instrument.next
    interrupted(run_engine, bench, make, how, where)
    if how == "halt" or (how == "abort" and make is stock):  # it cannot collect any more
        runs.check_cut_short(bench, range(first, first + HALF), per_file)
        return
    rows = range(first, first + (HALF if how in STATUS else COUNT))
    runs.check(
        bench,
        dict.fromkeys(by_stream(bench), rows),
        status=STATUS.get(how, "success"),
        per_file=per_file,
    )


@pytest.mark.parametrize("bench", ["loopback"], indirect=True)
@pytest.mark.parametrize("per_file", [EACH], indirect=True)
def test_rows_that_a_stop_leaves_out_are_an_error(
    bench: Bench, per_file: int, run_engine: RunEngine, runs: StoredRuns
) -> None:
    """Bluesky marks the run as a success, before the devices are unstaged."""
    limited(bench)
    first = bench.instrument.next
    with pytest.raises(CaptureError, match=r"are in no document[.,].*Collect until"):
        interrupted(run_engine, bench, stock, "stop", "moving")
    runs.check_cut_short(bench, range(first, first + HALF), per_file, status="success")
