"""Captures while other plans run."""

import asyncio
import threading
import time

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, RunEngineInterrupted
from ophyd.sim import SynAxis, det, motor
from run_documents import until
from waiting import eventually

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureError

from .conftest import packets, prepare
from .pauses import paused_when

SLOW = {"count": 400, "size": 100, "rate": 500}


def recorded(capture) -> int:
    progress = capture.progress
    return 0 if progress is None else progress.packets


def test_a_capture_while_a_motor_moves(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    slow = SynAxis(name="slow", delay=0.5)

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, SLOW)
        moved = yield from plans.capture_during(capture, bps.mv(slow, 3), tx=tx)
        assert moved

    run_engine(plan())
    assert slow.position == 3
    assert packets(documents.files("primary")) == 400
    (row,) = documents.rows()
    assert row["daq_port0_capture_packets"] == 400
    (sent,) = documents.rows("transmit")
    assert sent["daq_port0_tx_out_sent"] == 400


def test_rows_come_at_the_checkpoints_of_the_plan(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.roll_packets.put(50)

    def motion():
        yield from until(lambda: len(capture.uncollected) == 2)
        yield from bps.checkpoint()
        seen.extend(documents.rows())
        yield from bps.mv(motor, 1)
        return "there"

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, SLOW)
        during = plans.capture_during(capture, motion(), tx=tx, flush_period=0.0)
        assert (yield from during) == "there"

    seen: list = []
    run_engine(plan())
    assert [row["daq_port0_capture_packets"] for row in seen[:2]] == [50, 50]
    assert len(seen) < 8
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [50] * 8


def test_a_pause_repeats_the_motion_but_not_the_capture(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.roll_packets.put(100)
    moves = []

    def motion():
        moves.append("begin")
        for position in range(4):
            yield from bps.checkpoint()
            yield from bps.mv(motor, position)
            moves.append(position)
            yield from until(lambda n=position: recorded(capture) > 50 * (n + 1))

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, SLOW)
        yield from plans.capture_during(capture, motion(), tx=tx, flush_period=0.05)

    with paused_when(run_engine, lambda: recorded(capture) > 120, tx):
        run_engine(plan())
    assert recorded(capture) < 400
    run_engine.resume()
    assert documents.stop["exit_status"] == "success"
    assert moves[0] == "begin" and moves.count("begin") == 1
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [100] * 4
    assert packets(documents.files()) == 400


