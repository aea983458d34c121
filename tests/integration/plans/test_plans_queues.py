"""Several receive queues of a port in one scan: files, rows, limits, losses."""

import numpy as np
import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.utils import FailedStatus
from run_documents import until

from daqiri_ophyd import plans
from daqiri_ophyd.devices import CaptureError
from daqiri_ophyd.engine import PcapFile, ethernet
from daqiri_ophyd.replay import PacketArray

from .conftest import kick_off

NAME = "daq_port0_capture"


@pytest.fixture
def both(daq):
    """Captures the queues of port 5000 and of ports 5001 to 5009."""
    daq.port0.capture.queues.put("all")
    return daq.port0.capture


def mixed(count: int, *, interval_ns: int = 0, other: int = 3) -> PacketArray:
    """Frames of which every third, or another fraction, is for the second queue."""
    ports = np.where(np.arange(count) % other == 0, 5001, 5000)
    packets = ethernet.udp_frames(
        (count, 60),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=ports,
    )
    times = np.arange(count, dtype=np.int64) * interval_ns if interval_ns else None
    return PacketArray(packets, times)


def counts(files) -> list[int]:
    found = []
    for file in files:
        with PcapFile(file) as pcap:
            found.append(len(pcap))
    return found


def by_queue(documents) -> dict[str, list[int]]:
    resources = {doc["uid"]: doc for doc in documents.of("stream_resource")}
    found: dict[str, list[int]] = {}
    for datum in documents.of("stream_datum"):
        resource = resources[datum["stream_resource"]]
        template = (
            resource["uri"].removeprefix("file://localhost") + (resource["parameters"]["template"])
        )
        numbers = range(datum["indices"]["start"], datum["indices"]["stop"])
        files = [template.format(number) for number in numbers]
        found.setdefault(resource["data_key"], []).extend(counts(files))
    return found


def check_rows(documents) -> None:
    """Rows agree with files, and sums are correct."""
    rows, files = documents.rows(), by_queue(documents)
    for queue in ("frames", "rest"):
        column = [row[f"{NAME}_{queue}_packets"] for row in rows]
        assert column == files[f"{NAME}_{queue}_files"]
    for row in rows:
        for counter in ("packets", "bytes", "dropped"):
            parts = [row[f"{NAME}_{queue}_{counter}"] for queue in ("frames", "rest")]
            assert row[f"{NAME}_{counter}"] == sum(parts)


def test_two_queues_in_a_step_scan(daq, both, run_engine, documents):
    both.num_packets.put(300)
    tx = daq.port0.tx.out

    def plan():
        yield from bps.prepare(tx, mixed(300), wait=True)
        yield from bp.count([both, tx], 3)

    run_engine(plan())
    check_rows(documents)
    assert by_queue(documents) == {
        f"{NAME}_frames_files": [200] * 3,
        f"{NAME}_rest_files": [100] * 3,
    }


def test_two_queues_on_the_fly(daq, both, run_engine, documents):
    run_engine(
        plans.capture(
            both,
            900,
            roll_packets=300,
            tx=daq.port0.tx.out,
            packets=mixed(900, interval_ns=500_000),
        )
    )
    check_rows(documents)
    files = by_queue(documents)
    assert sum(files[f"{NAME}_frames_files"]) == 600 and sum(files[f"{NAME}_rest_files"]) == 300
    assert len(documents.rows()) >= 3


def test_a_queue_without_packets_has_empty_files(daq, both, run_engine, documents):
    packets = {"count": 400, "size": 60, "rate": 1000}
    run_engine(plans.capture(both, 400, roll_packets=100, tx=daq.port0.tx.out, packets=packets))
    check_rows(documents)
    files = by_queue(documents)
    assert sum(files[f"{NAME}_frames_files"]) == 400
    assert set(files[f"{NAME}_rest_files"]) == {0}


def test_the_limit_is_exact_for_both_together(make, run_engine, documents):
    daq = make(drops=True)  # what is sent after the limit
    both = daq.port0.capture
    both.queues.put("all")
    run_engine(
        plans.capture(
            both, 500, roll_seconds=0.1, on_drop="ignore", tx=daq.port0.tx.out, packets=mixed(5000)
        )
    )
    check_rows(documents)
    assert sum(row[f"{NAME}_packets"] for row in documents.rows()) == 500


def test_two_queues_are_paused(daq, both, run_engine, documents):
    tx = daq.port0.tx.out

    def plan():
        yield from bps.stage(daq)
        yield from bps.prepare(tx, mixed(200), wait=True)
        yield from bps.open_run()
        yield from kick_off(both)
        yield from bps.kickoff(tx, wait=True)
        yield from bps.complete(tx, wait=True)
        yield from until(lambda: both.progress.packets == 200)
        both.pause_recording()
        yield from bps.kickoff(tx, wait=True)
        yield from bps.complete(tx, wait=True)
        yield from until(lambda: both.progress.left_out == 200)
        both.resume_recording()
        yield from bps.complete(both, wait=True)
        yield from bps.collect(both, name="primary")
        yield from bps.close_run()
        yield from bps.unstage(daq)

    run_engine(plan())
    check_rows(documents)
    (row,) = documents.rows()
    assert row[f"{NAME}_packets"] == 200


def test_losses_of_either_queue_fail_the_run(make, run_engine, documents):
    daq = make(rx_buffers=128, tx_buffers=8192, drops=True)
    daq.port0.capture.queues.put("rest,frames")
    packets = {"count": 60_000, "size": 900}
    with pytest.raises(FailedStatus, match=r"queue port0/frames dropped \d+ packets"):
        run_engine(plans.capture(daq.port0.capture, tx=daq.port0.tx.out, packets=packets))
    assert documents.stop["exit_status"] == "fail"


def test_each_queue_has_a_capture_of_its_own(daq, run_engine, documents):
    first, second = (daq.port0.rx.frames.capture, daq.port0.rx.rest.capture)
    first.num_packets.put(200)
    second.num_packets.put(100)
    tx = daq.port0.tx.out

    def plan():
        yield from bps.prepare(tx, mixed(300), wait=True)
        yield from bp.count([first, second, tx])

    run_engine(plan())
    (row,) = documents.rows()
    assert row[f"{first.name}_packets"] == 200 and row[f"{second.name}_packets"] == 100
    assert by_queue(documents) == {f"{first.name}_files": [200], f"{second.name}_files": [100]}


def test_a_queue_that_is_recorded_already_is_named(daq, both, run_engine, captures):
    both.acquire_time.put(1.0)
    other = daq.port0.rx.rest.capture
    other.acquire_time.put(1.0)
    with pytest.raises(Exception, match="rest"):
        run_engine(bp.count([other, both]))
    # Neither a partial recording nor its file remains.
    assert both.progress is None and other.progress is None
    assert not list(captures.rglob("port0_frames_*"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "nowhere",
            "'nowhere' is not a receive queue; accepted are 'frames', 'rest', several with",
        ),
        ("frames,frames", "names a queue twice"),
        ("", "'' is not a receive queue"),
    ],
)
def test_refused(daq, value, message):
    with pytest.raises(ValueError, match=message):
        daq.port0.capture.queues.put(value)


def test_several_queues_do_not_go_on_after_errors(daq, both, run_engine):
    both.on_error.put("resume")
    both.acquire_time.put(0.1)
    with pytest.raises(CaptureError, match="on_error cannot be 'resume'"):
        run_engine(bp.count([both]))
