"""Records in a run of flows that are configured while it is open."""

import json
import threading

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import IllegalMessageSequence, RunEngineInterrupted
from run_documents import until

from daqiri_ophyd import plans

from .conftest import prepare

CHANGED = {"port0": {"images": {"udp_dst": 6000}}}
BURST = {"count": 50, "size": 100, "udp_dst": 6000}


def matches(documents) -> list[object]:
    """Return what flow `images` matched, according to the events of flows."""
    tables = [json.loads(row["daq_flow_table"]) for row in documents.rows("flows")]
    return [table["port0"][0]["match"]["udp_dst"] for table in tables]


def streams(documents) -> list[str]:
    return [each["name"] for each in documents.of("descriptor")]


@pytest.fixture
def fails(daq, monkeypatch):
    """The first reading for an event of flows fails."""
    read = daq.configuration_sha256.read

    def refuse():
        monkeypatch.setattr(daq.configuration_sha256, "read", read)
        raise OSError("no reading")

    monkeypatch.setattr(daq.configuration_sha256, "read", refuse)


def test_a_run_with_a_baseline_has_an_event_of_the_change(daq, run_engine, documents):
    run_engine.preprocessors.append(bpp.SupplementalData(baseline=[daq]))
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from bps.trigger_and_read([daq.port0.flows.images])
        yield from plans.configure_flows(daq, CHANGED)
        yield from bps.trigger_and_read([daq.port0.flows.images])
        yield from plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 6001}}})

    with daq:
        run_engine(plan())
    assert streams(documents) == ["baseline", "primary", "flows"]
    assert matches(documents) == [6000, 6001]
    row = documents.rows("flows")[-1]
    assert set(row) == {"daq_flow_table", "daq_configuration_sha256"}
    assert json.loads(row["daq_flow_table"]) == daq.flows
    assert row["daq_configuration_sha256"] == daq.config_sha256
    assert (len(documents.rows("baseline")), len(documents.rows())) == (2, 2)


def test_a_capture_with_a_stream_of_what_is_sent_goes_on(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    def change():
        yield from until(lambda: tx.sent.get() > 0)
        yield from plans.configure_flows(daq, CHANGED)
        yield from bps.checkpoint()

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, BURST)
        yield from plans.capture_during(capture, change(), tx=tx)

    with daq:
        run_engine(plan())
    assert documents.stop["exit_status"] == "success"
    assert matches(documents) == [6000]
    assert sorted(streams(documents)) == ["flows", "primary", "transmit"]
    assert sum(row["daq_port0_capture_packets"] for row in documents.rows()) == 50


def test_flows_that_are_so_already_are_no_event(daq, run_engine, documents):
    run_engine(bpp.run_wrapper(plans.configure_flows(daq, {"port0": {"images": {"id": 7}}})))
    assert streams(documents) == []


def test_between_runs_there_is_no_event(daq, run_engine, documents):
    def plan():
        yield from bp.count([daq.port0.flows.images])
        yield from plans.configure_flows(daq, CHANGED)
        yield from bp.count([daq.port0.flows.images])

    run_engine(plan())
    assert streams(documents) == ["primary", "primary"]
    used = [each["configuration"]["daq_port0_flows_images"] for each in documents.of("descriptor")]
    assert [each["data"]["daq_port0_flows_images_udp_dst"] for each in used] == [5000, 6000]


def test_a_change_that_is_undone_is_told(daq, run_engine, documents, fails):
    before = daq.flows
    more = {"more": {"id": 70, "queue": "rest"}}

    def plan():
        with pytest.raises(OSError, match="no reading"):
            yield from plans.configure_flows(daq, {"port0": CHANGED["port0"] | more})
        assert daq.flows == before
        assert not hasattr(daq.port0.flows, "more")
        yield from bps.trigger_and_read([daq.port0.flows.images])

    with daq:
        run_engine(bpp.run_wrapper(plan()))
        assert daq.engine.config.to_dict() == daq.configuration_dict
    assert json.loads(documents.rows("flows")[-1]["daq_flow_table"]) == before
    assert streams(documents) == ["flows", "primary"]


def test_what_others_have_changed_meanwhile_is_not_undone(daq, run_engine, documents, fails):
    read = daq.flow_table.read

    def change_another():
        daq.change_flows(
            {"port0": {"other": {"udp_dst": 7000}, "late": {"id": 71, "queue": "rest"}}}
        )
        return read()

    daq.flow_table.read = change_another
    table = {"port0": {"images": None, "more": {"id": 70, "queue": "rest", "udp_dst": 6000}}}
    with daq, pytest.raises(OSError, match="no reading"):
        run_engine(bpp.run_wrapper(plans.configure_flows(daq, table)))
    found = [(flow["name"], flow.get("match", {}).get("udp_dst")) for flow in daq.flows["port0"]]
    assert found == [("images", 5000), ("other", 7000), ("late", None)]
    assert [flow.member_name for flow in daq.port0.flows.members] == ["images", "other", "late"]


def test_flows_are_not_configured_within_an_event(daq, run_engine, documents):
    @bpp.run_decorator()
    def plan():
        yield from bps.create("primary")
        yield from bps.read(daq.port0.flows.images)
        with pytest.raises(IllegalMessageSequence, match="before 'create' or after 'save'"):
            yield from plans.configure_flows(daq, CHANGED)
        assert daq.port0.flows.images.udp_dst.get() == 5000
        yield from bps.save()

    run_engine(plan())
    assert streams(documents) == ["primary"]
    assert len(documents.rows()) == 1


@pytest.mark.parametrize("run", [False, True], ids=["between runs", "in a run"])
@pytest.mark.parametrize("end", ["resume", "abort"])
def test_a_plan_that_is_paused_while_flows_change(
    daq, run_engine, documents, monkeypatch, run, end
):
    daq.open()
    began, resumed = threading.Event(), threading.Event()
    change = daq.engine.change_flows

    def change_late(config) -> None:
        began.set()
        assert resumed.wait(60)
        change(config)

    def pause() -> None:
        assert began.wait(60)
        run_engine.request_pause()

    @bpp.run_decorator() if run else lambda plan: plan
    def plan():
        yield from bps.checkpoint()
        yield from plans.configure_flows(daq, CHANGED)

    with monkeypatch.context() as patched:
        patched.setattr(daq.engine, "change_flows", change_late)
        pausing = threading.Thread(target=pause)
        pausing.start()
        with pytest.raises(RunEngineInterrupted):
            run_engine(plan())
        pausing.join()
        resumed.set()
        getattr(run_engine, end)()
    udp_dst = {"resume": 6000, "abort": 5000}[end]
    assert daq.port0.flows.images.udp_dst.get() == udp_dst
    if run and (end == "resume" or documents.of("event")):
        assert matches(documents)[-1] == udp_dst
    if not run:
        assert not documents