def test_a_pause_after_the_motion(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, SLOW)
        yield from plans.capture_during(capture, bps.mv(motor, 1), tx=tx, flush_period=0.05)

    with paused_when(run_engine, lambda: recorded(capture) > 120, tx):
        run_engine(plan())
    run_engine.resume()
    assert documents.stop["exit_status"] == "success"
    assert packets(documents.files()) == 400 == documents.rows()[0]["daq_port0_capture_packets"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_was_captured_before_a_failure_is_part_of_the_run(daq, run_engine, documents, wrapped):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    def motion():
        yield from until(lambda: recorded(capture) > 120)
        raise RuntimeError("the motor is stuck")

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def stub():
        yield from plans.capture_during(capture, motion(), tx=tx, stream="packets")

    wrapper = plans.capture_during_wrapper(bpp.run_wrapper(motion()), capture, tx=tx)

    def plan():
        yield from prepare(tx, SLOW)
        yield from wrapper if wrapped else stub()

    with pytest.raises(RuntimeError, match="the motor is stuck"):
        run_engine(plan())
    assert documents.stop["exit_status"] == "fail"
    assert documents.stop["reason"] == "the motor is stuck"
    (row,) = documents.rows("packets")
    assert row["daq_port0_capture_packets"] == packets(documents.files("packets")) > 120
    assert capture.progress is None and tx.transmission is None


def test_a_capture_during_each_run_of_a_plan(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    @plans.capture_during_decorator(capture, tx=tx)
    def two_scans():
        yield from prepare(tx, {"count": 30, "size": 60})
        yield from bp.scan([det], motor, 0, 1, 3)
        yield from prepare(tx, {"count": 50, "size": 60})
        return (yield from bp.scan([det], motor, 0, 1, 2))

    run_engine(two_scans())
    assert [doc["exit_status"] for doc in documents.of("stop")] == ["success"] * 2
    assert [doc["num_events"]["packets"] for doc in documents.of("stop")] == [1, 1]
    assert [doc["num_events"]["primary"] for doc in documents.of("stop")] == [3, 2]
    assert [packets([file]) for file in documents.files()] == [30, 50]


def test_losses_during_a_scan_fail_it(make, run_engine, documents):
    daq = make(rx_buffers=128, tx_buffers=8192, drops=True)
    capture, tx = daq.port0.capture, daq.port0.tx.out

    def scan():
        yield from prepare(tx, {"count": 60_000, "size": 900})
        yield from bp.scan([det], motor, 0, 1, 2)

    with pytest.raises(FailedStatus, match=r"queue port0/frames dropped \d+ packets"):
        run_engine(plans.capture_during_wrapper(scan(), capture, tx=tx))
    assert documents.stop["exit_status"] == "fail"
    assert "dropped" in documents.stop["reason"]
    rows = documents.rows("packets")
    assert sum(row["daq_port0_capture_packets"] for row in rows) == packets(documents.files())


def test_a_capture_that_is_not_staged_is_refused(daq, run_engine):
    def motion():
        yield from bps.null()

    plan = bpp.run_wrapper(plans.capture_during(daq.port0.capture, motion()))
    with pytest.raises(CaptureError, match="is not staged"):
        run_engine(plan)


def test_rows_come_at_the_checkpoints_of_a_wrapped_scan(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.roll_packets.put(50)
    seen: list[int] = []

    @bpp.run_decorator()
    def motion():
        yield from until(lambda: recorded(capture) > 120)
        yield from bps.checkpoint()
        seen.append(len(documents.of("stream_datum")))

    def plan():
        yield from prepare(tx, SLOW)
        yield from plans.capture_during_wrapper(motion(), capture, tx=tx, flush_period=0.0)

    run_engine(plan())
    assert seen == [1]
    assert packets(documents.files()) == 400


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize(("end", "status"), [("stop", "success"), ("abort", "abort")])
def test_a_wrapped_plan_ends_at_once(daq, run_engine, documents, limited, end, status):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.acquire_time.put(600.0 if limited else 0.0)

    @bpp.run_decorator()
    def motion():
        yield from bps.checkpoint()
        yield from until(lambda: False)

    def plan():
        yield from prepare(tx, {**SLOW, "count": 100_000})
        yield from plans.capture_during_wrapper(motion(), capture, tx=tx)

    with paused_when(run_engine, lambda: recorded(capture) > 100, tx):
        run_engine(plan())
    getattr(run_engine, end)()
    assert documents.stop["exit_status"] == status
    (row,) = documents.rows("packets")
    assert row["daq_port0_capture_packets"] == packets(documents.files()) > 100
    assert capture.progress is None and tx.transmission is None


def test_runs_with_keys_are_refused(daq, run_engine):
    plan = bpp.set_run_key_wrapper(bp.count([det]), "inner")
    with pytest.raises(ValueError, match="a capture cannot be in run 'inner'"):
        run_engine(plans.capture_during_wrapper(plan, daq.port0.capture))


def test_a_stop_that_fails_is_told(daq, run_engine, monkeypatch):
    capture = daq.port0.capture

    def refuse(**_):
        raise OSError("cannot stop")

    def motion():
        yield from bps.null()
        monkeypatch.setattr(capture, "stop", refuse)
        raise RuntimeError("the motor is stuck")

    @bpp.run_decorator()
    def plan():
        yield from bps.stage(capture)
        yield from plans.capture_during(capture, motion())

    with pytest.raises(OSError, match="cannot stop") as caught:
        run_engine(plan())
    monkeypatch.undo()
    capture.unstage()
    assert "the motor is stuck" in str(caught.value.__cause__)


@pytest.mark.parametrize("at", range(6, 24))
def test_a_pause_at_any_message_of_the_start(daq, run_engine, documents, at):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    seen = []

    def pause(msg):
        seen.append(msg)
        if len(seen) == at:
            run_engine.loop.call_soon(run_engine.loop.create_task, request())

    async def request():
        await run_engine._request_pause_coro()

    run_engine.msg_hook = pause
    packets_ = {"count": 60, "size": 60, "rate": 600}
    try:
        run_engine(plans.capture(capture, 60, tx=tx, packets=packets_))
    except RunEngineInterrupted:
        run_engine.resume()
    assert documents.stop["exit_status"] == "success"
    assert packets(documents.files()) == 60
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [60]


def test_two_suspensions_close_together_lose_nothing(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    gap = asyncio.Event

    def suspend_twice() -> None:
        eventually(lambda: recorded(capture) >= 100, 60)
        for _ in range(2):
            release = gap()
            run_engine.request_suspend(release.wait)
            run_engine.loop.call_later(1.0, release.set)
            time.sleep(0.03)

    watcher = threading.Thread(target=suspend_twice)
    watcher.start()
    run_engine(plans.capture(capture, 400, tx=tx, packets=SLOW))
    watcher.join()
    assert documents.stop["exit_status"] == "success"
    assert packets(documents.files()) == 400


def test_a_capture_without_a_limit_has_all_of_a_stream(profile, run_engine, documents):
    """The receiver has few buffers and a file for each, so that the kernel holds the rest."""
    _, capture, tx = profile("tcp", num_bufs=16)
    capture.linger.put(0.0)
    sent = {"count": 1000, "size": 8000}
    run_engine(plans.capture(capture, tx=tx, packets=sent, roll_packets=1))
    rows = documents.rows()
    headers = 40 * len(rows)
    assert sum(row["daq_receiver_capture_bytes"] for row in rows) - headers == 8_000_000


@pytest.mark.parametrize("motion", [False, True])
def test_a_capture_without_a_limit_has_a_burst_that_is_not_full(
    profile, run_engine, documents, motion
):
    """The last bytes are received, and no recorder can take them for another 0.3 s."""
    daq, capture, tx = profile("tcp", timeout_us=300_000)
    capture.linger.put(0.0)
    sent = {"count": 5, "size": 100}

    def wait():
        yield from until(lambda: daq.rx_queue("receiver", "rx_q0").counters().received_bytes == 500)

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, sent)
        yield from plans.capture_during(capture, wait(), tx=tx)

    run_engine(plan() if motion else plans.capture(capture, tx=tx, packets=sent))
    (row,) = documents.rows()
    headers = 40 * row["daq_receiver_capture_packets"]
    assert row["daq_receiver_capture_bytes"] - headers == 500


def test_a_capture_waits_for_all_of_a_stream_although_older_bytes_are_discarded(
    profile, run_engine, documents, monkeypatch
):
    monkeypatch.setattr("daqiri_ophyd.plans._arrival._POLL_S", 0.001)
    daq, capture, tx = profile("tcp", num_bufs=16)
    capture.linger.put(0.0)

    def send_before():
        yield from bps.stage(tx)
        yield from prepare(tx, {"count": 3000, "size": 1000})
        yield from bps.trigger(tx, wait=True)
        yield from bps.unstage(tx)

    with daq:
        # More than the receiver has buffers for, so that the kernel holds the rest.
        run_engine(send_before())
        sent = {"count": 1000, "size": 8000}
        run_engine(plans.capture(capture, tx=tx, packets=sent, roll_packets=1))
        assert daq.rx_queue("receiver", "rx_q0").counters().received_bytes == 11_000_000
    rows = documents.rows()
    assert sum(row["daq_receiver_capture_bytes"] for row in rows) - 40 * len(rows) >= 8_000_000
