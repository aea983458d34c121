"""Replays of replays, parts of runs, and their verification, over the three profiles."""

import inspect
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky.utils import FailedStatus
from event_model import compose_run
from free_ports import free_port
from run_documents import new_run_engine

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.catalog import RunNotFoundError, capture_files, find_run
from daqiri_ophyd.devices import Capture, TxQueue, make_daq
from daqiri_ophyd.engine import PcapFile
from daqiri_ophyd.plans._replay import _when_arrived
from daqiri_ophyd.replay import Comparison, NumberedPackets, Replay, ReplayError

BURST = {"count": 300, "size": 200, "rate": 20_000}


@pytest.fixture
def run_engine(documents) -> Iterator[RunEngine]:
    with new_run_engine(call_returns_result=True) as engine:
        engine.subscribe(documents.take)
        yield engine


def contents(files: list[Path], segment_size: int | None) -> list[bytes] | bytes:
    """The data that a port was sent: packets, or the bytes of a stream."""
    with PcapFile(files[0]) as pcap:
        link_type = pcap.link_type
    found = []
    for chunk in Replay(files, link_type=link_type, segment_size=segment_size).chunks():
        for offset, length in zip(chunk.offsets, chunk.lengths, strict=True):
            found.append(chunk.data[offset : offset + length].tobytes())
    return found if segment_size is None else b"".join(found)


def sent_by(tx: TxQueue) -> list[bytes] | bytes:
    """The sender of `BURST`."""
    numbered = NumberedPackets(300, 200, link_type=tx.link_type)
    rows = np.concatenate([c.data.reshape(len(c), -1) for c in numbered.chunks()])
    return rows.tobytes() if tx.segment_size else [row.tobytes() for row in rows]


def record(run_engine, capture, tx, **options) -> str:
    limit = {"acquire_time": 1.0} if tx.segment_size else {"num_packets": 300}
    plan = plans.capture(capture, tx=tx, packets=BURST, **limit, **options)
    return run_engine(plan).run_start_uids[0]


@pytest.mark.parametrize("name", ["loopback", "udp", "tcp"])
def test_a_replay_of_a_replay_is_the_capture_byte_for_byte(name, profile, run_engine, catalog):
    _, capture, tx = profile(name)
    first = record(run_engine, capture, tx, roll_packets=100)
    (second,) = run_engine(plans.replay(tx, first, catalog, detector=capture)).run_start_uids
    (third,) = run_engine(plans.replay(tx, second, catalog, detector=capture)).run_start_uids

    runs = [catalog.client[uid] for uid in (first, second, third)]
    found = [contents(capture_files(run), tx.segment_size) for run in runs]
    assert found[0] == sent_by(tx)
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert [run.metadata["stop"]["exit_status"] for run in runs] == ["success"] * 3
    assert runs[2].metadata["start"]["replay_of"] == second


@pytest.mark.parametrize("name", ["loopback", "udp", "tcp"])
def test_a_replay_is_verified(name, profile, run_engine, catalog, documents):
    _, capture, tx = profile(name)
    record(run_engine, capture, tx)
    done = run_engine(plans.verify_replay(tx, -1, capture, catalog, loops=2, speed=2.0))

    result = done.plan_result
    total = 2 * 300 * (200 if tx.segment_size else 1)
    assert isinstance(result, Comparison)
    assert result.unit == ("bytes" if name == "tcp" else "packets")
    assert (result.sent, result.captured, result.identical) == (total, total, total)
    assert result.difference == ""
    assert result.gaps.count == (0 if name == "tcp" else 599)
    (row,) = documents.rows("verification")
    assert row["verification_passed"] is True
    assert row["verification_identical"] == total
    assert row["verification_gap_p99"] == result.gaps.p99
    assert documents.stop["exit_status"] == "success"
    run = catalog.client[done.run_start_uids[0]]
    assert run["verification"]["verification_captured"].read()[0] == total


def test_a_run_without_packets_cannot_be_verified(profile, run_engine, catalog, documents):
    _, capture, tx = profile("loopback")
    (empty,) = run_engine(plans.capture(capture, acquire_time=0.1)).run_start_uids
    with pytest.raises(ReplayError, match=f"Run {empty} has no packets; there is nothing to"):
        run_engine(plans.verify_replay(tx, empty, capture, catalog))
    assert [doc["uid"] for doc in documents.of("start")] == [empty]


def test_a_stream_whose_records_are_longer_than_a_packet_is_replayed(profile, run_engine, catalog):
    """The receiver takes up to 64 KiB per packet, the sender sends up to 8 KiB."""
    _, capture, tx = profile("tcp")
    packets = {"count": 400, "size": 8000}
    plan = plans.capture(capture, acquire_time=1.0, tx=tx, packets=packets)
    (first,) = run_engine(plan).run_start_uids
    done = run_engine(plans.verify_replay(tx, first, capture, catalog))
    assert done.plan_result.identical == 3_200_000


