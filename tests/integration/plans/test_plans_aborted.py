"""Transmissions that no receiver accepts: they are paused and aborted, and leave nothing behind."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.utils import FailedStatus
from free_ports import free_port
from waiting import wait_for

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.devices import make_daq

from .pauses import paused_when

# More than receive queues, transmit queues and sockets together can hold.
FLOOD = {"count": 2_000_000, "size": 900}
OWN = {"count": 200, "size": 500, "rate": 2000}


class Line:
    """A transmit queue, and the capture at its other end."""

    def __init__(self, daq, capture, tx, received) -> None:
        self.daq, self.capture, self.tx, self.received = daq, capture, tx, received
        # For each captured packet; in TCP, a packet is one read of the stream.
        self.header = 42 if tx.member_name == "out" else 40

    @property
    def queue(self):
        return self.daq.tx_queue(self.tx.port_name, self.tx.member_name)

    def is_stuck(self) -> bool:
        """Packets are held, and none was sent for 0.2 s."""
        if not self.daq.is_open:
            return False
        before = self.queue.counters()
        time.sleep(0.2)
        return before.held > 0 and self.queue.counters().sent == before.sent

    def assert_idle(self) -> None:
        counters = self.queue.counters()
        assert counters.held == 0
        assert counters.submitted == counters.sent + counters.dropped_total
        assert self.tx.transmission is None
        assert self.capture.progress is None
        assert "daqiri-transmit" not in [thread.name for thread in threading.enumerate()]

    def assert_next_run_has_only_its_own(self, run_engine, documents) -> None:
        documents.clear()
        run_engine(plans.capture(self.capture, acquire_time=1.0, tx=self.tx, packets=OWN))
        assert documents.stop["exit_status"] == "success"
        (row,) = documents.rows()
        name = self.capture.name
        payload = row[f"{name}_bytes"] - self.header * row[f"{name}_packets"]
        assert payload == OWN["count"] * OWN["size"]
        assert row[f"{name}_dropped"] == 0


@pytest.fixture(params=["loopback", "tcp"])
def line(request, make, captures) -> Iterator[Line]:
    if request.param == "loopback":
        daq = make(rx_buffers=512, tx_buffers=1024)
        yield Line(daq, daq.port0.capture, daq.port0.tx.out, daq.port0.rx.frames)
        return
    text = profiles.path("tcp").read_text().replace("47200", str(free_port("tcp")))
    with make_daq(yaml.safe_load(text), "daq", directory=captures) as daq:
        yield Line(daq, daq.receiver.capture, daq.sender.tx.tx_q0, daq.receiver.rx.rx_q0)


class Heartbeat:
    """The longest time for which an event loop was blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest = 0.0
        self._loop, self._going = loop, True
        self._last = time.monotonic()
        loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        if self._going:
            self._loop.call_later(0.005, self._beat)

    def stop(self) -> None:
        self._going = False


@pytest.mark.parametrize("end", ["abort", "stop", "halt"])
def test_a_transmission_that_nobody_takes_is_ended_as_the_user_says(
    line, run_engine, documents, end
):
    with paused_when(run_engine, line.is_stuck):
        run_engine(plans.timed_tx(line.tx, FLOOD))
    # Submitted packets stay in the queue, because the user may resume.
    assert line.queue.counters().held > 0
    assert line.queue.counters().dropped_total == 0

    heartbeat = Heartbeat(run_engine.loop)
    if end == "abort":
        run_engine.abort("enough")
    else:
        getattr(run_engine, end)()
    heartbeat.stop()

    assert run_engine.state == "idle"
    assert documents.stop["exit_status"] == ("success" if end == "stop" else "abort")
    assert documents.stop["reason"] == ("enough" if end == "abort" else "")
    assert heartbeat.longest < 2.0  # takes milliseconds; formerly the timeout of the queue, 10 s
    line.assert_idle()
    assert line.queue.counters().dropped["flushed"] > 0
    line.assert_next_run_has_only_its_own(run_engine, documents)


def test_a_pause_without_anybody_who_reads_does_not_hold_up_the_loop(line, run_engine):
    heartbeats: list[Heartbeat] = []

    def stuck() -> bool:
        if not line.is_stuck():
            return False
        heartbeats.append(Heartbeat(run_engine.loop))
        return True

    with paused_when(run_engine, stuck):
        run_engine(plans.timed_tx(line.tx, FLOOD))
    heartbeats[0].stop()
    assert heartbeats[0].longest < 0.5  # formerly a second
    run_engine.abort("enough")
    line.assert_idle()


