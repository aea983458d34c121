"""Step and fly scans that are suspended, paused and ended, over all engines."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.suspenders import SuspendBoolHigh
from bluesky.utils import MsgGenerator
from checked_runs import check, events_of, settings_of
from ophyd import Signal
from ophyd.sim import SynAxis
from waiting import wait_for

from daqiri_ophyd import plans
from daqiri_ophyd.devices import Capture, Daq, TxQueue
from daqiri_ophyd.engine import PcapFile

from .pauses import paused_when

ENGINES = ["loopback", "udp", "tcp"]
STEP = {"count": 100, "size": 100, "rate": 500}
FLY = {"count": 600, "size": 100, "rate": 500}
# A busy machine may take seconds to end a scan.
LONG_FLY = {**FLY, "count": 15_000}
STATUS = {"abort": "abort", "stop": "success", "halt": "abort"}


class Scan(NamedTuple):
    """A scan that takes long enough to be interrupted."""

    daq: Daq
    capture: Capture
    tx: TxQueue
    plan: MsgGenerator[Any]
    sent: int  # packets that a complete run captures
    steps: bool


def recorded(capture: Capture) -> int:
    progress = capture.progress
    return 0 if progress is None else progress.packets


def step(daq: Daq, capture: Capture, tx: TxQueue) -> Scan:
    tx.start_delay.put(0.0)
    if tx.segment_size:  # the number of packets that a stream becomes is unknown
        capture.acquire_time.put(0.8)
    else:
        capture.num_packets.put(STEP["count"])

    def plan():
        source = plans.packet_source(STEP, tx.link_type, tx.segment_size)
        yield from bps.prepare(tx, source, wait=True)
        yield from bp.scan([capture, tx], SynAxis(name="x"), 0, 1, 4)

    return Scan(daq, capture, tx, plan(), 4 * STEP["count"], True)


def fly(daq: Daq, capture: Capture, tx: TxQueue, packets: dict[str, int] = FLY) -> Scan:
    limit = {} if tx.segment_size else {"num_packets": packets["count"]}
    # Without a limit, it ends after the last packet and this time.
    capture.linger.put(0.3)
    plan = plans.capture(
        capture, **limit, roll_packets=100, tx=tx, packets=packets, flush_period=0.05, timeout=20.0
    )
    return Scan(daq, capture, tx, plan, packets["count"], False)


def long_fly(daq: Daq, capture: Capture, tx: TxQueue) -> Scan:
    return fly(daq, capture, tx, LONG_FLY)


@pytest.fixture(params=ENGINES)
def engine(request, profile) -> tuple[Daq, Capture, TxQueue]:
    return profile(request.param)


@pytest.fixture(params=[step, fly])
def scan(request, engine) -> Iterator[Scan]:
    made = request.param(*engine)
    yield made
    made.plan.close()


@pytest.fixture
def ready(scan, documents) -> Callable[[], bool]:
    """Whether it is time to interrupt: within the second reading, or file."""

    def is_ready() -> bool:
        if scan.steps:
            return bool(documents.of("event")) and 20 < recorded(scan.capture)
        return bool(documents.of("event_page")) and recorded(scan.capture) > 150

    return is_ready


def payload_bytes(scan: Scan, files) -> int:
    """Return the bytes that were sent and are in the files."""
    total = 0
    for file in files:
        with PcapFile(file) as pcap:
            total += int(pcap.to_columns(["payload_length"])["payload_length"].sum())
    return total


def interrupt(run_engine, scan: Scan, ready, *, defer: bool = False) -> None:
    # The reading of a step needs its packets to come to the deferred pause after it.
    sending = () if scan.steps and defer else (scan.tx,)
    with paused_when(run_engine, ready, *sending, defer=defer):
        run_engine(scan.plan)


def check_complete(scan: Scan, documents, captures, before, *, repeated: int) -> None:
    files = check(documents, scan.daq, captures, before, beside=repeated)
    assert payload_bytes(scan, files) == scan.sent * STEP["size"]


@pytest.mark.files_in_no_document("a reading is interrupted and taken again")
def test_a_suspended_scan_goes_on(scan, ready, run_engine, documents, captures):
    beam_is_off = Signal(name="beam_is_off", value=0)
    suspended = threading.Event()

    def note():
        yield from bps.null()
        suspended.set()

    def watch() -> None:
        wait_for(ready)
        beam_is_off.put(1)
        wait_for(suspended.is_set)
        beam_is_off.put(0)

    run_engine.install_suspender(SuspendBoolHigh(beam_is_off, pre_plan=note))
    before = settings_of(scan.daq)
    watcher = threading.Thread(target=watch)
    watcher.start()
    run_engine(scan.plan)
    watcher.join()
    run_engine.clear_suspenders()
    check_complete(scan, documents, captures, before, repeated=1 if scan.steps else 0)


@pytest.mark.files_in_no_document("a reading is interrupted and taken again")
@pytest.mark.parametrize("defer", [True, False], ids=["deferred", "at once"])
def test_a_paused_scan_goes_on(scan, ready, run_engine, documents, captures, defer):
    before = settings_of(scan.daq)
    interrupt(run_engine, scan, ready, defer=defer)
    run_engine.resume()
    # A deferred pause takes effect between two readings.
    repeated = 1 if scan.steps and not defer else 0
    check_complete(scan, documents, captures, before, repeated=repeated)


@pytest.mark.files_in_no_document("the operator stops it in a reading")
@pytest.mark.parametrize("scan", [step, long_fly], indirect=True)
@pytest.mark.parametrize("ending", STATUS)
def test_an_ended_scan_has_its_files_and_another_follows(
    scan, ready, run_engine, documents, captures, ending
):
    before = settings_of(scan.daq)
    interrupt(run_engine, scan, ready)
    getattr(run_engine, ending)()
    on_disk = sorted(captures.rglob("*.pcap"))
    if scan.steps:
        beside = 1  # the reading that was interrupted
    else:
        # After a halt, the plan cannot collect the rows since the latest.
        run = documents.of("start")[0]["uid"]
        named = len(events_of(documents, run, "primary"))
        beside = len(on_disk) - named if ending == "halt" else 0
    kept = None if ending == "halt" else before
    check(documents, scan.daq, captures, kept, status=STATUS[ending], beside=beside)
    assert 0 < payload_bytes(scan, on_disk) < scan.sent * STEP["size"]

    documents.clear()
    scan.capture.acquire_time.put(0.1)
    before = settings_of(scan.daq)
    run_engine(bp.count([scan.capture]))
    check(documents, scan.daq, captures, before, beside=len(on_disk))