def test_the_run_says_what_was_replayed_and_how(profile, run_engine, catalog, documents):
    _, capture, tx = profile("loopback")
    first = record(run_engine, capture, tx)
    with PcapFile(capture_files(catalog.client[first])[0]) as pcap:
        half = float(pcap.timestamps[150] - pcap.timestamps[0]) / 1e9
    options = {
        "between": (0.0, half),
        "packet_range": (5, 100),
        "select": {"ipv4_src": "198.18.0.1"},
        "loops": 3,
        "loop_gap": 0.001,
        "rewrite": {"udp_dst": 5000, "ip_src": "10.0.0.7", "mac_dst": "02:00:00:00:00:0c"},
        "speed": 0.5,
        "max_gap": 0.01,
    }
    (again,) = run_engine(
        plans.replay(tx, first[:8], catalog, detector=capture, md={"sample": "x"}, **options)
    ).run_start_uids

    start = catalog.client[again].metadata["start"]
    assert start["replay_of"] == first
    expected = json.loads(json.dumps(options))
    assert start["replay"] == {**expected, "stream": None, "key": None, "packets": 3 * 95}
    assert start["sample"] == "x"
    with PcapFile(capture_files(catalog.client[again])[0]) as pcap:
        assert len(pcap) == 285
        assert len(pcap.select(ipv4_src="10.0.0.7", eth_dst="02:00:00:00:00:0c")) == 285
        numbers = [int.from_bytes(packet[42:50].tobytes(), "big") for packet in pcap]
        assert numbers == list(range(5, 100)) * 3
    with pytest.raises(ReplayError, match=r"select=.*: none of the 300 packets"):
        run_engine(plans.replay(tx, first, catalog, select={"udp_dst": 9}))


def test_a_difference_fails_the_run_in_words(profile, run_engine, catalog, documents, monkeypatch):
    _, capture, tx = profile("loopback")
    first = record(run_engine, capture, tx)
    documents.clear()
    captured = Capture.files.fget

    def changed_on_the_way(capture: Capture) -> list[Path]:
        (file,) = captured(capture)
        content = bytearray(file.read_bytes())
        for packet in (37, 99):
            content[24 + packet * (16 + 242) + 16 + 100] ^= 1
        file.write_bytes(content)
        return [file]

    monkeypatch.setattr(Capture, "files", property(changed_on_the_way))
    with pytest.raises(plans.VerificationError, match=r"packet 37 differs: byte 100 is 0x"):
        run_engine(plans.verify_replay(tx, first, capture, catalog))
    assert documents.stop["exit_status"] == "fail"
    assert documents.stop["reason"].startswith("the replay differs: packet 37 differs: byte 100")
    assert "37 of 300 packets are identical" in documents.stop["reason"]
    (row,) = documents.rows("verification")
    assert row["verification_passed"] is False
    assert row["verification_difference"].startswith("packet 37 differs")
    assert (row["verification_sent"], row["verification_identical"]) == (300, 37)


def test_packets_that_do_not_come_are_named(profile, run_engine, catalog, documents):
    """Rewritten packets go to the other queue of the port."""
    _, capture, tx = profile("loopback")
    first = record(run_engine, capture, tx)
    documents.clear()
    rewrite = {"udp_dst": 5001}
    # The cause is raised, not its consequences.
    with pytest.raises(FailedStatus, match=r"no progress for 0.5 s: 0 of 300 packets$"):
        run_engine(plans.verify_replay(tx, first, capture, catalog, timeout=0.5, rewrite=rewrite))
    reason = documents.stop["reason"]
    assert "no progress for 0.5 s: 0 of 300 packets" in reason
    assert "packets 0 to 299 were not captured" in reason
    assert documents.rows("verification")[0]["verification_captured"] == 0


def test_a_stream_that_does_not_arrive_is_named(
    profile, run_engine, catalog, documents, monkeypatch
):
    _, capture, tx = profile("tcp")
    first = record(run_engine, capture, tx)
    monkeypatch.setattr(Replay, "stream_bytes", 61_000)
    plan = plans.replay(tx, first, catalog, detector=capture, timeout=0.5)
    with pytest.raises(TimeoutError, match=r"no progress for 0\.5 s: 60000 of 61000 bytes"):
        run_engine(plan)
    assert "60000 of 61000 bytes" in documents.stop["reason"]
    assert documents.rows()[-1]["daq_receiver_capture_packets"] > 0


