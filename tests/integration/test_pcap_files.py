"""Captures of both engines, read by tcpdump, tshark and the package."""

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import yaml
from free_ports import free_port
from waiting import wait_for

from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import (
    LINKTYPE_ETHERNET,
    LINKTYPE_RAW,
    Engine,
    GenericFailureError,
    InvalidParameterError,
    NotReadyError,
    PcapFile,
    RxQueue,
)
from daqiri_ophyd.engine.ethernet import udp_frames

PACKETS = 3000
PROFILES = Path(__file__).parents[2] / "profiles"


def tshark(path: Path, *fields: str) -> list[list[str]]:
    command = ["tshark", "-n", "-r", str(path), "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    return [line.split("\t") for line in run.stdout.splitlines()]


def tcpdump_rewritten(path: Path, tmp_path: Path) -> Path:
    """Return a copy whose records tcpdump has read and written."""
    copy = tmp_path / f"tcpdump-{path.name}"
    command = ["tcpdump", "-Z", "root", "--nano", "-n", "-r", str(path), "-w", str(copy)]
    subprocess.run(command, capture_output=True, check=True, timeout=200)
    return copy


@pytest.fixture
def loopback() -> Iterator[Engine]:
    with Engine.open(PROFILES / "loopback.yaml") as engine:
        yield engine


@pytest.fixture
def udp() -> Iterator[tuple[Engine, int]]:
    port = free_port("udp")
    config = yaml.safe_load((PROFILES / "udp.yaml").read_text())
    receiver, sender = config["daqiri"]["cfg"]["interfaces"]
    receiver["socket_config"]["local_addr"] = f"udp://127.0.0.1:{port}"
    sender["socket_config"]["remote_addr"] = f"udp://127.0.0.1:{port}"
    with Engine.open(config) as engine:
        yield engine, port


def frames(count: int = PACKETS) -> np.ndarray:
    payloads = np.random.default_rng(7).integers(0, 256, (count, 200), np.uint8)
    return udp_frames(
        payloads,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="10.0.0.1",
        dst_ip="10.0.0.2",
        src_port=4000,
        dst_port=5000,
    )


def test_a_recorded_queue_is_what_was_sent(loopback: Engine, tmp_path: Path) -> None:
    sent = frames()
    with loopback.port(0).rx_queue(0).record(tmp_path, "run", roll_packets=1000) as recorder:
        loopback.port(0).tx_queue(0).send(sent)
        wait_for(lambda: recorder.snapshot().packets == PACKETS)
    files = recorder.files()
    assert [file.packets for file in files] == [1000, 1000, 1000]
    assert sorted(os.listdir(tmp_path)) == [
        name for n in range(3) for name in (f"run_00000{n}.pcap", f"run_00000{n}.pcap.json")
    ]
    for n, file in enumerate(files):
        expected = sent[n * 1000 : (n + 1) * 1000]
        with PcapFile(file.path) as pcap:
            assert (pcap.link_type, pcap.nanosecond, pcap.torn_bytes) == (
                LINKTYPE_ETHERNET,
                True,
                0,
            )
            np.testing.assert_array_equal(pcap.gather(), expected)
            assert (pcap.timestamps[0], pcap.timestamps[-1]) == (file.t_first_ns, file.t_last_ns)
            with PcapFile(tcpdump_rewritten(file.path, tmp_path)) as copy:
                np.testing.assert_array_equal(copy.gather(), expected)
                np.testing.assert_array_equal(copy.timestamps, pcap.timestamps)
        sidecar = read_sidecar(file.path)
        assert sidecar is not None
        assert (sidecar.packets, sidecar.bytes, sidecar.dropped) == (1000, expected.size, 0)
        assert (sidecar.t_first_ns, sidecar.t_last_ns) == (file.t_first_ns, file.t_last_ns)
        assert (sidecar.queue, sidecar.clock) == ("port0/rx_q0", "CLOCK_REALTIME")
        assert not sidecar.headers_reconstructed
    rows = tshark(files[2].path, "frame.len", "ip.src", "udp.dstport", "udp.checksum.status")
    assert len(rows) == 1000
    assert {tuple(row[:3]) for row in rows} == {("242", "10.0.0.1", "5000")}


def test_a_udp_capture_has_addresses_and_ports(udp: tuple[Engine, int], tmp_path: Path) -> None:
    engine, port = udp
    payloads = [bytes([n % 256]) * (1 + n % 500) for n in range(500)]
    with engine.port("receiver").rx_queue(0).record(tmp_path, nanosecond=False) as recorder:
        engine.port("sender").tx_queue(0).send(payloads)
        wait_for(lambda: recorder.snapshot().packets == 500)
    (file,) = recorder.files()
    assert file.bytes == sum(28 + len(payload) for payload in payloads)
    rows = tshark(
        file.path, "ip.src", "ip.dst", "udp.dstport", "udp.length", "udp.payload", "ip.checksum"
    )
    assert len(rows) == 500
    for row, payload in zip(rows, payloads, strict=True):
        assert row[:4] == ["127.0.0.1", "127.0.0.1", str(port), str(8 + len(payload))]
        assert bytes.fromhex(row[4]) == payload
    sidecar = read_sidecar(file.path)
    assert sidecar is not None
    assert (sidecar.link_type, sidecar.headers_reconstructed) == (LINKTYPE_RAW, True)
    assert not sidecar.nanosecond
    with PcapFile(file.path) as pcap:
        assert pcap.link_type == LINKTYPE_RAW
        assert not pcap.nanosecond


def received(queue: RxQueue, count: int) -> list:
    bursts = []
    end = time.monotonic() + 60
    while sum(len(burst) for burst in bursts) < count:
        assert time.monotonic() < end
        if (burst := queue.receive(0.5)) is not None:
            bursts.append(burst)
    return bursts


def test_bursts_are_appended_to_one_file(loopback: Engine, tmp_path: Path) -> None:
    sent = frames(1000)
    loopback.port(0).tx_queue(0).send(sent)
    bursts = received(loopback.port(0).rx_queue(0), 1000)
    paths = {burst.write_pcap(tmp_path, "bursts") for burst in bursts}
    assert paths == {tmp_path / "bursts.pcap"}
    with PcapFile(tmp_path / "bursts.pcap") as pcap:
        np.testing.assert_array_equal(pcap.gather(), sent)
        timestamps = np.concatenate([burst.timestamps for burst in bursts])
        np.testing.assert_array_equal(pcap.timestamps, timestamps)
    before = (tmp_path / "bursts.pcap").read_bytes()
    with pytest.raises(InvalidParameterError, match=r"nanoseconds, not microseconds"):
        bursts[0].write_pcap(tmp_path, "bursts", nanosecond=False)
    assert (tmp_path / "bursts.pcap").read_bytes() == before
    # New records replace the torn record of a killed writer.
    record = 16 + sent.shape[1]
    (tmp_path / "torn.pcap").write_bytes(before[:-1])
    bursts[0].write_pcap(tmp_path, "torn")
    torn = (tmp_path / "torn.pcap").read_bytes()
    assert torn[: len(before) - record] == before[:-record]
    with PcapFile(tmp_path / "torn.pcap") as pcap:
        np.testing.assert_array_equal(
            pcap.gather(), np.concatenate([sent[:-1], sent[: len(bursts[0])]])
        )
    for burst in bursts:
        burst.release()


def test_packets_go_to_raw_files(loopback: Engine, tmp_path: Path) -> None:
    sent = frames(100)
    loopback.port(0).tx_queue(0).send(sent)
    (burst,) = received(loopback.port(0).rx_queue(0), 100)
    with burst:
        burst.write_raw(tmp_path, "payload", offset=42)
        assert len(os.listdir(tmp_path)) == 100
        for n in (0, 57, 99):
            assert (tmp_path / f"payload_{n}").read_bytes() == sent[n, 42:].tobytes()
        with pytest.raises(InvalidParameterError, match="No such file"):
            burst.write_raw(tmp_path / "missing", "payload")


def test_a_removed_directory_is_told_and_reception_goes_on(
    loopback: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    queue = loopback.port(0).rx_queue(0)
    with queue.record(folder) as recorder:
        with pytest.raises(NotReadyError, match="being recorded"):
            queue.record(tmp_path)
        for name in os.listdir(folder):
            (folder / name).unlink()
        folder.rmdir()
        wait_for(lambda: recorder.snapshot().error != "")
        assert "capture_000000.pcap was removed" in recorder.snapshot().error
        loopback.port(0).tx_queue(0).send(frames(300))
        wait_for(lambda: recorder.snapshot().dropped == 300)
        with pytest.raises(GenericFailureError, match="was removed"):
            recorder.roll()
    assert recorder.files() == []
    assert sum(queue.counters().dropped.values()) == 0


def test_two_threads_that_begin_a_file_both_have_their_packets_in_it(
    loopback: Engine, tmp_path: Path
) -> None:
    queue = loopback.port(0).rx_queue(0)
    loopback.port(0).tx_queue(0).send(frames(200))
    bursts = received(queue, 200)
    packets = sum(map(len, bursts))
    with ThreadPoolExecutor(4) as pool:
        for n in range(100):
            for write in [
                pool.submit(burst.write_pcap, tmp_path, f"race{n}")
                for burst in bursts
                for _ in range(4)
            ]:
                write.result()
            with PcapFile(tmp_path / f"race{n}.pcap") as pcap:
                assert len(pcap) == 4 * packets
    for burst in bursts:
        burst.release()


def test_a_file_that_takes_the_place_of_a_recording_stays(loopback: Engine, tmp_path: Path) -> None:
    queue = loopback.port(0).rx_queue(0)
    other = tmp_path / "other"
    other.write_text("not ours")
    with queue.record(tmp_path) as recorder:
        other.rename(tmp_path / "capture_000000.pcap")
        wait_for(lambda: recorder.snapshot().error != "")
    assert (tmp_path / "capture_000000.pcap").read_text() == "not ours"
