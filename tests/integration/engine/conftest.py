"""Real engines on this machine: loopback in memory, and UDP over 127.0.0.1."""

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpdk_devices import compiled_reflector, on_device, reflected_memif
from free_ports import free_port
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    Burst,
    Engine,
    RxCounters,
    RxQueue,
    TxCounters,
    ethernet,
)

Config = dict[str, Any]

REASONS = [
    "no_packet_buffer",
    "no_burst_buffer",
    "ring_full",
    "kernel",
    "nic",
    "truncated",
    "filtered",
    "flushed",
    "send_error",
    "missed_launch",
    "malformed",
]


def region(name: str, num_bufs: int = 4096, buf_size: int = 2048) -> Config:
    return {"name": name, "kind": "host", "num_bufs": num_bufs, "buf_size": buf_size}


def rx_queue(number: int = 0, **keys: Any) -> Config:
    return {
        "name": f"rx{number}",
        "id": number,
        "cpu_core": "any",
        "batch_size": 64,
        "timeout_us": 1000,
        "memory_regions": ["rx_buffers"],
        **keys,
    }


def tx_queue(number: int = 0, **keys: Any) -> Config:
    return {
        "name": f"tx{number}",
        "id": number,
        "cpu_core": "any",
        "batch_size": 64,
        "memory_regions": ["tx_buffers"],
        **keys,
    }


def data_flow(**match: Any) -> Config:
    """The flow of the frames that tests make, or of all."""
    return {"name": "data", "id": 7, "match": match, "action": {"type": "queue", "id": 0}}


def loopback_config(
    *,
    rx: Config | None = None,
    tx: Config | None = None,
    regions: list[Config] | None = None,
    **common: Any,
) -> Config:
    """A loopback configuration; keyword arguments are keys of its queues and regions."""
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "log_level": "error",
        **common,
        "memory_regions": regions or [region("rx_buffers"), region("tx_buffers", 1024)],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {
                    "queues": [rx_queue(**(rx or {}))],
                    "flows": [data_flow(udp_dst=5000)],
                },
                "tx": {"queues": [tx_queue(**(tx or {}))]},
            }
        ],
    }


@pytest.fixture
def loopback(request: pytest.FixtureRequest) -> Callable[..., Config]:
    """``loopback_config``; with the parameter ``dpdk``, the same on a device of DPDK."""
    if getattr(request, "param", "loopback") == "dpdk":
        return request.getfixturevalue("dpdk")
    return loopback_config


@pytest.fixture(scope="session")
def memif_reflector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_reflector(tmp_path_factory.mktemp("memif_reflector"))


@pytest.fixture
def dpdk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, has_dpdk: None
) -> Iterator[Callable[..., Config]]:
    """``loopback_config``, on a device of DPDK that gives back what is sent on it."""
    device = request.config.getoption("--dpdk-device")
    with contextlib.ExitStack() as servers:

        def build(**keys: Any) -> Config:
            address = device
            if device == "net_memif0":
                program = request.getfixturevalue("memif_reflector")
                folder = tmp_path_factory.mktemp("memif")
                servers.close()
                address = servers.enter_context(reflected_memif(program, folder))
            return on_device(loopback_config(**keys), address)

        yield build


@pytest.fixture
def udp() -> Callable[..., Config]:
    """A configuration of a UDP server ``receiver`` and a client ``sender``."""

    def build(
        *, rx: Config | None = None, tx: Config | None = None, host: str = "127.0.0.1"
    ) -> Config:
        written = f"[{host}]" if ":" in host else host
        address = f"udp://{written}:{free_port('udp', host)}"
        return {
            "version": 1,
            "master_core": 0,
            "stream_type": "socket",
            "log_level": "error",
            "memory_regions": [region("rx_buffers"), region("tx_buffers", 1024)],
            "interfaces": [
                {
                    "name": "receiver",
                    "address": host,
                    "socket_config": {"mode": "server", "local_addr": address},
                    "rx": {"queues": [rx_queue(**{"timeout_us": 0, **(rx or {})})]},
                    "tx": {"queues": [tx_queue()]},
                },
                {
                    "name": "sender",
                    "address": host,
                    "socket_config": {"mode": "client", "remote_addr": address},
                    "rx": {"queues": [rx_queue(timeout_us=0)]},
                    "tx": {"queues": [tx_queue(**(tx or {}))]},
                },
            ],
        }

    return build


