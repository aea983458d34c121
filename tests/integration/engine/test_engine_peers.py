"""Peers and disks that fail while packets are counted."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, PcapFile

Build = Callable[..., dict[str, Any]]
Frames = Callable[..., NDArray[np.uint8]]
Settled = Callable[[Engine], None]
Watch = Callable[[Engine], AbstractContextManager[None]]

# Counts in a file what it has sent, so that a death at any moment leaves the number behind.
SENDER = """
import mmap, socket, struct, sys
address, path = (sys.argv[1], int(sys.argv[2])), sys.argv[3]
with open(path, "r+b") as file, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sent = mmap.mmap(file.fileno(), 8)
    number = 0
    while True:
        sender.sendto(struct.pack(">Q", number) + bytes(56), address)
        number += 1
        sent[:] = struct.pack("=Q", number)
"""


def test_a_peer_that_is_killed_and_comes_back(
    udp: Build, watch: Watch, settled: Settled, tmp_path: Path
) -> None:
    config = udp()
    host, port = config["interfaces"][0]["socket_config"]["local_addr"][6:].rsplit(":", 1)
    lives = 4
    with Engine.open(config) as engine, watch(engine):
        rx = engine.ports[0].rx[0]
        numbers: dict[int, list[int]] = {}
        before = 0
        for life in range(lives):
            count = tmp_path / f"sent{life}"
            count.write_bytes(bytes(8))
            with subprocess.Popen([sys.executable, "-c", SENDER, host, port, str(count)]) as child:
                try:
                    while rx.counters().received < before + 2000:
                        assert child.poll() is None
                        for burst in rx.bursts(0.01):
                            firsts = burst.gather()[:, :8].copy().view(">u8")[:, 0]
                            numbers.setdefault(burst.connection_id, []).extend(firsts.tolist())
                            if rx.counters().received >= before + 2000:
                                break
                finally:
                    child.send_signal(signal.SIGKILL)
                    child.wait(20)
            settled(engine)
            for burst in rx.bursts(0.05):
                firsts = burst.gather()[:, :8].copy().view(">u8")[:, 0]
                numbers.setdefault(burst.connection_id, []).extend(firsts.tolist())
            sent = int.from_bytes(count.read_bytes(), sys.byteorder)
            received = rx.counters().received - before
            # It may have died between sending and counting.
            assert received in (sent, sent + 1)
            before += received
        counters = rx.counters()
        assert len(numbers) == lives
        assert all((np.diff(each) > 0).all() for each in numbers.values())
        assert counters.delivered == sum(map(len, numbers.values()))
        assert counters.received == counters.delivered + counters.dropped_total


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "daqiri-test", str(folder)], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_loses_nothing_unseen(
    loopback: Build, made_frames: Frames, watch: Watch, settled: Settled, small_disk: Path
) -> None:
    sent = made_frames(1000, 500)
    with Engine.open(loopback(rx_meta_buffers=1024)) as engine, watch(engine):
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        with rx.record(small_disk, roll_packets=100) as recorder:
            tx.send(sent)
            settled(engine)
        snapshot, counters = recorder.snapshot(), rx.counters()
        assert str(small_disk) in snapshot.error
        assert "No space left" in snapshot.error
        # Reception went on, and each packet is in a file or counted.
        assert counters.received == len(sent)
        assert counters.received == counters.delivered + counters.dropped_total
        assert snapshot.dropped > 0
        assert snapshot.packets + snapshot.dropped == counters.delivered
        in_files = 0
        for file in sorted(small_disk.glob("*.pcap")):
            if file.stat().st_size == 0:
                continue
            with PcapFile(file) as pcap:
                assert pcap.torn_bytes == 0
                rows = pcap.gather()
                assert np.array_equal(rows, sent[in_files : in_files + len(pcap)])
                in_files += len(pcap)
        assert in_files == snapshot.packets
        # Once there is room again, the next recording is as any other.
        for file in small_disk.iterdir():
            file.unlink()
        with rx.record(small_disk, "again") as recorder:
            tx.send(sent[:100])
            settled(engine)
        assert recorder.snapshot().packets == 100
        assert recorder.snapshot().error == ""
