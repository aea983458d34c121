"""A process that records frames in a scan with a catalog, until it is killed."""

import shutil
import sys
from pathlib import Path
from typing import Any

import conftest  # of this folder
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from run_documents import until

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import make_daq, reductions


def main(data: Path, empty_catalog: Path, kind: str, roll: int) -> None:
    """Report when rows are in documents, and more frames in files."""
    shutil.copytree(empty_catalog, data / "catalog")
    engine = RunEngine({}, context_managers=[])
    catalog = Catalog.open(data / "catalog", readable=[data / "captures"])
    engine.subscribe(catalog.writer())
    daq = make_daq(conftest.configuration(), "daq", directory=data / "captures").open()
    detector, source = daq.port0.frames.images, conftest.Source(daq)
    detector.num_frames.put(0 if kind == "fly" else 2)
    detector.roll_frames.put(roll)
    detector.reductions = {"mean": reductions.mean()}

    def tell() -> Any:
        catalog.flush()
        sys.stdout.write("recording\n")
        sys.stdout.flush()
        yield from bps.sleep(600)

    def fly() -> Any:
        yield from bps.declare_stream(detector, name="primary", collect=True)
        yield from bps.kickoff(detector, wait=True)
        source.send(3)
        yield from until(lambda: detector.get_index() >= 3)
        yield from bps.collect(detector, name="primary")
        source.send(9)
        yield from until(lambda: detector.get_index() >= 12)
        yield from tell()

    def step() -> Any:
        for point in range(4):
            yield from bps.trigger(detector, group="reading")
            if point == 3:
                source.send(1)
                yield from until(lambda: detector.progress.flushed == 7)
                yield from tell()
            source.send(2)
            yield from bps.wait("reading")
            yield from bps.create()
            yield from bps.read(detector)
            yield from bps.save()

    plan = fly() if kind == "fly" else step()
    engine(bpp.stage_wrapper(bpp.run_wrapper(plan), [detector]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