@pytest.fixture
def tcp() -> Callable[..., Config]:
    """A configuration of one TCP interface with a queue each way."""

    def build(
        mode: str,
        host: str,
        port: int,
        *,
        buf_size: int = 4096,
        num_bufs: int = 1024,
        batch_size: int = 16,
        **common: Any,
    ) -> Config:
        written = f"[{host}]" if ":" in host else host
        key = "local_addr" if mode == "server" else "remote_addr"
        return {
            "version": 1,
            "stream_type": "socket",
            "master_core": 0,
            "log_level": "off",
            **common,
            "memory_regions": [
                region(name, num_bufs, buf_size) for name in ("rx_buffers", "tx_buffers")
            ],
            "interfaces": [
                {
                    "name": "tcp0",
                    "address": host,
                    "socket_config": {"mode": mode, key: f"tcp://{written}:{port}"},
                    "rx": {"queues": [rx_queue(batch_size=batch_size, timeout_us=0)]},
                    "tx": {"queues": [tx_queue(batch_size=batch_size)]},
                }
            ],
        }

    return build


@pytest.fixture
def tcp_pair(udp: Callable[..., Config]) -> Callable[..., Config]:
    """A configuration of a TCP server ``receiver`` and a client ``sender``."""

    def build(**keys: Any) -> Config:
        address = f"tcp://127.0.0.1:{free_port('tcp')}"
        config = udp(**keys)
        server, client = config["interfaces"]
        server["socket_config"]["local_addr"] = client["socket_config"]["remote_addr"] = address
        return config

    return build


@pytest.fixture
def packet() -> Callable[..., Config]:
    """A configuration of engine ``packet``: ``receiver`` at one end of a cable, ``sender`` at the
    other. Keyword arguments are keys of the queue."""
    core = str(min(os.sched_getaffinity(0)))

    def build(
        *, rx: Config | None = None, tx: Config | None = None, num_bufs: int = 4096, **keys: Any
    ) -> Config:
        return {
            "version": 1,
            "master_core": 0,
            "stream_type": "raw",
            "log_level": "error",
            **keys,
            "memory_regions": [
                region("rx_buffers", num_bufs, 9216),
                region("tx_buffers", 1024, 9216),
            ],
            "interfaces": [
                {
                    "name": "receiver",
                    "address": "far",
                    "rx": {
                        "queues": [rx_queue(**(rx or {}))],
                        "flows": [data_flow(udp_dst=5000)],
                    },
                },
                {
                    "name": "sender",
                    "address": "near",
                    # On one core: a cable of the kernel's keeps the order of each core's frames.
                    "tx": {"queues": [tx_queue(cpu_core=core, **(tx or {}))]},
                },
            ],
        }

    return build


