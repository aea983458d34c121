"""The engine in the start documents of runs."""

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from ophyd.sim import motor
from tiled.queries import Contains, Eq, FullText, Key, Like

import daqiri_ophyd.plans as plans
from daqiri_ophyd.catalog import capture_files
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.plans import engine_metadata_wrapper

from .conftest import loopback

BURST = {"count": 20, "size": 64, "rate": 1e4}


def engine_of(daq, flows=("images", "other")):
    return {
        "config_sha256": daq.config_sha256,
        "engine": "loopback",
        "version": daq.engine_version.get(),
        "flows": {"port0": list(flows)},
        "config": daq.configuration_dict["daqiri"]["cfg"],
    }


def test_our_plans_describe_the_engine_also_while_it_is_closed(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    assert not daq.is_open
    run_engine(plans.timed_tx(tx, BURST))
    run_engine(plans.capture(capture, 20, tx=tx, packets=BURST))
    run_engine(plans.capture_scan(capture, motor, 0, 1, 2, tx=tx, packets=BURST))
    motion = plans.capture_during_wrapper(bp.scan([], motor, 0, 1, 2), capture)
    run_engine(motion)
    assert [doc["daqiri"] for doc in documents.of("start")] == [{"daq": engine_of(daq)}] * 4


def test_a_preprocessor_describes_the_engine_in_any_plan(daq, run_engine, documents):
    run_engine.preprocessors.append(engine_metadata_wrapper)
    run_engine(bp.count([daq.port0.rx.frames]))
    run_engine(bp.count([motor]))

    @bpp.stage_decorator([daq])
    def two_runs():
        yield from bpp.run_wrapper(bps.null(), md={"daqiri": {"note": "mine"}})
        yield from bps.unstage(daq)
        yield from bpp.run_wrapper(bps.null())
        yield from bps.stage(daq)

    run_engine(two_runs())
    found = [doc.get("daqiri") for doc in documents.of("start")]
    described = engine_of(daq)
    assert found == [{"daq": described}, None, {"note": "mine", "daq": described}, None]


def test_ports_with_names_that_no_key_may_have(run_engine, documents, captures):
    configuration = loopback()
    configuration["interfaces"][0]["name"] = "10.0/port"
    with make_daq(configuration, "daq", directory=captures) as daq:
        run_engine(engine_metadata_wrapper(bp.count([daq])))
    (start,) = documents.of("start")
    assert start["daqiri"]["daq"]["flows"] == {"port_10_0_port": ["images", "other"]}


def test_metadata_that_use_the_key_for_something_else_are_refused(daq, run_engine, documents):
    plan = engine_metadata_wrapper(bp.count([daq.port0.rx.frames], md={"daqiri": "mine"}))
    with pytest.raises(TypeError, match="'daqiri': 'mine'; that key is for the engines"):
        run_engine(plan)
    assert documents == []


def test_the_hash_is_that_of_the_configuration(daq, make, run_engine, documents):
    before = daq.config_sha256
    assert make().config_sha256 == before != make(timeout_us=400).config_sha256
    with daq:
        assert daq.config_sha256 == before
    run_engine(plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 5050}}}))
    assert daq.config_sha256 != before
    run_engine(plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 5000}}}))
    assert daq.config_sha256 == before


def test_runs_are_found_by_configuration_engine_and_flow(daq, make, run_engine, catalog):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    (old,) = run_engine(plans.capture(capture, 20, tx=tx, packets=BURST))
    before = daq.config_sha256
    run_engine(plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 5000, "id": 9}}}))
    (new,) = run_engine(plans.replay(tx, old, catalog, detector=capture))
    (other,) = run_engine(bp.count([motor]))
    runs = catalog.client

    def uids(query):
        return {run.metadata["start"]["uid"] for run in runs.search(query).values()}

    assert uids(Key("start.daqiri.daq.config_sha256") == before) == {old}
    assert uids(Eq("start.daqiri.daq.config_sha256", daq.config_sha256)) == {new}
    assert uids(Eq("start.daqiri.daq.engine", "loopback")) == {old, new}
    assert uids(Contains("start.daqiri.daq.flows.port0", "images")) == {old, new}
    assert uids(Contains("start.daqiri.daq.flows.port0", "nothing")) == set()
    assert uids(Like("start.daqiri.daq.config_sha256", f"{before[:8]}%")) == {old}
    assert uids(FullText("images")) == {old, new}
    assert uids(FullText(before)) == {old}
    assert other not in uids(FullText("loopback"))
    assert len(capture_files(runs[new])) == 1
