"""Baselines, monitors, several streams and runs, `stage_sigs` and kinds, with step scans."""

from typing import Any

import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.preprocessors import SupplementalData
from checked_runs import parts
from ophyd import Kind
from run_documents import Documents

from daqiri_ophyd import plans
from daqiri_ophyd.devices import RxQueue

from .benches import PACKETS, Bench
from .stored_runs import StoredRuns

# Whether the frame detector knows the stream of each reading.
TOLD = pytest.mark.parametrize(
    ("bench", "told"),
    [
        ("loopback", False),
        ("loopback", True),
        ("udp", True),
        ("tcp", True),
        pytest.param("packet", False, marks=pytest.mark.root),
    ],
    indirect=["bench"],
)
ORDER = ["dark", "primary", "primary", "dark", "primary"]


def test_baselines_and_monitors(bench: Bench, run_engine: RunEngine, runs: StoredRuns) -> None:
    first = bench.instrument.next
    received = parts(bench.daq, RxQueue)[0].received
    monitors = [received, bench.instrument.number]
    run_engine.preprocessors.append(SupplementalData(baseline=[bench.daq], monitors=monitors))
    run_engine(bp.scan(bench.detectors, bench.x, 0, 1, 3))
    streams = {f"{received.name}_monitor", f"{bench.instrument.number.name}_monitor", "baseline"}
    assert streams < set(runs.documents.stop["num_events"])
    assert runs.documents.stop["num_events"]["baseline"] == 2
    before, after = runs.documents.rows("baseline")
    assert after[received.name] - before[received.name] == 3 * PACKETS
    runs.check(bench, {"primary": range(first, first + 3)})


@TOLD
def test_several_streams(bench: Bench, run_engine: RunEngine, runs: StoredRuns, told: bool) -> None:
    if told:
        run_engine.preprocessors.append(plans.reading_streams_wrapper)

    @bpp.stage_decorator(bench.detectors)
    @bpp.run_decorator()
    def plan() -> Any:
        if not told:
            for stream in ("dark", "primary"):
                yield from bps.declare_stream(*bench.detectors, name=stream)
        for stream in ORDER:
            yield from bps.trigger_and_read(bench.detectors, name=stream)

    first = bench.instrument.next
    run_engine(plan())
    runs.check(bench, streams_of(first))


def streams_of(first: int) -> dict[str, list[int]]:
    return {
        stream: [first + n for n, other in enumerate(ORDER) if other == stream]
        for stream in ("dark", "primary")
    }


def test_several_runs_of_one_stage(bench: Bench, run_engine: RunEngine, runs: StoredRuns) -> None:
    @bpp.stage_decorator(bench.detectors)
    def plan() -> Any:
        for _ in range(2):
            yield from bps.open_run()
            for stream in ORDER:
                yield from bps.trigger_and_read(bench.detectors, name=stream)
            yield from bps.close_run()

    first = bench.instrument.next
    run_engine(plan())
    runs.check(bench, streams_of(first), streams_of(first + len(ORDER)))


@TOLD
def test_interleaved_runs(
    bench: Bench, run_engine: RunEngine, runs: StoredRuns, told: bool
) -> None:
    if told:
        run_engine.preprocessors.append(plans.reading_streams_wrapper)

    @bpp.stage_decorator(bench.detectors)
    def plan() -> Any:
        for run in "ab":
            yield from bpp.set_run_key_wrapper(bps.open_run(), run)
        for run in "abbaab":
            reading = bps.trigger_and_read(bench.detectors)
            yield from bpp.set_run_key_wrapper(reading, run)
        for run in "ba":
            yield from bpp.set_run_key_wrapper(bps.close_run(), run)

    first = bench.instrument.next
    run_engine(plan())
    rows = {run: [first + n for n, other in enumerate("abbaab") if other == run] for run in "ab"}
    runs.check(bench, {"primary": rows["a"]}, {"primary": rows["b"]})


def test_stage_signatures_and_kinds(
    bench: Bench, run_engine: RunEngine, runs: StoredRuns, documents: Documents
) -> None:
    capture = bench.capture
    for detector in bench.recorded:
        detector.stage_sigs["on_drop"] = "flag"
        detector.dropped.kind = Kind.config
    capture.bytes.kind = Kind.omitted
    capture.t_first_ns.kind = Kind.hinted
    if bench.frames is not None:
        bench.frames.missing_packets.kind = Kind.omitted
        bench.frames.frames.kind = Kind.hinted
    first = bench.instrument.next
    run_engine(bp.scan(bench.detectors, bench.x, 0, 1, 3))
    descriptor, rows = documents.descriptor(), documents.rows()
    for detector in bench.recorded:
        assert detector.on_drop.get() == "fail"
        assert [row[f"{detector.name}_lossy"] for row in rows] == [False] * 3
        assert f"{detector.name}_dropped" not in rows[0]
        assert descriptor["configuration"][detector.name]["data"][detector.on_drop.name] == "flag"
        assert detector.dropped.name in descriptor["configuration"][detector.name]["data"]
    assert f"{capture.name}_bytes" not in rows[0]
    assert f"{capture.name}_t_first_ns" in descriptor["hints"][capture.name]["fields"]
    if bench.frames is not None:
        assert f"{bench.frames.name}_missing_packets" not in rows[0]
        assert f"{bench.frames.name}_frames" in descriptor["hints"][bench.frames.name]["fields"]
    runs.check(bench, {"primary": range(first, first + 3)})