@pytest.fixture
def python() -> Callable[[str], subprocess.Popen[str]]:
    """Start another interpreter with a script; what it prints is piped."""

    def start(script: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-X", "faulthandler", "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def made_frames() -> Callable[..., NDArray[np.uint8]]:
    """Frames with different payloads."""

    def build(
        count: int, size: int = 100, dst_port: int = 5000, src_port: int = 4000
    ) -> NDArray[np.uint8]:
        payloads = np.random.default_rng(count).integers(0, 256, (count, size), dtype=np.uint8)
        payloads[:, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(-1, 4)
        return ethernet.udp_frames(
            payloads,
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=src_port,
            dst_port=dst_port,
        )

    return build


@pytest.fixture
def receive_all() -> Callable[..., list[Burst]]:
    """Receive bursts until so many packets are there."""

    def receive(queue: RxQueue, count: int) -> list[Burst]:
        bursts: list[Burst] = []
        while (got := sum(map(len, bursts))) < count:
            burst = queue.receive(20.0)
            assert burst is not None, f"{got} of {count} packets: {queue.counters()}"
            bursts.append(burst)
        return bursts

    return receive


@pytest.fixture
def wait_until_idle() -> Callable[[Engine], None]:
    """Wait until all packets have been sent and no counter changes."""

    def wait(engine: Engine) -> None:
        for port in engine.ports:
            for queue in port.tx:
                assert queue.wait_sent(20.0)
        before = None
        for _ in range(200):
            now = [queue.counters().received for port in engine.ports for queue in port.rx]
            if now == before:
                return
            before = now
            time.sleep(0.05)
        pytest.fail("the counters do not come to rest")

    return wait


@pytest.fixture
def watch() -> Callable[[Engine], contextlib.AbstractContextManager[None]]:
    """Check the counters of an engine continuously in a separate thread."""

    def check(now: RxCounters | TxCounters, before: RxCounters | TxCounters) -> None:
        assert list(now.dropped) == REASONS
        if isinstance(now, RxCounters) and isinstance(before, RxCounters):
            assert now.received == now.delivered + now.held + now.dropped_total
            assert now.delivered >= before.delivered
            assert now.received >= before.received
        if isinstance(now, TxCounters) and isinstance(before, TxCounters):
            assert now.submitted == now.sent + now.held + now.dropped_total
            assert now.sent >= before.sent
        assert 0 <= now.held
        assert all(now.dropped[reason] >= before.dropped[reason] for reason in REASONS)

    @contextlib.contextmanager
    def watching(engine: Engine) -> Iterator[None]:
        queues = [queue for port in engine.ports for queue in (*port.rx, *port.tx)]
        stopping = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            before = [queue.counters() for queue in queues]
            try:
                while not stopping.is_set():
                    now = [queue.counters() for queue in queues]
                    for pair in zip(now, before, strict=True):
                        check(*pair)
                    before = now
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
        if errors:
            raise errors[0]

    return watching


PACKETS_OF_FRAME = 8


@pytest.fixture
def with_frames() -> Callable[..., Config]:
    """Add a plan ``images`` to a configuration: frames of 8 packets of 64 bytes, (8, 32) uint16.

    What is missing has the value 0x0707; frames wait for their packets without a limit. Keyword
    arguments are keys of the plan.
    """

    def build(config: Config, **keys: Any) -> Config:
        config["memory_regions"].append(region("frames", 512, 16384))
        rx = config["interfaces"][0]["rx"]
        rx.setdefault("flows", [data_flow()])
        rx["reorder_configs"] = [
            {
                "name": "images",
                "reorder_type": "cpu",
                "memory_region": "frames",
                "flow_ids": [7],
                "payload_base": "udp_payload",
                "payload_byte_offset": 4,
                "fill": 7,
                "timeout_us": 0,
                "frame": {"shape": [PACKETS_OF_FRAME, 32], "dtype": "uint16"},
                "method": {
                    "seq_packets_per_batch": {
                        "sequence_number": {
                            "bit_offset": 0,
                            "bit_width": 32,
                            "base": "udp_payload",
                        },
                        "packets_per_batch": PACKETS_OF_FRAME,
                    }
                },
                **keys,
            }
        ]
        return config

    return build


@pytest.fixture
def direct_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system with O_DIRECT, which one in memory may not support."""
    refused = []
    for place in (tmp_path, Path(__file__).parents[3] / "build", Path("/var/tmp")):
        try:
            os.close(os.open(place, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT))
        except OSError as error:
            refused.append(f"{place}: {error.strerror}")
            continue
        with tempfile.TemporaryDirectory(dir=place) as folder:
            yield Path(folder)
        return
    pytest.skip(f"needs a file system with O_DIRECT ({', '.join(refused)})")


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder for files; cases that are written directly need one with O_DIRECT."""
    case = request.node.callspec.params
    writer = case.get("writer", case.get("options", {}).get("writer"))
    return request.getfixturevalue("direct_disk") if writer == "direct" else tmp_path


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB on a block device."""
    disk, image = tmp_path / "disk", tmp_path / "image"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(24 << 20)
    make = ["mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", image]
    subprocess.run(make, check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"needs loop devices: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def break_disk() -> Callable[[Path], None]:
    """From now on, all writes to an ext4 file system fail."""
    shutdown, no_flush = 0x8004587D, 2

    def end(disk: Path) -> None:
        folder = os.open(disk, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, shutdown, no_flush.to_bytes(4, "little"))
        finally:
            os.close(folder)

    return end
