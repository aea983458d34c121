"""Opening an engine takes time: plans do it on threads, so the RunEngine's loop keeps running."""

import threading

import pytest
from bluesky import Msg
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, RunEngineInterrupted

from daqiri_ophyd import plans
from daqiri_ophyd.devices.daq._requests import Request
from daqiri_ophyd.engine import Engine, NotSupportedError

BURST = {"count": 50, "size": 100, "udp_dst": 6000}


class Opening:
    """Engines that open only while the loop of a RunEngine is running, or not at all."""

    def __init__(self, run_engine, monkeypatch) -> None:
        self.count = 0
        # Raised while it is set; the other configuration still opens.
        self.error: Exception | None = None
        self.spared: object = None
        self._loop, self._open = run_engine.loop, Engine.open
        monkeypatch.setattr(Engine, "open", staticmethod(self._open_slowly))

    def _open_slowly(self, config) -> Engine:
        self.count += 1
        went_on = threading.Event()
        self._loop.call_soon_threadsafe(went_on.set)
        assert went_on.wait(60), "the loop was blocked"
        if self.error is not None and config is not self.spared:
            raise self.error
        return self._open(config)


@pytest.fixture
def opening(run_engine, monkeypatch) -> Opening:
    return Opening(run_engine, monkeypatch)


def test_a_plan_that_stages_opens_the_engine_beside_the_loop(daq, run_engine, documents, opening):
    run_engine(bp.count([daq]))
    run_engine(bp.count([daq]))
    assert opening.count == 1
    assert len(documents.of("event")) == 2


def test_parts_that_are_staged_alone_open_the_engine_once_beside_the_loop(daq, run_engine, opening):
    tx, capture = daq.port0.tx.out, daq.port0.capture

    def plan():
        yield from bps.stage_all(capture, tx)
        assert daq.is_open
        assert (capture.busy, tx.busy) == ("staged", "staged")
        yield from bps.unstage_all(capture, tx)

    run_engine(plan())
    assert opening.count == 1


def test_a_plan_that_stages_and_does_not_wait_finds_the_engine_open(daq, run_engine):
    def plan():
        yield from bps.stage(daq)
        assert daq.tx_queue("port0", "out").counters().sent == 0
        yield from bps.unstage(daq)

    run_engine(plan())


def test_a_wrapper_that_needs_the_list_of_what_is_staged_has_it(daq, run_engine, documents):
    def plan():
        yield Msg("trigger", daq.port0.tx, group="sent")

    run_engine(bpp.lazily_stage_wrapper(plan()))
    assert not daq.engine.closed
    assert not daq.port0.capture.busy


def test_a_script_that_stages_has_the_list_and_an_open_engine(daq):
    staged = daq.stage()
    assert isinstance(staged, list)
    assert staged[0] is daq
    assert daq.is_open
    daq.unstage()


def test_an_engine_that_cannot_be_opened_fails_the_plan_that_stages_it(
    daq, run_engine, documents, opening
):
    opening.error = NotSupportedError("no such hardware")
    with pytest.raises(FailedStatus, match="opening the engine failed: no such hardware") as raised:
        run_engine(bp.count([daq.port0.capture]))
    assert isinstance(raised.value.__cause__, NotSupportedError)
    assert not documents
    assert not daq.is_open
    assert not daq.port0.capture.busy
    opening.error = None
    run_engine(bp.count([daq]))
    assert documents.stop["exit_status"] == "success"


@pytest.mark.usefixtures("fixed_flows")
def test_a_key_that_a_plan_moves_is_changed_beside_the_loop(daq, run_engine, opening):
    run_engine(bp.count([daq]))
    run_engine(bps.mv(daq.port0.flows.images.udp_dst, 6000))
    assert opening.count == 2
    assert daq.port0.flows.images.udp_dst.get() == 6000


@pytest.mark.usefixtures("fixed_flows")
def test_flows_that_a_plan_configures_are_changed_beside_the_loop(daq, run_engine, opening):
    run_engine(bp.count([daq]))
    run_engine(plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 6000}}}))
    assert opening.count == 2
    assert daq.port0.flows.images.udp_dst.get() == 6000


@pytest.mark.usefixtures("fixed_flows")
def test_flows_are_configured_once_where_the_plan_is_paused_meanwhile(
    daq, run_engine, opening, monkeypatch
):
    daq.open()
    began, resumed, close = threading.Event(), threading.Event(), Engine.close

    def close_late(engine) -> None:
        began.set()
        assert resumed.wait(60)
        close(engine)

    def pause() -> None:
        assert began.wait(60)
        run_engine.request_pause()

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "close", close_late)
        pausing = threading.Thread(target=pause)
        pausing.start()
        with pytest.raises(RunEngineInterrupted):
            run_engine(plans.configure_flows(daq, {"port0": {"images": {"udp_dst": 6000}}}))
        pausing.join()
        resumed.set()
        run_engine.resume()
    assert opening.count == 2
    assert daq.port0.flows.images.udp_dst.get() == 6000


