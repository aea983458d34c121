"""Plans that are paused, resumed, stopped, aborted, or lose their disk or their packets."""

import gc
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from waiting import wait_for

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.devices import TxQueue, make_daq
from daqiri_ophyd.engine import PcapFile, ethernet

from .pauses import paused_when

SLOW = {"count": 600, "size": 100, "rate": 500}


def numbers(files: list[Path]) -> list[int]:
    found = []
    for file in files:
        with PcapFile(file) as pcap:
            assert pcap.torn_bytes == 0
            offsets, _ = ethernet.udp_payload(pcap)
            found += [int.from_bytes(pcap.data[at : at + 8].tobytes(), "big") for at in offsets]
    return found


def interrupt(run_engine, plan, when: Callable[[], object], *sending: TxQueue) -> None:
    """Run a plan and pause it when a condition holds."""
    with paused_when(run_engine, when, *sending):
        run_engine(plan)


def captured(capture) -> int:
    progress = capture.progress
    return 0 if progress is None else progress.packets


def assert_idle(daq) -> None:
    """Nothing is running any longer, and another run works."""
    capture, tx = daq.port0.capture, daq.port0.tx.out
    assert capture.progress is None
    assert tx.transmission is None
    assert daq.tx_queue("port0", "out").counters().held == 0
    names = [thread.name for thread in threading.enumerate()]
    assert "daqiri-transmit" not in names


@pytest.fixture
def flight(daq):
    """A slow transmission that is captured, when to pause it, and its queue."""
    capture, tx = daq.port0.capture, daq.port0.tx.out
    plan = plans.capture(
        capture, 600, roll_packets=100, tx=tx, packets=SLOW, flush_period=0.05, timeout=30.0
    )
    return plan, lambda: captured(capture) > 150, tx


def test_a_paused_fly_scan_goes_on_without_loss(daq, run_engine, documents, flight):
    interrupt(run_engine, *flight)

    assert run_engine.state == "paused"
    before = captured(daq.port0.capture)
    time.sleep(0.3)
    assert captured(daq.port0.capture) == before
    assert before < 600

    run_engine.resume()

    assert documents.stop["exit_status"] == "success"
    assert numbers(documents.files()) == list(range(600))
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [100] * 6
    assert [row["daq_port0_capture_dropped"] for row in documents.rows()] == [0] * 6
    assert_idle(daq)


def test_a_fly_scan_can_be_paused_again_and_again(daq, run_engine, documents, flight):
    plan, _, tx = flight
    capture = daq.port0.capture
    interrupt(run_engine, plan, lambda: captured(capture) > 50, tx)
    for after in (200, 350):
        with paused_when(run_engine, lambda after=after: captured(capture) > after, tx):
            run_engine.resume()
    run_engine.resume()

    assert numbers(documents.files()) == list(range(600))


