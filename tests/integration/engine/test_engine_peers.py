"""Peers and disks that fail while packets are counted."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, PcapFile

Build = Callable[..., dict[str, Any]]
Frames = Callable[..., NDArray[np.uint8]]
WaitUntilIdle = Callable[[Engine], None]
Watch = Callable[[Engine], AbstractContextManager[None]]

# Counts the sent packets in a file, so that the number remains if the process is killed.
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
    udp: Build, watch: Watch, wait_until_idle: WaitUntilIdle, tmp_path: Path
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
                    child.wait(60)
            wait_until_idle(engine)
            for burst in rx.bursts(0.05):
                firsts = burst.gather()[:, :8].copy().view(">u8")[:, 0]
                numbers.setdefault(burst.connection_id, []).extend(firsts.tolist())
            sent = int.from_bytes(count.read_bytes(), sys.byteorder)
            received = rx.counters().received - before
            # It may have been killed between sending and counting.
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


@dataclass(frozen=True)
class Source:
    """Sends packets into the first queue of an engine, and reports when all were counted."""

    engine: Engine
    wait_until_idle: WaitUntilIdle

    def send(self, packets: NDArray[np.uint8]) -> None:
        rx, tx = self.engine.ports[0].rx[0], self.engine.ports[-1].tx[0]
        for first in range(0, len(packets), 50):
            some = packets[first : first + 50]
            before = rx.counters().received_bytes
            assert tx.send(some, timeout=20.0) == len(some)
            # No more than the buffer of any socket holds.
            for _ in range(20_000):
                if rx.counters().received_bytes >= before + some.nbytes:
                    break
                time.sleep(0.001)
        self.wait_until_idle(self.engine)


def recorded_bytes(folder: Path, headers: int) -> tuple[int, bytes]:
    """Return the packets in the files of a folder, and their payloads one after the other."""
    packets, payloads = 0, bytearray()
    for file in sorted(folder.glob("*.pcap")):
        if file.stat().st_size == 0:
            continue
        with PcapFile(file) as pcap:
            assert pcap.torn_bytes == 0
            packets += len(pcap)
            for packet in pcap[:]:
                payloads += packet[headers:].tobytes()
    return packets, bytes(payloads)


@pytest.mark.root
@pytest.mark.parametrize(("kind", "headers"), [("loopback", 0), ("udp", 28), ("tcp_pair", 40)])
def test_a_full_disk_loses_nothing_unseen(
    kind: str,
    headers: int,
    request: pytest.FixtureRequest,
    made_frames: Frames,
    watch: Watch,
    wait_until_idle: WaitUntilIdle,
    small_disk: Path,
) -> None:
    config = request.getfixturevalue(kind)() | {"rx_meta_buffers": 1024}
    sent = made_frames(1000, 500)
    with Engine.open(config) as engine, watch(engine):
        rx, source = engine.ports[0].rx[0], Source(engine, wait_until_idle)
        with rx.record(small_disk, roll_packets=100) as recorder:
            source.send(sent)
        snapshot, counters = recorder.snapshot(), rx.counters()
        assert str(small_disk) in snapshot.error
        assert "No space left" in snapshot.error
        # Receiving continued, and each packet is in a file or counted.
        assert counters.received_bytes == sent.nbytes
        assert kind == "tcp_pair" or counters.received == len(sent)
        assert counters.received == counters.delivered + counters.dropped_total
        assert snapshot.dropped > 0
        assert snapshot.packets + snapshot.dropped == counters.delivered
        in_files, payloads = recorded_bytes(small_disk, headers)
        assert in_files == snapshot.packets
        assert sent.tobytes().startswith(payloads)
        # Once there is free space again, the next recording is like any other.
        for file in small_disk.iterdir():
            file.unlink()
        with rx.record(small_disk, "again") as recorder:
            source.send(sent[:100])
        assert recorder.snapshot().error == ""
        assert recorded_bytes(small_disk, headers)[1] == sent[:100].tobytes()