def test_packets_behind_a_full_queue_wait_through_a_pause(line, run_engine, documents):
    packets = {"count": 200_000, "size": 900}
    frame = 900 if line.header == 40 else 942
    with paused_when(run_engine, line.is_stuck):
        run_engine(plans.timed_tx(line.tx, packets))
    held = line.queue.counters().held
    time.sleep(0.3)
    assert line.queue.counters().held == held

    receiving = line.daq.rx_queue(line.received.port_name, line.received.member_name)
    count = 0

    def read() -> None:
        nonlocal count
        for burst in receiving.bursts(timeout=5.0):
            with burst:
                count += burst.nbytes
            if count == 200_000 * frame:
                return

    reader = threading.Thread(target=read)
    reader.start()
    run_engine.resume()
    reader.join()

    assert documents.stop["exit_status"] == "success"
    assert count == 200_000 * frame
    assert documents.rows()[0][f"{line.tx.name}_sent"] == packets["count"]
    line.assert_idle()


def test_a_capture_that_is_aborted_with_its_transmission_leaves_both_usable(
    line, run_engine, documents
):
    plan = plans.capture(line.capture, tx=line.tx, packets=FLOOD, flush_period=0.1)
    with paused_when(run_engine, lambda: line.daq.is_open and line.queue.counters().sent > 5000):
        run_engine(plan)
    run_engine.abort("enough")

    assert documents.stop["exit_status"] == "abort"
    assert documents.stop["reason"] == "enough"
    line.assert_idle()
    line.assert_next_run_has_only_its_own(run_engine, documents)


def test_an_abort_drops_what_is_to_leave_later(daq, run_engine, documents):
    tx = daq.port0.tx.out
    with paused_when(
        run_engine, lambda: tx.transmission is not None and tx.transmission.submitted > 10
    ):
        run_engine(plans.timed_tx(tx, {"count": 1000, "size": 100, "rate": 100}))
    run_engine.abort("enough")

    counters = daq.tx_queue("port0", "out").counters()
    assert counters.held == 0
    assert counters.submitted == counters.sent + counters.dropped["flushed"]
    assert documents.rows()[0]["daq_port0_tx_out_sent"] == counters.sent


@pytest.mark.files_in_no_document("a reading is interrupted and taken again")
def test_a_reading_whose_packets_nobody_takes_is_taken_again(make, run_engine, documents):
    """The queue next to the captured one is full; its packets are held at the pause."""
    daq = make(tx_buffers=256)
    tx, capture = daq.port0.tx.out, daq.port0.capture
    capture.acquire_time.put(0.5)
    source = plans.packet_source({"count": 4000, "size": 100, "udp_dst": 5001}, tx.link_type)
    first = plans.packet_source({"count": 100, "size": 100}, tx.link_type)

    def stuck() -> bool:
        if not daq.is_open:
            return False
        queue = daq.tx_queue("port0", "out")
        return queue.counters().held > 0 and tx.transmission is not None

    def plan():
        yield from bps.prepare(tx, source, wait=True)
        yield from bp.count([capture, tx])

    with paused_when(run_engine, stuck):
        run_engine(plan())
    tx.prepare(first)
    run_engine.resume()

    assert documents.stop["exit_status"] == "success"
    (row,) = documents.rows()
    assert row["daq_port0_capture_packets"] == 100
    assert daq.tx_queue("port0", "out").counters().held == 0


def test_a_capture_that_fails_ends_the_run_at_once_and_says_why(
    make, run_engine, documents, captures, monkeypatch
):
    """The transmission could not end, because no receiver takes its packets."""
    daq = make(rx_buffers=512, tx_buffers=1024)
    capture, tx = daq.port0.capture, daq.port0.tx.out

    def fail() -> None:
        wait_for(lambda: capture.progress is not None and capture.progress.packets > 2000)
        captures.rename(captures.with_name("moved"))  # immediately, while files are being made

    ended: list[Any] = []
    give_up = tx.stop

    def stop(*, success: bool = False) -> None:
        if tx.transmission is not None:
            ended.append(tx.transmission)
        give_up(success=success)

    monkeypatch.setattr(tx, "stop", stop)
    failing = threading.Thread(target=fail)
    failing.start()
    with pytest.raises(FailedStatus, match=str(captures)):
        run_engine(
            plans.capture(capture, roll_packets=1000, tx=tx, packets=FLOOD, flush_period=600.0)
        )
    failing.join()

    assert documents.stop["exit_status"] == "fail"
    assert "daq_port0_capture: capturing failed" in documents.stop["reason"]
    assert str(captures) in documents.stop["reason"]
    # The transmission continued and did not give up.
    (transmission,) = ended
    assert transmission.running
    assert transmission.error is None
    assert tx.transmission is None
    assert daq.tx_queue("port0", "out").counters().held == 0
