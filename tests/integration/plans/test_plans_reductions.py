"""Numbers computed from each file, in rows, plots and adaptive scans."""

import json
import math
import threading

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.utils import FailedStatus
from ophyd.sim import motor
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureError, reductions

NAME = "daq_port0_capture"
BURST = {"count": 50, "size": 100}


@pytest.fixture
def capture(daq):
    capture = daq.port0.capture
    capture.num_packets.put(50)
    return capture


def test_reductions_are_columns_of_a_step_scan(daq, capture, run_engine, documents):
    capture.reductions = {
        "lost": reductions.lost_numbers(0, 8),
        "sum": reductions.payload_sum(">u8"),
        "longest": lambda packets: int(packets.lengths.max()),
    }
    tx = daq.port0.tx.out

    def plan():
        yield from bps.prepare(tx, plans.packet_source(BURST, tx.link_type), wait=True)
        yield from bp.count([capture, tx], 2)

    run_engine(plan())
    rows = documents.rows()
    assert [row[f"{NAME}_lost"] for row in rows] == [0, 0]
    assert [row[f"{NAME}_longest"] for row in rows] == [142, 142]
    assert rows[0][f"{NAME}_sum"] == rows[1][f"{NAME}_sum"] > 50 * 49 / 2
    key = documents.descriptor()["data_keys"][f"{NAME}_lost"]
    assert (key["dtype"], key["units"]) == ("number", "packets")
    used = documents.descriptor()["configuration"][NAME]["data"][f"{NAME}_reduction_table"]
    longest = f"{__name__}.test_reductions_are_columns_of_a_step_scan.<locals>.<lambda>"
    assert json.loads(used) == {
        "lost": "lost_numbers(0, 8, order='big')",
        "sum": "payload_sum('>u8', 0)",
        "longest": longest,
    }
    hinted = documents.descriptor()["hints"][NAME]["fields"]
    assert hinted[-3:] == [f"{NAME}_lost", f"{NAME}_sum", f"{NAME}_longest"]


def test_reductions_are_columns_of_a_fly_scan(daq, capture, run_engine, documents):
    threads = set()

    def count(packets):
        threads.add(threading.current_thread().name)
        return len(packets)

    capture.reductions = {"count": count}
    packets = {"count": 300, "size": 100, "rate": 3000}
    run_engine(plans.capture(capture, 300, roll_packets=100, tx=daq.port0.tx.out, packets=packets))
    rows = documents.rows()
    assert [row[f"{NAME}_count"] for row in rows] == [100.0] * 3
    assert [row[f"{NAME}_packets"] for row in rows] == [100] * 3
    assert all(name.startswith(f"{NAME}-reductions") for name in threads)
    wait_for(lambda: not any("reductions" in thread.name for thread in threading.enumerate()))


def test_each_queue_has_its_reductions(daq, capture, run_engine, documents):
    capture.queues.put("all")
    capture.reductions = {"rate": reductions.rate()}
    run_engine(plans.capture(capture, 50, tx=daq.port0.tx.out, packets=BURST))
    (row,) = documents.rows()
    assert row[f"{NAME}_frames_rate"] > 0 and math.isnan(row[f"{NAME}_rest_rate"])


def test_an_adaptive_scan_follows_a_reduction(daq, capture, run_engine, documents):
    """The signal is a step at 0.5; a flat one would be crossed with the largest steps."""
    capture.reductions = {"signal": lambda _: 1.0 if motor.position > 0.5 else 0.0}
    tx = daq.port0.tx.out

    def plan():
        yield from bps.prepare(tx, plans.packet_source(BURST, tx.link_type), wait=True)
        yield from bp.adaptive_scan(
            [capture, tx], f"{NAME}_signal", motor, 0, 1, 0.02, 0.3, 0.5, True
        )

    run_engine(plan())
    rows = documents.rows()
    positions = [row["motor"] for row in rows]
    signals = [row[f"{NAME}_signal"] for row in rows]
    assert signals[0] == 0.0 and signals[-1] == 1.0
    # Around the step it went back and made smaller ones.
    assert min(abs(b - a) for a, b in zip(positions, positions[1:], strict=False)) < 0.29


@pytest.mark.parametrize("fly", [False, True])
def test_a_reduction_that_fails_is_named_and_its_file_is_in_the_run(
    daq, capture, run_engine, documents, fly
):
    capture.reductions = {"ratio": lambda packets: 1 / 0}
    tx = daq.port0.tx.out

    def step():
        yield from bps.prepare(tx, plans.packet_source(BURST, tx.link_type), wait=True)
        yield from bp.count([capture, tx])

    plan = plans.capture(capture, 50, tx=tx, packets=BURST) if fly else step()
    with pytest.raises(FailedStatus, match=r"reduction 'ratio' of .*pcap failed: ZeroDivision"):
        run_engine(plan)
    if fly:
        (row,) = documents.rows()
        assert row[f"{NAME}_packets"] == 50 and math.isnan(row[f"{NAME}_ratio"])
        assert len(documents.files()) == 1


def test_a_reduction_that_does_not_return_fails_the_run(daq, capture, run_engine, documents):
    going_on = threading.Event()
    capture.timeout.put(0.3)

    def forever(packets):
        going_on.wait(60)
        return 0.0

    capture.reductions = {"forever": forever}
    tx = daq.port0.tx.out
    try:
        with pytest.raises(FailedStatus, match="a reduction takes longer than 0.3 s"):
            run_engine(plans.capture(capture, 50, tx=tx, packets=BURST, timeout=0.3))
    finally:
        going_on.set()
    assert documents.stop["exit_status"] == "fail"
    capture.reductions = {}
    run_engine(plans.capture(capture, 50, tx=tx, packets=BURST))
    assert documents.stop["exit_status"] == "success"


def test_refused(daq, capture, run_engine):
    with pytest.raises(ValueError, match="cannot be named 'packets'"):
        capture.reductions = {"packets": len}
    with pytest.raises(ValueError, match="cannot be named 'a b'"):
        capture.reductions = {"a b": len}
    with pytest.raises(TypeError, match="accepted is a function that returns a number"):
        capture.reductions = {"a": 3}
    assert capture.reductions == {}
    capture.reductions = {"n": len}
    capture.format.put("raw")
    with pytest.raises(CaptureError, match="reductions need format 'pcap'"):
        run_engine(bp.count([capture]))
