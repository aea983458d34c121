"""Stored runs sent again, on loopback and on UDP sockets."""

from pathlib import Path

import numpy as np
import pytest
from free_ports import free_port

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import CaptureNotFoundError, capture_files
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import PcapFile, ethernet
from daqiri_ophyd.replay import Replay, ReplayError, gap_errors, schedule

BURST = {"count": 400, "size": 120, "rate": 4000}


@pytest.fixture
def udp(captures):
    """A sender and a receiver on UDP sockets of this host."""
    port = free_port("udp")
    queue = {"name": "q", "id": 0, "cpu_core": "any", "batch_size": 64}
    configuration = {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket",
        "memory_regions": [
            {"name": "rx", "kind": "host", "num_bufs": 8192, "buf_size": 2048},
            {"name": "tx", "kind": "host", "num_bufs": 4096, "buf_size": 2048},
        ],
        "interfaces": [
            {
                "name": "receiver",
                "address": "127.0.0.1",
                "socket_config": {"mode": "server", "local_addr": f"udp://127.0.0.1:{port}"},
                "rx": {"queues": [{**queue, "memory_regions": ["rx"], "timeout_us": 1000}]},
            },
            {
                "name": "sender",
                "address": "127.0.0.1",
                "socket_config": {"mode": "client", "remote_addr": f"udp://127.0.0.1:{port}"},
                "tx": {"queues": [{**queue, "memory_regions": ["tx"]}]},
            },
        ],
    }
    with make_daq(configuration, "net", directory=captures) as daq:
        yield daq


def payloads(files: list[Path]) -> list[bytes]:
    found = []
    for file in files:
        with PcapFile(file) as pcap:
            offsets, lengths = ethernet.udp_payload(pcap)
            found += [
                pcap.data[at : at + n].tobytes() for at, n in zip(offsets, lengths, strict=True)
            ]
    return found


def stamps(files: list[Path]) -> np.ndarray:
    found = []
    for file in files:
        with PcapFile(file) as pcap:
            found.append(pcap.timestamps)
    return np.concatenate(found)


def record_and_replay(run_engine, catalog, capture, tx, **replay):
    """Capture numbered packets, replay the stored run; returns the files of both."""
    (first,) = run_engine(plans.capture(capture, 400, roll_packets=150, tx=tx, packets=BURST))
    (second,) = run_engine(plans.replay(tx, first, catalog, detector=capture, **replay))
    runs = [catalog.client[uid] for uid in (first, second)]
    assert runs[1].metadata["start"]["replay_of"] == first
    return [capture_files(run) for run in runs]


def test_a_stored_run_is_replayed_with_its_gaps(daq, run_engine, catalog):
    original, replayed = record_and_replay(run_engine, catalog, daq.port0.capture, daq.port0.tx.out)

    assert len(original) == 3
    assert payloads(replayed) == payloads(original)
    assert len(payloads(original)) == 400
    due = schedule(Replay(original, link_type=1))
    assert due[-1] == stamps(original)[-1] - stamps(original)[0]
    errors = gap_errors(due, stamps(replayed))
    assert errors.count == 399
    assert 0 <= errors.p50 <= errors.p99 <= errors.maximum


def test_speed_and_longest_gap(daq, run_engine, catalog, documents):
    original, replayed = record_and_replay(
        run_engine, catalog, daq.port0.capture, daq.port0.tx.out, speed=4.0, max_gap=0.01
    )

    times, again = stamps(original), stamps(replayed)
    assert (again[-1] - again[0]) < (times[-1] - times[0]) / 2
    assert documents.of("start")[-1]["replay"]["speed"] == 4.0


def test_replay_over_udp_sockets(udp, run_engine, catalog, documents):
    original, replayed = record_and_replay(
        run_engine, catalog, udp.receiver.capture, udp.sender.tx.q
    )

    with PcapFile(original[0]) as pcap:
        assert pcap.link_type == 101
    assert payloads(replayed) == payloads(original)
    assert len(payloads(original)) == 400
    assert documents.stop["exit_status"] == "success"
    assert "capture" not in udp.sender.component_names


def test_a_run_itself_and_files_can_be_replayed(daq, run_engine, catalog, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    (uid,) = run_engine(plans.capture(capture, 400, tx=tx, packets=BURST))
    run = catalog.client[uid]

    run_engine(plans.replay(tx, run, start_delay=0.01))
    assert documents.rows()[-1]["daq_port0_capture_packets"] == 400
    documents.clear()

    files = [str(file) for file in capture_files(run)]
    run_engine(plans.timed_tx(tx, {"files": files, "speed": 10.0, "max_gap": 0.001}))
    assert documents.rows()[0]["daq_port0_tx_out_sent"] == 1200


def test_what_cannot_be_replayed(daq, udp, run_engine, catalog, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    (uid,) = run_engine(plans.capture(capture, 400, tx=tx, packets=BURST))
    (empty,) = run_engine(plans.timed_tx(tx, BURST))

    with pytest.raises(ReplayError, match="holds Ethernet frames, and this port sends raw IP"):
        run_engine(plans.replay(udp.sender.tx.q, uid, catalog))
    with pytest.raises(CaptureNotFoundError, match="no such capture"):
        run_engine(plans.replay(tx, empty, catalog))
    with pytest.raises(ValueError, match="give the catalog"):
        run_engine(plans.replay(tx, uid))
    with pytest.raises(ReplayError, match="speed is 0"):
        run_engine(plans.replay(tx, uid, catalog, speed=0))


def test_raw_captures_are_stored_and_not_replayed(daq, run_engine, catalog):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.format.put("raw")
    (uid,) = run_engine(
        plans.capture(capture, 400, roll_packets=100, tx=tx, packets=BURST, timeout=30.0)
    )
    run = catalog.client[uid]
    files = capture_files(run)
    assert [file.suffix for file in files] == [".raw"] * 4
    summaries = run.primary.base["daq_port0_capture_files", "summaries"].read()
    assert summaries["packets"].tolist() == [100] * 4
    assert summaries["bytes"].tolist() == [file.stat().st_size for file in files]
    with pytest.raises(ReplayError, match="Record with format pcap"):
        run_engine(plans.replay(tx, uid, catalog))