def test_bytes_that_were_sent_before_a_replay_are_not_counted_as_its_own(captures, monkeypatch):
    """Sender and receiver are two engines, and the kernel holds the bytes until the replay."""
    port = str(free_port("tcp"))
    text = profiles.path("tcp").read_text().replace("47200", port)
    text = text.replace("num_bufs: 1024", "num_bufs: 16")
    engines = []
    for name, memory in (("receiver", "rx_buffers"), ("sender", "tx_buffers")):
        document = yaml.safe_load(text)
        cfg = document["daqiri"]["cfg"]
        cfg["interfaces"] = [one for one in cfg["interfaces"] if one["name"] == name]
        cfg["memory_regions"] = [one for one in cfg["memory_regions"] if one["name"] == memory]
        engines.append(make_daq(document, name, directory=captures))
    receiver, sender = engines
    capture, tx = receiver.receiver.capture, sender.sender.tx.tx_q0

    def flight():
        yield from bps.kickoff(tx)
        yield from bps.complete(capture)

    with receiver, sender:
        output, queue = sender.tx_queue("sender", "tx_q0"), receiver.rx_queue("receiver", "rx_q0")

        def send(count):
            assert output.send(np.zeros((count, 1000), np.uint8)) == count
            assert output.wait_sent(20)

        def receive_until(total):
            end = time.monotonic() + 60
            while queue.counters().received_bytes < total:
                assert time.monotonic() < end
                queue.receive(0.01)

        send(3000)
        # The receiver has fewer buffers, and no packets are received.
        assert queue.counters().received_bytes < 3_000_000
        messages = _when_arrived(flight(), tx, capture, 60_000, 20.0)
        assert next(messages).command == "kickoff"
        receive_until(3_000_000)
        assert next(messages).command == "checkpoint"
        send(60)
        receive_until(3_060_000)
        commands = [message.command for message in messages]
        assert commands[-1] == "complete"
        # The replay does not wait for bytes that were lost with an earlier connection.
        monkeypatch.setattr("daqiri_ophyd.plans._replay.bytes_on_the_way", lambda *_: 1000)
        messages = _when_arrived(flight(), tx, capture, 60_000, 20.0)
        assert next(messages).command == "kickoff"
        send(60)
        receive_until(3_120_000)
        assert [message.command for message in messages][-1] == "complete"


def test_runs_are_found_by_what_clients_send(profile, run_engine, catalog, documents):
    """A queue server and blueapi send numbers and text, but no catalog."""
    _, capture, tx = profile("loopback")
    first = record(run_engine, capture, tx)
    opened = []
    replay = plans.with_catalog(plans.replay, lambda: opened.append(1) or catalog)
    assert list(inspect.signature(replay).parameters)[:3] == ["tx", "run", "speed"]
    assert inspect.signature(replay).parameters["run"].annotation == str | int
    assert inspect.isgeneratorfunction(replay)
    assert not opened
    for run in (-1, "-1", 1, "1", first, first[:6]):
        latest = documents.of("start")[-1]["uid"]
        run_engine(replay(tx, run=run, detector=capture, start_delay=0.0))
        expected = latest if run in (-1, "-1") else first
        assert documents.of("start")[-1]["replay_of"] == expected
    assert len(opened) == 6


def test_digits_that_begin_a_uid_are_no_scan_id(catalog):
    for uid in ("56855-one", "568559-two", "1-three"):
        stored = compose_run(uid=uid, metadata={"scan_id": 56855 if uid == "1-three" else 1})
        writer = catalog.writer()
        writer("start", stored.start_doc)
        writer("stop", stored.compose_stop())
    for run, uid in (("568559", "568559-two"), ("56855", "1-three"), (56855, "1-three")):
        assert find_run(catalog.client, run).start["uid"] == uid
    for absent in (568559, "-56855", "5685597"):
        with pytest.raises(RunNotFoundError, match="is not in the catalog"):
            find_run(catalog.client, absent)


@pytest.mark.parametrize("run", [77, "77", "-77", "abcdef", "abc", "²", ""])
def test_a_run_that_is_not_there_is_named(profile, run_engine, catalog, run):
    _, capture, tx = profile("loopback")
    record(run_engine, capture, tx)
    with pytest.raises(
        RunNotFoundError, match=r"Run .* is not in the catalog, which has 1 runs"
    ) as e:
        run_engine(plans.replay(tx, run, catalog))
    assert repr(run) in str(e.value)
    assert "-1 for the latest run" in str(e.value)


def test_what_is_no_run_is_named(profile, run_engine, catalog):
    _, _, tx = profile("loopback")
    with pytest.raises(TypeError, match="run is a object; accepted are a scan id, -1, a uid, and"):
        run_engine(plans.replay(tx, object(), catalog))
