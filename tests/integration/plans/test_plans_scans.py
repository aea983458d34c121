"""Step scans and fly scans of a loopback engine."""

import json
import shutil

import numpy as np
import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.callbacks.best_effort import BestEffortCallback
from bluesky.utils import FailedStatus, ProgressBarManager
from named_files import files_in_no_document
from ophyd.sim import motor

from daqiri_ophyd import plans
from daqiri_ophyd.documents import CAPTURE_MIMETYPES
from daqiri_ophyd.engine import PcapFile, ethernet, load_config
from daqiri_ophyd.replay import Replay, ReplayError

BURST = {"count": 300, "size": 100, "interval": 1e-5}


def numbers(path) -> list[int]:
    """Numbers of the packets in a file."""
    with PcapFile(path) as pcap:
        offsets, _ = ethernet.udp_payload(pcap)
        return [int.from_bytes(pcap.data[at : at + 8].tobytes(), "big") for at in offsets]


def prepare(tx, **packets):
    yield from bps.prepare(tx, plans.packet_source({**BURST, **packets}, tx.link_type), wait=True)


def test_count_captures_a_file_for_each_reading(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(300)

    run_engine(prepare(tx))
    run_engine(bp.count([capture, tx], 3))

    assert documents.stop["exit_status"] == "success"
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [300, 300, 300]
    assert [row["daq_port0_tx_out_sent"] for row in documents.rows()] == [300, 600, 900]
    files = documents.files()
    assert [file.name for file in files] == [f"port0_{i:06d}.pcap" for i in range(3)]
    for file in files:
        assert numbers(file) == list(range(300))


def test_raw_captures(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(300)
    capture.format.put("raw")
    capture.packet_data_offset.put(42)
    capture.durable.put(True)

    run_engine(prepare(tx))
    run_engine(bp.count([capture, tx], 2))

    resource = documents.of("stream_resource")[0]
    assert resource["mimetype"] == CAPTURE_MIMETYPES["raw"]
    used = documents.descriptor()["configuration"]["daq_port0_capture"]["data"]
    assert used["daq_port0_capture_format"] == "raw"
    files = documents.files()
    assert [file.name for file in files] == ["port0_000000.raw", "port0_000001.raw"]
    for file in files:
        index = np.load(file.with_name(file.name + ".npy"))
        at = index["offset"].astype(np.int64)[:, np.newaxis] + np.arange(8)
        starts = np.fromfile(file, np.uint8)[at]
        assert starts.view(">u8").ravel().tolist() == list(range(300))
    with pytest.raises(ReplayError, match="format pcap"):
        Replay(files, link_type=1)


def test_the_format_of_a_run_is_fixed(daq):
    capture = daq.port0.capture
    with pytest.raises(ValueError, match="'pcap', 'raw'"):
        capture.format.put("pcapng")
    capture.stage()
    try:
        with pytest.raises(RuntimeError, match="staged"):
            capture.format.put("raw")
    finally:
        capture.unstage()


def test_a_reading_begins_when_it_is_triggered(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(300)
    run_engine(plans.timed_tx(tx, {**BURST, "size": 64}))  # these are not recorded
    documents.clear()

    run_engine(prepare(tx))
    run_engine(bp.count([capture, tx]))

    with PcapFile(documents.files()[0]) as pcap:
        assert set(pcap.lengths) == {142}
    # Flushed packets do not count as lost.
    assert documents.rows()[0]["daq_port0_capture_dropped"] == 0
    assert daq.port0.rx.frames.dropped_flushed.get() == 300


def test_acquire_time_ends_a_reading_without_packets(daq, run_engine, documents):
    capture = daq.port0.capture
    capture.acquire_time.put(0.05)

    run_engine(bp.count([capture], 2))

    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [0, 0]
    assert [row["daq_port0_capture_t_first_ns"] for row in documents.rows()] == [-1, -1]
    assert [len(PcapFile(file)) for file in documents.files()] == [0, 0]


def test_a_reading_without_a_limit_takes_a_second(daq, run_engine, documents):
    capture = daq.port0.capture
    run_engine(bp.count([capture], 2))
    assert [len(PcapFile(file)) for file in documents.files()] == [0, 0]
    times = [row["time"] for row in documents.of("event")]
    assert times[1] - times[0] > 1.0
    assert (capture.num_packets.get(), capture.acquire_time.get()) == (0, 0.0)


def test_a_transmission_with_nothing_prepared_is_refused(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(300)
    nothing = "daq_port0_tx_out was triggered with nothing prepared"
    with pytest.raises(RuntimeError, match=nothing):
        run_engine(bp.count([tx]))
    run_engine(prepare(tx))
    run_engine(bp.scan([capture, tx], motor, 0, 1, 2))
    with pytest.raises(RuntimeError, match="because unstaging forgets the packets"):
        run_engine(bp.scan([capture, tx], motor, 0, 1, 2))
    assert nothing in documents.stop["reason"]
    documents.clear()
    run_engine(bp.count([daq.port0.tx]))  # its counters
    assert documents.rows()[0]["daq_port0_tx_out_sent"] == 600
    assert documents.stop["exit_status"] == "success"


def test_capture_scan(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    run_engine(plans.capture_scan(capture, motor, -1, 1, 5, tx=tx, packets=BURST))

    rows = documents.rows()
    assert [row["motor"] for row in rows] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert [row["daq_port0_capture_packets"] for row in rows] == [300] * 5
    assert documents.of("start")[0]["plan_name"] == "capture_scan"
    assert len(documents.files()) == 5


def test_capture_on_the_fly_rolls_files(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    run_engine(
        plans.capture(
            capture,
            1000,
            roll_packets=300,
            tx=tx,
            packets={"count": 1000, "size": 100, "interval": 2e-4},
            flush_period=0.05,
            md={"sample": "none"},
        )
    )

    start = documents.of("start")[0]
    assert (start["plan_name"], start["sample"]) == ("capture", "none")
    assert documents.stop["exit_status"] == "success"
    assert documents.stop["num_events"] == {"primary": 4, "transmit": 1}
    assert [row["daq_port0_capture_packets"] for row in documents.rows()] == [300, 300, 300, 100]
    assert sum((numbers(file) for file in documents.files()), []) == list(range(1000))
    assert documents.rows("transmit")[0]["daq_port0_tx_out_sent"] == 1000
    # Files and rows are the same rows of one stream.
    ranges = [datum["seq_nums"] for datum in documents.of("stream_datum")]
    assert [r["start"] for r in ranges[1:]] == [r["stop"] for r in ranges[:-1]]
    assert (ranges[0]["start"], ranges[-1]["stop"]) == (1, 5)


def test_a_capture_without_limit_ends_after_what_is_sent(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    run_engine(plans.capture(capture, tx=tx, packets=BURST))

    assert numbers(documents.files()[0]) == list(range(300))


def test_a_capture_without_any_end_is_refused(daq, run_engine):
    with pytest.raises(ValueError, match="num_packets or acquire_time"):
        run_engine(plans.capture(daq.port0.capture))
    with pytest.raises(ValueError, match="tx is given without packets"):
        run_engine(plans.capture(daq.port0.capture, tx=daq.port0.tx.out))


def test_packets_that_do_not_come_fail_in_words(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out

    with pytest.raises(FailedStatus, match="300 of 400 packets"):
        run_engine(plans.capture(capture, 400, tx=tx, packets=BURST, timeout=2.0))

    assert documents.stop["exit_status"] == "fail"
    assert "daq_port0_capture: capturing failed: no progress" in documents.stop["reason"]
    # The packets that arrived are part of the run.
    assert numbers(documents.files()[0]) == list(range(300))
    assert capture.progress is None


def test_packets_held_in_a_burst_that_is_not_full_are_named(make, run_engine, documents):
    daq = make(timeout_us=0)

    with pytest.raises(FailedStatus, match="256 of 300 packets, 44 held in a burst"):
        run_engine(
            plans.capture(daq.port0.capture, 300, tx=daq.port0.tx.out, packets=BURST, timeout=2.0)
        )


def test_several_runs_each_have_their_files(daq, run_engine, documents):
    for _ in range(2):
        run_engine(plans.capture(daq.port0.capture, 300, tx=daq.port0.tx.out, packets=BURST))

    first, second = documents.files()
    assert first.name == second.name
    assert first.parent != second.parent
    assert daq.is_open


def test_timed_tx_tells_what_left_and_when(daq, run_engine, documents):
    tx = daq.port0.tx.out

    run_engine(plans.timed_tx(tx, {"count": 500, "size": 60, "rate": 5000}))

    (row,) = documents.rows()
    assert row["daq_port0_tx_out_sent"] == 500
    assert row["daq_port0_tx_out_dropped"] == 0
    assert row["daq_port0_tx_out_late"] == 0
    names = [f"daq_port0_tx_out_lateness_{name}" for name in ("p50", "p99", "p999", "max")]
    late = [row[name] for name in names]
    assert late == sorted(late)
    assert late[0] >= 0
    assert sum(row["daq_port0_tx_out_lateness_histogram"]) == 500
    (descriptor,) = documents.of("descriptor")
    key = descriptor["data_keys"]["daq_port0_tx_out_lateness_histogram"]
    settings = descriptor["configuration"]["daq_port0_tx_out"]["data"]
    assert (key["dtype"], key["dtype_numpy"], key["units"]) == ("array", "<i8", "packets")
    assert key["shape"] == [len(settings["daq_port0_tx_out_lateness_edges"]) - 1]


def test_packets_leave_with_their_gaps(daq, run_engine, documents):
    # None leaves too soon; a busy machine may delay the first by less than half of the time of all.
    interval = 50_000_000
    run_engine(
        plans.capture(
            daq.port0.capture,
            20,
            tx=daq.port0.tx.out,
            packets={"count": 20, "size": 60, "interval": interval * 1e-9},
        )
    )

    with PcapFile(documents.files()[0]) as pcap:
        times = pcap.timestamps
    assert times[-1] - times[0] > 19 * interval // 2


def test_what_the_run_used_is_in_its_descriptors(daq, run_engine, documents):
    run_engine(plans.capture(daq.port0.capture, 300, tx=daq.port0.tx.out, packets=BURST))

    for stream, device in (("primary", "daq_port0_capture"), ("transmit", "daq_port0_tx_out")):
        used = documents.descriptor(stream)["configuration"][device]["data"]
        assert '"udp_dst": 5000' in used["daq_flow_table"]
        assert used["daq_engine_version"].startswith("20")
        assert used["daq_configuration_sha256"] == daq.config_sha256
        # All packets are in the run once.
        assert "num_bufs" not in json.dumps(used)
    (start,) = documents.of("start")
    config = start["daqiri"]["daq"]["config"]
    assert config["memory_regions"][0]["num_bufs"] == 8192
    assert load_config(config).to_yaml() == daq.config.to_yaml()
    capture = documents.descriptor()["configuration"]["daq_port0_capture"]["data"]
    assert capture["daq_port0_capture_queues"] == "frames"
    assert capture["daq_port0_capture_num_packets"] == 300


def test_readings_are_consistent(daq, run_engine, documents):
    run_engine(plans.timed_tx(daq.port0.tx.out, BURST))
    documents.clear()
    run_engine(bp.count([daq.port0.rx.frames], 3))

    assert documents.rows()[-1]["daq_port0_rx_frames_received"] == 300
    for row in documents.rows():
        own = {k.removeprefix("daq_port0_rx_frames_"): v for k, v in row.items()}
        assert own["received"] == own["delivered"] + own["held"] + own["dropped"]
        reasons = [v for k, v in own.items() if k.startswith("dropped_")]
        assert own["dropped"] == sum(reasons)


def test_descriptions_fit_readings(daq):
    with daq:
        daq.stage()
        try:
            for device in (daq, daq.port0, daq.port0.rx.frames, daq.port0.tx.out):
                assert set(device.describe()) == set(device.read())
                assert set(device.describe_configuration()) == set(device.read_configuration())
            capture = daq.port0.capture
            external = {k for k, v in capture.describe().items() if "external" in v}
            assert external == {"daq_port0_capture_files"}
            assert set(capture.describe()) - external == set(capture.read())
            assert set(capture.describe_collect()) == set(capture.describe())
        finally:
            daq.unstage()


def test_the_live_table_shows_rows_of_a_fly_scan(daq, run_engine, capsys):
    best_effort = BestEffortCallback()
    best_effort.disable_plots()
    run_engine.subscribe(best_effort)
    run_engine.waiting_hook = ProgressBarManager()

    run_engine(
        plans.capture(daq.port0.capture, 300, roll_packets=150, tx=daq.port0.tx.out, packets=BURST)
    )

    table = capsys.readouterr().out
    assert "daq_port0_capture_packets" in table
    assert sum("|                       150 |" in line for line in table.splitlines()) == 2


def test_files_in_no_document_are_found(daq, run_engine, documents, captures):
    """The check after each test of plans and frames."""
    capture = daq.port0.capture
    capture.acquire_time.put(0.05)
    run_engine(bp.count([capture], 2))
    documents.clear()  # what a test has read is checked, too
    assert files_in_no_document(documents, captures) == []
    other = capture.files[0].with_name("port0_000002.pcap")
    shutil.copy(capture.files[0], other)
    shutil.copy(capture.files[0], captures)
    copies = [other, captures / capture.files[0].name]
    assert files_in_no_document(documents, captures) == sorted(copies)
    for file in copies:
        file.unlink()
