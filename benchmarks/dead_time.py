"""Dead time between the points of a step scan: a capture against a simulated detector.

`bp.scan` over a simulated motor, with an exposure of 10 ms at each point: a capture of the loopback
engine (`acquire_time`), which writes a file with its metadata at each point, and `SynSignal` of
ophyd.sim with the same `exposure_time`, which sleeps. Dead time is what a point takes beyond its
exposure; with documents that nobody reads, and as the embedded catalog gets them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bluesky import RunEngine
from bluesky import plans as bp
from ophyd.sim import SynAxis, SynSignal
from runner import Comparison, Want, arguments

from daqiri_ophyd import profiles
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import make_daq

EXPOSURE_S = 0.01
POINTS = 100


def dead_time(run_engine: RunEngine, detector: Any, motor: SynAxis) -> float:
    """Ms per point of a scan, without the exposure."""
    begun = time.perf_counter()
    run_engine(bp.scan([detector], motor, 0, 1, POINTS))
    return ((time.perf_counter() - begun) / POINTS - EXPOSURE_S) * 1e3


def main() -> None:
    """Measure both in turn."""
    args = arguments(__doc__, seconds=1.0, rounds=5)
    comparison = Comparison("dead_time", "Dead time between points", __doc__, args)
    motor = SynAxis(name="motor")
    simulated = SynSignal(lambda: 1.0, name="det", exposure_time=EXPOSURE_S)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        with make_daq(profiles.path("loopback"), directory=data / "captures") as daq:
            capture = daq.port0.capture
            capture.acquire_time.put(EXPOSURE_S)

            def case(name: str, run_engine: RunEngine) -> None:
                comparison.case(
                    name,
                    "ms a point",
                    {
                        "capture": lambda: dead_time(run_engine, capture, motor),
                        "ophyd.sim": lambda: dead_time(run_engine, simulated, motor),
                    },
                    wants=(Want("capture", ("ophyd.sim",), at_most=2.0),),
                    better="lower",
                    digits=2,
                )

            case("no subscribers", RunEngine({}))
            with Catalog.open(data / "catalog", readable=[data / "captures"]) as catalog:
                stored = RunEngine({})
                stored.subscribe(catalog.writer())
                case("embedded catalog", stored)
    comparison.finish()


if __name__ == "__main__":
    main()
