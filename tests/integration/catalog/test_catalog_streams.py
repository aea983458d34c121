"""Runs whose files are in several streams, and stages with several runs, in a catalog."""

import shutil

import numpy as np
import pytest
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky_tiled_plugins import TiledWriter

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.devices import make_daq


def indices(files) -> list[int]:
    return [int(file.stem[-6:]) for file in files]


@pytest.fixture(params=[1, 10_000])
def writer(catalog: Catalog, request):
    """Rows stored one by one, and at the end."""
    return catalog.writer(batch_size=request.param)


@pytest.fixture
def dark_and_primary(device):
    device.file_prefix = "port0"  # digits before the number

    @bpp.stage_decorator([device])
    @bpp.run_decorator()
    def plan():
        for name in ("dark", "primary", "primary", "dark", "primary"):
            yield from bps.trigger_and_read([device], name=name)

    return plan


def test_each_stream_has_its_files(catalog, writer, device, run_engine, dark_and_primary):
    run_engine.subscribe(writer)
    (uid,) = run_engine(dark_and_primary())
    run = catalog.client[uid]
    for stream, numbers in (("dark", [0, 3]), ("primary", [1, 2, 4])):
        assert indices(capture_files(run, stream=stream)) == numbers
        read = run[stream].read()
        assert read["soft_files"].values.tolist() == [f"port0_{n:06d}.pcap" for n in numbers]
        np.testing.assert_array_equal(read["soft_dropped"], numbers)
    run.validate()


def test_an_exported_run_is_the_same_when_it_is_stored_again(
    catalog, run_engine, device, dark_and_primary, fly_plan
):
    run_engine.subscribe(catalog.writer())
    uids = [*run_engine(dark_and_primary()), *run_engine(fly_plan(device))]
    for uid in uids:
        run = catalog.client[uid]
        files = {stream: capture_files(run, stream=stream) for stream in run.base}
        documents = [(name, doc.to_dict()) for name, doc in run.documents()]
        catalog.client.delete_contents(uid, recursive=True, external_only=False)
        writer = TiledWriter(catalog.client)
        for name, doc in documents:
            writer(name, doc)
        again = catalog.client[uid]
        assert {stream: capture_files(again, stream=stream) for stream in again.base} == files
        again.validate()


def test_several_runs_in_a_stage(catalog, writer, device, run_engine):
    run_engine.subscribe(writer)

    @bpp.stage_decorator([device])
    def plan():
        for _ in range(2):
            yield from bps.open_run()
            yield from bps.trigger_and_read([device])
            yield from bps.trigger_and_read([device])
            yield from bps.close_run()

    uids = run_engine(plan())
    files = [capture_files(catalog.client[uid]) for uid in uids]
    assert [indices(found) for found in files] == [[0, 1], [2, 3]]


def test_a_stream_of_several_stages(catalog, writer, device, run_engine):
    run_engine.subscribe(writer)

    @bpp.run_decorator()
    def plan():
        for _ in range(2):
            yield from bps.stage(device)
            yield from bps.trigger_and_read([device])
            yield from bps.trigger_and_read([device])
            yield from bps.unstage(device)

    (uid,) = run_engine(plan())
    run = catalog.client[uid]
    assert capture_files(run) == device.written and len(device.written) == 4
    assert run.primary.read()["soft_files"].values.tolist() == [p.name for p in device.written]


def test_a_server_that_mounts_the_data_elsewhere(tmp_path, empty_catalog, run_engine):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    captures, mounted = tmp_path / "captures", tmp_path / "mnt" / "daq1"
    mounted.parent.mkdir()
    with (
        Catalog.open(tmp_path / "catalog", readable=[mounted]) as catalog,
        make_daq(profiles.path("loopback"), directory=captures) as daq,
    ):
        capture = daq.port0.capture
        capture.uri.put(f"file://localhost{mounted}")
        run_engine.subscribe(catalog.writer())
        packets = {"count": 100, "size": 60}
        (uid,) = run_engine(plans.capture(capture, 100, tx=daq.port0.tx.tx_q0, packets=packets))
        captures.rename(mounted)
        run = catalog.client[uid]
        (file,) = capture_files(run)
        assert file.is_relative_to(mounted)
        read = run.primary.read()
        assert read[f"{capture.name}_files"].values == [file.name]
        run.validate()
