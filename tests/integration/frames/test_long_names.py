"""Runs with long names of ports, queues and plans are in the catalog, with all readings."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from ophyd.sim import SynAxis
from run_documents import Documents

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.catalog._unfinished import UnfinishedRun
from daqiri_ophyd.devices import Daq

from .conftest import Source, fly, images

PACKETS = {"count": 20, "size": 64, "udp_dst": 5001}


@pytest.fixture
def build(
    build: Callable[..., dict[str, Any]],
    long_names: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[..., dict[str, Any]]:
    """Return a configuration with a second queue, for packets."""

    def with_packets(**plan: Any) -> dict[str, Any]:
        config = build(**plan)
        (port,) = config["interfaces"]
        (queue,) = port["rx"]["queues"]
        port["rx"]["queues"].append({**queue, "name": "m", "id": 1})
        match = {"match": {"udp_dst": 5001}, "action": {"type": "queue", "id": 1}}
        port["rx"]["flows"].append({"name": "monitor", "id": 8, **match})
        return long_names(config)

    return with_packets


@pytest.fixture
def port(daq: Daq, run_engine: RunEngine) -> Any:
    (interface,) = daq.config.interfaces
    return daq.port_device(interface.name)


def readable(catalog: Catalog, uid: str, rows: dict[str, int]) -> Any:
    """Return a run, after a check that each of its streams is read, with this number of rows."""
    run = catalog.client[uid]
    assert run.metadata["stop"]["exit_status"] == "success"
    found = {stream: run[stream].read().sizes["time"] for stream in run}
    assert rows.items() <= found.items()
    assert run.validate(raise_on_error=True) is True
    return run


def test_every_name_has_20_characters(daq: Daq, port: Any) -> None:
    parts = [*port.rx.members, *port.tx.members, *port.reorder.members, *port.frames.members]
    names = [port.port_name, *(part.member_name for part in parts)]
    assert list(map(len, names)) == [20] * 6
    assert {part.name for part in (port, port.rx.members[1], port.rx.members[1].capture)} == {
        "daq_port0_detector_m_001",
        "daq_po0_de_m_001_rx_m_de_mod_001",
        "daq_po0_de_m_001_rx_m_de_mod_001_capture",
    }


def test_counters_of_the_engine(catalog: Catalog, run_engine: RunEngine, daq: Daq) -> None:
    (uid,) = run_engine(bp.count([daq], 2))
    run = readable(catalog, uid, {"primary": 2})
    assert set(run["primary"].read().data_vars) == set(daq.describe())


def test_baselines_and_monitors(
    catalog: Catalog, run_engine: RunEngine, daq: Daq, port: Any
) -> None:
    """The whole engine before and after a run, and its longest names during it."""
    capture = port.rx.members[1].capture
    capture.acquire_time.put(0.05)
    part = port.rx.members[0]
    signals = [part.received, part.dropped_no_packet_buffer, capture.lost_before_engine]
    plan = bpp.monitor_during_wrapper(bp.count([capture], 2), signals)
    (uid,) = run_engine(bpp.baseline_wrapper(plan, [daq]))
    run = readable(catalog, uid, {"primary": 2, "baseline": 2})
    assert set(run["baseline"].read().data_vars) == set(daq.describe())
    for signal in signals:
        assert list(run[f"{signal.name}_monitor"].read().data_vars) == [signal.name]


@pytest.mark.parametrize("queues", [1, 2])
def test_captures_of_a_killed_process(
    run_engine: RunEngine,
    documents: Documents,
    daq: Daq,
    port: Any,
    captures: Path,
    tmp_path: Path,
    empty_catalog: Path,
    queues: int,
) -> None:
    """The columns of recovered rows are those of the device."""
    capture = port.capture if queues == 2 else port.rx.members[1].capture
    capture.queues.put("all")
    options = {"tx": port.tx.members[0], "packets": PACKETS, "timeout": 30.0}
    run_engine(plans.capture(capture, 20, **options))
    whole = documents.rows()
    assert len(whole) == 1 and whole[0][f"{capture.name}_packets"] == 20
    cut = [name for name, _ in documents].index("stream_datum")
    run = UnfinishedRun(documents[:cut], [captures], lambda _: [])
    mended = run.complete()
    assert (run.rows, run.unlisted, run.mended) == (1, [], [])
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        writer = catalog.writer()
        for name, doc in mended:
            writer(name, doc)
        stored = catalog.client[-1]
        assert stored.metadata["stop"]["exit_status"] == "abort"
        table = stored["primary"].read()
        assert set(table.data_vars) == set(capture.describe())
        assert {key: table[key].item() for key in whole[0]} == whole[0]
        files = [key for key in table.data_vars if key.endswith("_files")]
        assert [len(capture_files(stored, key=key)) for key in files] == [1] * queues


def test_captures(catalog: Catalog, run_engine: RunEngine, daq: Daq, port: Any) -> None:
    tx, capture = port.tx.members[0], port.rx.members[1].capture
    options = {"tx": tx, "packets": PACKETS, "timeout": 30.0}
    (flown,) = run_engine(plans.capture(capture, 20, roll_packets=5, **options))
    run = readable(catalog, flown, {"primary": 4})
    assert run["primary"].read()[f"{capture.name}_packets"].values.tolist() == [5] * 4
    assert len(capture_files(run)) == 4

    motor = SynAxis(name="motor")
    (scanned,) = run_engine(plans.capture_scan(capture, motor, 0, 1, 3, 20, **options))
    run = readable(catalog, scanned, {"primary": 3})
    names = [path.name for path in capture_files(run)]
    assert run["primary"].read()[f"{capture.name}_files"].values.tolist() == names

    capture.acquire_time.put(0.05)
    (counted,) = run_engine(bp.count([capture], 2))
    readable(catalog, counted, {"primary": 2})


def test_a_capture_of_several_queues(
    catalog: Catalog, run_engine: RunEngine, daq: Daq, port: Any
) -> None:
    capture = port.capture
    capture.queues.put("all")
    options = {"tx": port.tx.members[0], "packets": PACKETS, "timeout": 30.0}
    (flown,) = run_engine(plans.capture(capture, 20, **options))
    run = readable(catalog, flown, {"primary": 1})
    table = run["primary"].read()
    assert set(table.data_vars) == set(capture.describe())
    counts = [
        table[key.removesuffix("_files") + "_packets"].item()
        for key in table.data_vars
        if key.endswith("_files")
    ]
    assert counts == [0, 20] and table[f"{capture.name}_packets"].item() == 20


def test_frames(catalog: Catalog, run_engine: RunEngine, daq: Daq, port: Any) -> None:
    daq.open()
    (detector,) = port.frames.members
    source = Source(daq, port.port_name, port.tx.members[0].member_name)
    source.start()
    try:
        (counted,) = run_engine(bp.count([detector, port.reorder.members[0]], 3))
        (scanned,) = run_engine(bp.scan([detector], SynAxis(name="motor"), 0, 1, 4))

        def flight() -> Any:
            yield from bps.stage(detector)
            yield from fly(detector, prepared=5)
            yield from bps.unstage(detector)

        (flown,) = run_engine(flight())
    finally:
        source.stop()
    for uid, rows in ((counted, 3), (scanned, 4), (flown, 5)):
        part = readable(catalog, uid, {"primary": rows})["primary"].base
        batches = part[f"{detector.name}_batch"].read()
        np.testing.assert_array_equal(part[detector.name].read(), images(batches))
