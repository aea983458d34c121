"""Frames are read while a scan records them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from run_documents import until

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import FrameDetector

from .conftest import Source, images

KEY = "daq_port0_frames_images"


@pytest.mark.parametrize("kind", ["step", "fly"])
def test_the_rows_that_a_client_knows_are_read(
    run_engine: RunEngine,
    detector: FrameDetector,
    source: Source,
    tmp_path: Path,
    captures: Path,
    empty_catalog: Path,
    kind: str,
) -> None:
    """Files of frames have more rows than the catalog, and the catalog more than the client."""
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        run_engine.subscribe(catalog.writer(batch_size=1))
        early: list[Any] = []
        seen: list[tuple[int, Any, Any]] = []

        def look(name: str, _doc: dict[str, Any]) -> None:
            if name != "stream_datum":
                return
            catalog.flush()
            part = catalog.client[-1]["primary"].base
            if not early and KEY in part and f"{KEY}_batch" in part:
                early.extend([part[KEY], part[f"{KEY}_batch"]])
            if early:
                frames, batches = early
                seen.append((frames.shape[0], frames.read(), batches.read()))

        run_engine.subscribe(look)

        @bpp.stage_decorator([detector])
        @bpp.run_decorator()
        def flight() -> Any:
            yield from bps.prepare(detector, 18, wait=True)
            yield from bps.declare_stream(detector, name="primary", collect=True)
            yield from bps.kickoff(detector, wait=True)
            for sent in range(3, 18, 3):
                source.send(3)
                yield from until(lambda sent=sent: detector.get_index() >= sent)
                yield from bps.collect(detector, name="primary")
            source.send(3)
            yield from bps.collect_while_completing(
                [detector], [detector], flush_period=0.05, stream_name="primary"
            )

        if kind == "step":
            source.start()
        (uid,) = run_engine(bp.count([detector], 6) if kind == "step" else flight())
        source.stop()
        assert len(seen) > 5
        for known, frames, batches in seen:
            assert len(frames) == known
            np.testing.assert_array_equal(frames, images(batches)[:known])
        last = catalog.client[uid]["primary"].base[KEY].read()
        assert len(last) == (6 if kind == "step" else 18) > seen[0][0]