def slow_close(run_engine, monkeypatch) -> None:
    """Close engines only when a plan has set all values and waits."""
    waiting, close = threading.Event(), Engine.close
    run_engine.msg_hook = lambda msg: msg.command in ("wait", "sleep") and waiting.set()

    def close_late(engine) -> None:
        assert waiting.wait(60), "the plan did not go on"
        close(engine)

    monkeypatch.setattr(Engine, "close", close_late)


@pytest.mark.usefixtures("fixed_flows")
def test_keys_of_one_move_open_the_engine_once(daq, run_engine, opening, monkeypatch):
    images, other = daq.port0.flows.images, daq.port0.flows.other
    daq.open()
    with monkeypatch.context() as patched:
        slow_close(run_engine, patched)
        run_engine(bps.mv(images.udp_dst, 6000, images.udp_src, 7000, other.queue, "frames"))
    assert opening.count == 2
    assert (images.udp_dst.get(), images.udp_src.get(), other.queue.get()) == (6000, 7000, "frames")
    assert daq.engine.config.to_dict() == daq.configuration_dict


@pytest.mark.usefixtures("fixed_flows")
def test_a_change_that_cannot_be_opened_with_fails_all_keys_of_the_move(
    daq, run_engine, opening, monkeypatch
):
    images = daq.port0.flows.images
    daq.open()
    with monkeypatch.context() as patched:
        slow_close(run_engine, patched)
        opening.error, opening.spared = NotSupportedError("no such hardware"), daq._configuration
        with pytest.raises(
            FailedStatus, match="images_udp_...: changing failed: no such"
        ) as raised:
            run_engine(bps.mv(images.udp_dst, 6000, images.udp_src, 7000))
    assert isinstance(raised.value.__cause__, NotSupportedError)
    assert (images.udp_dst.get(), images.udp_src.get()) == (5000, 0)
    assert daq.is_open
    opening.error = None
    run_engine(bps.mv(images.udp_dst, 6000))
    assert images.udp_dst.get() == 6000


def test_a_run_after_keys_that_nobody_waited_for_has_them(daq, run_engine, documents, opening):
    daq.open()

    def plan():
        yield from bps.abs_set(daq.port0.flows.images.udp_dst, 6000)
        yield from plans.capture(daq.port0.capture, 50, tx=daq.port0.tx.out, packets=BURST)

    run_engine(plan())
    assert documents.rows()[0]["daq_port0_capture_packets"] == 50
    used = documents.descriptor()["configuration"]["daq_port0_capture"]["data"]
    assert '"udp_dst": 6000' in used["daq_flow_table"]


@pytest.mark.usefixtures("fixed_flows")
def test_the_status_of_a_key_that_a_script_sets_ends_with_the_change(daq):
    images = daq.port0.flows.images
    with daq:
        before = daq.engine
        status = images.udp_dst.set(6000)
        status.wait(60)
        assert before.closed
        assert daq.is_open
        assert str(status) == "daq_port0_flows_images_udp_dst: changing done"
    assert images.udp_dst.get() == 6000


def test_a_change_that_comes_while_an_earlier_one_is_looked_at_is_opened_with(daq, monkeypatch):
    images, changed = daq.port0.flows.images, daq._changed
    daq.open()
    looked, later = threading.Event(), []

    def change_meanwhile(configuration, requests):
        after = changed(configuration, requests)
        if not looked.is_set():
            looked.set()
            later.append(images.udp_dst.set(6000))
        return after

    monkeypatch.setattr(daq, "_changed", change_meanwhile)
    opened = daq._requests.add(Request(opened=True))
    daq._requests.begin()
    opened.done.result(60)
    later[0].wait(60)
    assert images.udp_dst.get() == 6000
    assert daq.engine.config.to_dict() == daq.configuration_dict


def test_an_interrupt_reaches_the_script_that_opens_the_engine_for_others(daq, monkeypatch):
    opens, asked = Engine.open, daq._requests.add(Request(opened=True))

    def interrupt(_config) -> Engine:
        monkeypatch.setattr(Engine, "open", staticmethod(opens))
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "open", staticmethod(interrupt))
    with pytest.raises(KeyboardInterrupt):
        daq.stage()
    assert isinstance(asked.done.exception(0), KeyboardInterrupt)
    assert not daq.is_open
    assert daq.stage()[0] is daq
