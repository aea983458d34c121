"""Many times start and stop under traffic leaves nothing behind; nor does a failed start."""

import contextlib
import gc
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import DaqiriError, Engine, NotReadyError, PcapFile, Recorder, RxQueue

Build = Callable[..., dict[str, Any]]
Frames = Callable[..., NDArray[np.uint8]]


def threads() -> int:
    """Return the lowest number of threads seen: a joined thread may take a moment to end."""
    seen = []
    for _ in range(10):
        seen.append(len(list(Path("/proc/self/task").iterdir())))
        time.sleep(0.01)
    return min(seen)


def descriptors() -> Counter[str]:
    """Count open descriptors, by kind and path, to identify a leak."""
    found: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[re.sub(r":\[\d+\]$", "", str(descriptor.readlink()))] += 1
    return found


@dataclass(frozen=True)
class Usage:
    """Resources of this process."""

    threads: int
    descriptors: Counter[str]
    mappings: int
    resident_kib: int

    @classmethod
    def now(cls) -> "Usage":
        process = Path("/proc/self")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return cls(
            threads(),
            descriptors(),
            len((process / "maps").read_text().splitlines()),
            int(status["VmRSS"].split()[0]),
        )


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Objects are freed with their last reference, not by the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def datagrams_from_outside(config: dict[str, Any]) -> Iterator[None]:
    """Send to the port of the receiver all the time, with or without a listener."""
    host, port = config["interfaces"][0]["socket_config"]["local_addr"][6:].rsplit(":", 1)
    stopping = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not stopping.wait(0.0005):
                for _ in range(20):
                    sender.sendto(bytes(100), (host, int(port)))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@contextlib.contextmanager
def streams_from_outside(config: dict[str, Any]) -> Iterator[None]:
    """Connect to the receiver and send to it all the time; reconnect when disconnected."""
    host, port = config["interfaces"][0]["socket_config"]["local_addr"][6:].rsplit(":", 1)
    stopping = threading.Event()

    def flood() -> None:
        while not stopping.wait(0.0005):
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, int(port)), 1) as peer,
            ):
                while not stopping.is_set():
                    peer.sendall(bytes(1000))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def send_until_closed(engine: Engine, packets: NDArray[np.uint8]) -> None:
    tx = engine.ports[-1].tx[0]
    with contextlib.suppress(NotReadyError):
        while True:
            tx.send(packets, timeout=20)


def cycle(number: int, config: dict[str, Any], packets: NDArray[np.uint8], folder: Path) -> None:
    with Engine.open(config) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[-1].tx[0]
        sender = threading.Thread(target=send_until_closed, args=(engine, packets), daemon=True)
        sender.start()
        recorder = kept = None
        if number % 2:
            burst = rx.receive(20)
            assert burst is not None
            kept = burst[0]
        else:
            recorder = rx.record(folder, f"cycle{number}")
            while recorder.snapshot().packets == 0:
                assert recorder.snapshot().running
                recorder.wait(0.01)
    sender.join(60)
    assert not sender.is_alive()
    counters, sent = rx.counters(), tx.counters()
    assert counters.received == counters.delivered + counters.held + counters.dropped_total
    assert sent.held == 0
    assert sent.submitted == sent.sent + sent.dropped_total
    if recorder is None:
        assert kept is not None and len(kept)
        assert sum(map(len, rx.bursts(0.0))) == counters.held
    else:
        check_recording(rx, recorder)


def check_recording(rx: RxQueue, recorder: Recorder) -> None:
    """All received packets are in files or were counted; remove the files."""
    recorder.stop()
    assert rx.counters().held == 0
    snapshot = recorder.snapshot()
    assert (snapshot.error, snapshot.running) == ("", False)
    assert snapshot.packets + snapshot.dropped == rx.counters().delivered
    in_files = 0
    for file in recorder.files():
        with PcapFile(file.path) as pcap:
            assert pcap.torn_bytes == 0
            in_files += len(pcap)
        file.path.unlink()
        file.path.with_name(file.path.name + ".json").unlink()
    assert in_files == snapshot.packets


@pytest.mark.parametrize(
    ("kind", "count"),
    # The worker of a ring sends what comes while it stops, which takes longer.
    [("loopback", 100), ("dpdk", 50), ("udp", 100), ("tcp_pair", 100)],
)
def test_many_cycles_under_traffic_leak_nothing(
    kind: str, count: int, request: pytest.FixtureRequest, made_frames: Frames, tmp_path: Path
) -> None:
    packets = made_frames(100)
    config = request.getfixturevalue(kind)()
    outside = {
        "loopback": lambda _: contextlib.nullcontext(),
        "dpdk": lambda _: contextlib.nullcontext(),
        "udp": datagrams_from_outside,
        "tcp_pair": streams_from_outside,
    }[kind]

    def cycles(times: int) -> Usage:
        """Count what remains after the external peers have ended, as their own resources vary."""
        with outside(config):
            for number in range(times):
                cycle(number, config, packets, tmp_path)
        return Usage.now()

    with without_collector():
        before = cycles(count // 5)
        after = cycles(count)
    # What earlier tests left in this process may end meanwhile.
    assert after.threads <= before.threads
    assert not after.descriptors - before.descriptors
    # The allocator maps and unmaps a few arenas; one per cycle would be a leak.
    assert after.mappings - before.mappings < 20
    # A region alone is 8 MiB, so a leaked one would be noticed.
    assert after.resident_kib - before.resident_kib < 6 * 1024


def test_a_start_that_fails_half_way_leaves_nothing(udp: Build) -> None:
    config = udp()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        second = f"udp://127.0.0.1:{taken.getsockname()[1]}"
        config["interfaces"][1]["socket_config"] = {"mode": "server", "local_addr": second}
        # What the first failure leaves for good: the text of messages, and such.
        for _ in range(5):
            with pytest.raises(DaqiriError, match=second.rsplit(":", 1)[1]):
                Engine.open(config)
        with without_collector():
            before = Usage.now()
            for _ in range(20):
                with pytest.raises(DaqiriError):
                    Engine.open(config)
            after = Usage.now()
        assert (after.threads, after.descriptors) == (before.threads, before.descriptors)
        assert after.mappings - before.mappings < 10
        assert after.resident_kib - before.resident_kib < 6 * 1024
        # The first interface's port is free again.
        host, port = config["interfaces"][0]["socket_config"]["local_addr"][6:].rsplit(":", 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, int(port)))
    with Engine.open(config) as engine:
        assert not engine.closed