def test_a_pause_does_not_count_as_silence(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    interrupt(
        run_engine,
        plans.capture(capture, 300, tx=tx, packets={**SLOW, "count": 300}, timeout=1.5),
        lambda: captured(capture) > 50,
        tx,
    )
    time.sleep(2.0)
    run_engine.resume()

    assert documents.stop["exit_status"] == "success"


@pytest.mark.parametrize(
    ("end", "status"), [("abort", "abort"), ("stop", "success"), ("halt", "abort")]
)
def test_an_ended_fly_scan_leaves_files_and_an_idle_engine(
    daq, run_engine, documents, flight, captures, end, status
):
    interrupt(run_engine, *flight)
    if end == "abort":
        run_engine.abort(reason="the beam was lost")
    else:
        getattr(run_engine, end)()

    assert run_engine.state == "idle"
    assert documents.stop["exit_status"] == status
    assert_idle(daq)
    if end == "abort":
        assert documents.stop["reason"] == "the beam was lost"
    found = numbers(sorted(captures.rglob("*.pcap")))
    assert found == list(range(len(found)))
    assert len(found) > 150
    if end != "halt":  # which does not let the plan clean up
        assert numbers(documents.files()) == found
        packets = [row["daq_port0_capture_packets"] for row in documents.rows()]
        assert sum(packets) == len(found)

    run_engine(
        plans.capture(daq.port0.capture, 60, tx=daq.port0.tx.out, packets={**SLOW, "count": 60})
    )
    assert documents.stop["exit_status"] == "success"


@pytest.mark.files_in_no_document("a reading is interrupted and taken again")
def test_a_paused_reading_is_taken_again(daq, run_engine, documents, captures):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(800)

    def plan():
        source = plans.packet_source({**SLOW, "count": 800}, tx.link_type)
        yield from bps.prepare(tx, source, wait=True)
        yield from bp.count([capture, tx], 2)

    interrupt(run_engine, plan(), lambda: capture.packets.get() and captured(capture) > 100, tx)
    run_engine.resume()

    assert documents.stop["exit_status"] == "success"
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [800] * 2
    files = documents.files()
    for file in files:
        assert numbers([file]) == list(range(800))
    # The captures of the first attempt are kept; it goes on until it is taken again.
    (beside,) = set(captures.rglob("*.pcap")) - set(files)
    found = numbers([beside])
    assert found == list(range(len(found)))
    assert len(found) > 100


def test_an_aborted_reading_leaves_its_file(daq, run_engine, documents, captures):
    capture = daq.port0.capture
    capture.acquire_time.put(30.0)
    interrupt(run_engine, bp.count([capture]), lambda: capture.progress is not None)
    run_engine.abort("enough")

    assert documents.stop["exit_status"] == "abort"
    assert_idle(daq)
    (file,) = captures.rglob("*.pcap")
    assert numbers([file]) == []


def test_a_capture_can_be_stopped_by_hand(daq, run_engine, documents):
    capture = daq.port0.capture
    capture.acquire_time.put(30.0)

    def stop() -> None:
        wait_for(lambda: capture.progress is not None)
        capture.stop()

    threading.Thread(target=stop).start()
    with pytest.raises(FailedStatus, match="stopped after 0 packets"):
        run_engine(bp.count([capture]))
    assert "daq_port0_capture: capturing failed: stopped" in documents.stop["reason"]
    assert_idle(daq)


def test_closing_the_engine_ends_a_capture(daq, run_engine, documents):
    capture = daq.port0.capture
    capture.acquire_time.put(30.0)

    def close() -> None:
        wait_for(lambda: capture.progress is not None)
        daq.close()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(FailedStatus, match="stopped after|engine was closed"):
        run_engine(bp.count([capture]))
    closer.join()
    assert not daq.is_open


def test_a_directory_that_disappears_ends_a_fly_scan(daq, run_engine, documents, flight, captures):
    plan, ready, _ = flight

    def remove() -> None:
        wait_for(ready)
        shutil.rmtree(captures)

    threading.Thread(target=remove).start()
    with pytest.raises(FailedStatus, match=str(captures)):
        run_engine(plan)

    reason = documents.stop["reason"]
    assert "daq_port0_capture: capturing failed" in reason
    assert str(captures) in reason
    assert_idle(daq)


def test_a_directory_that_disappears_ends_a_step_scan(daq, run_engine, documents, captures):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.acquire_time.put(0.02)

    def plan():
        yield from bps.stage(daq)
        yield from bps.open_run()
        yield from bps.trigger_and_read([capture])
        shutil.rmtree(captures)
        yield from bps.trigger_and_read([capture])

    with pytest.raises(Exception, match=str(captures)):
        run_engine(plan())
    assert str(captures) in documents.stop["reason"]
    assert documents.stop["exit_status"] == "fail"
    assert_idle(daq)
    assert tx.transmission is None


def test_a_directory_that_cannot_be_made_is_named(daq, run_engine, documents, tmp_path):
    (tmp_path / "file").touch()
    capture = daq.port0.capture
    capture.directory.put(str(tmp_path / "file" / "below"))

    with pytest.raises(RuntimeError, match="Not a directory"):
        run_engine(plans.capture(capture, 10, timeout=0.2))
    assert "Not a directory" in documents.stop["reason"]


FLOOD = {"count": 60_000, "size": 900}


def overload(make, run_engine, on_drop: str, num_packets: int = 0):
    """Send faster than 128 buffers can be recorded."""
    daq = make(rx_buffers=128, tx_buffers=8192, drops=True)
    capture, tx = daq.port0.capture, daq.port0.tx.out
    run_engine(
        plans.capture(capture, num_packets, tx=tx, packets=FLOOD, on_drop=on_drop, timeout=5.0)
    )


def test_lost_packets_fail_a_run_by_name(make, run_engine, documents):
    with pytest.raises(FailedStatus, match=r"queue port0/frames dropped \d+ packets"):
        overload(make, run_engine, "fail")

    assert documents.stop["exit_status"] == "fail"
    reason = documents.stop["reason"]
    assert any(name in reason for name in ("no_packet_buffer", "nic", "ring_full"))
    # Captured packets are part of the run, and the losses are counted.
    rows = documents.rows()
    assert sum(len(numbers([file])) for file in documents.files()) == sum(
        row["daq_port0_capture_packets"] for row in rows
    )


def test_lost_packets_fail_a_reading_by_name(make, run_engine, documents):
    daq = make(rx_buffers=128, tx_buffers=8192, drops=True)
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.acquire_time.put(1.0)

    def plan():
        yield from bps.prepare(tx, plans.packet_source(FLOOD, tx.link_type), wait=True)
        yield from bp.count([capture, tx], 3)

    with pytest.raises(FailedStatus, match=r"queue port0/frames dropped \d+ packets"):
        run_engine(plan())
    assert "capturing failed" in documents.stop["reason"]
    assert_idle(daq)


def test_lost_packets_are_flagged(make, run_engine, documents):
    overload(make, run_engine, "flag")

    (row,) = documents.rows()
    assert documents.stop["exit_status"] == "success"
    assert row["daq_port0_capture_lossy"] is True
    assert row["daq_port0_capture_dropped"] + row["daq_port0_capture_packets"] == 60_000
    assert documents.descriptor()["data_keys"]["daq_port0_capture_lossy"]["dtype"] == "boolean"


def test_lost_packets_are_counted_when_they_are_ignored(make, run_engine, documents):
    overload(make, run_engine, "ignore")

    (row,) = documents.rows()
    assert "daq_port0_capture_lossy" not in row
    assert row["daq_port0_capture_dropped"] + row["daq_port0_capture_packets"] == 60_000


def test_lost_packets_are_not_waited_for(make, run_engine, documents):
    overload(make, run_engine, "flag", num_packets=60_000)

    (row,) = documents.rows()
    assert documents.stop["exit_status"] == "success"
    assert row["daq_port0_capture_dropped"] + row["daq_port0_capture_packets"] == 60_000


def test_one_lost_packet_marks_its_row_and_is_not_waited_for(make, run_engine, documents):
    daq = make(tx_size=2048)
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.on_drop.put("flag")
    capture.num_packets.put(5)

    def plan():
        yield from bps.open_run()
        for too_long in range(3):
            yield from bps.trigger(capture, group="reading")
            for count, size in ((too_long, 1500), (5 - too_long, 100)):
                if count:
                    packets = plans.packet_source({"count": count, "size": size}, tx.link_type)
                    yield from bps.prepare(tx, packets, wait=True)
                    yield from bps.trigger(tx, wait=True)
            yield from bps.wait("reading")
            yield from bps.create()
            yield from bps.read(capture)
            yield from bps.save()
        yield from bps.close_run()

    run_engine(bpp.stage_wrapper(plan(), [capture, tx]))
    name = capture.name
    assert [
        (row[f"{name}_packets"], row[f"{name}_dropped"], row[f"{name}_lossy"])
        for row in documents.rows()
    ] == [(5, 0, False), (4, 1, True), (3, 2, True)]


def test_a_transmission_is_paused_and_stopped(daq, run_engine, documents):
    tx = daq.port0.tx.out
    interrupt(
        run_engine,
        plans.timed_tx(tx, SLOW),
        lambda: tx.transmission is not None and tx.transmission.submitted > 150,
        tx,
    )
    sent = tx.sent.get()
    time.sleep(0.3)
    assert tx.sent.get() == sent
    run_engine.stop()

    assert_idle(daq)
    assert documents.rows()[0]["daq_port0_tx_out_sent"] == sent < 600


SCRIPT = """
import os, sys, threading, signal, time
from pathlib import Path
from bluesky import RunEngine
from bluesky.utils import RunEngineInterrupted
from daqiri_ophyd import plans, profiles
from daqiri_ophyd.devices import make_daq

directory, ending = sys.argv[1:]
daq = make_daq(profiles.path("loopback"), directory=directory)
capture, tx = daq.port0.capture, daq.port0.tx.tx_q0
RE = RunEngine({})
RE.subscribe(lambda name, doc: print(name, doc["exit_status"], doc["reason"], flush=True), "stop")

def watch():
    while capture.progress is None or capture.progress.packets < 100:
        time.sleep(0.01)
    print("capturing", flush=True)

threading.Thread(target=watch, daemon=True).start()
packets = {"count": 100_000, "size": 100, "rate": 1000}
try:
    RE(plans.capture(capture, tx=tx, packets=packets, flush_period=0.1))
except RunEngineInterrupted:
    print("interrupted", flush=True)
    if ending == "abort":
        RE.abort("Ctrl-C")
        print("idle", capture.progress, tx.transmission, flush=True)
        daq.close()
    # Else: the interpreter ends with all of it going on.
"""


@pytest.mark.parametrize("ending", ["abort", "exit"])
def test_control_c(tmp_path, captures, ending):
    """Two Ctrl-C pause a plan immediately; then the user aborts, or just exits."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-u", str(script), str(captures), ending],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    out: list[str] = []

    def read_until(text: str) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            out.append(line)
            if text in line:
                return
        pytest.fail(f"no {text!r} in {out}\n{errors.read_text()}")

    try:
        read_until("capturing")
        process.send_signal(signal.SIGINT)
        read_until("deferred pause")
        time.sleep(0.2)  # the RunEngine takes two that are closer together as one
        process.send_signal(signal.SIGINT)
        read_until("interrupted")
        if ending == "abort":
            read_until("stop abort Ctrl-C")
            read_until("idle None None")
        process.wait(60)
    finally:
        process.kill()
        with process:
            process.wait()
    assert process.returncode == 0, errors.read_text()
    (file,) = captures.rglob("*.pcap")
    found = numbers([file])
    assert found == list(range(len(found)))
    assert len(found) >= 100


def test_a_device_that_is_forgotten_closes_its_engine(captures):
    daq = make_daq(profiles.path("loopback"), directory=captures)
    engine = daq.open().engine
    del daq
    gc.collect()
    assert engine.closed


def test_many_engines_leave_nothing_behind(captures, tmp_path, run_engine):
    def cycle() -> None:
        daq = make_daq(profiles.path("loopback"), directory=captures)
        with daq:
            daq.port0.rx.rx_q0.received.subscribe(lambda **_: None)
            capture = daq.port0.capture
            run_engine(
                plans.capture(capture, 10, tx=daq.port0.tx.tx_q0, packets={"count": 10, "size": 60})
            )

    def state() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(3):
        cycle()
    threads, descriptors = state()
    for _ in range(10):
        cycle()
    wait_for(lambda: state()[0] <= threads and state()[1] <= descriptors)
