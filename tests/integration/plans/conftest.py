"""Engines small enough to overload, a RunEngine, and checks of every document."""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator
from free_ports import free_port
from named_files import names_every_file  # noqa: F401 - a fixture

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.devices import Capture, CaptureTrigger, Daq, TxQueue, make_daq
from daqiri_ophyd.engine import Engine, NotSupportedError, PcapFile, ethernet, load_config


def prepare(tx: TxQueue, description: dict[str, Any]) -> MsgGenerator[None]:
    """Prepare a transmit queue with the packets of a description."""
    yield from bps.prepare(tx, plans.packet_source(description, tx.link_type), wait=True)


def prepare_captures(
    *captures: Capture, files: int = 1, size: int = 10, **described: Any
) -> MsgGenerator[None]:
    """Prepare captures for so many files of so many packets."""
    trigger = CaptureTrigger(number_of_files=files, packets_per_file=size, **described)
    for capture in captures:
        yield from bps.prepare(capture, trigger, group="prepared")
    yield from bps.wait("prepared")


def kick_off(*captures: Capture, stream: str = "primary") -> MsgGenerator[None]:
    """Declare the stream of captures, and kick them off."""
    yield from bps.declare_stream(*captures, name=stream, collect=True)
    yield from bps.kickoff_all(*captures, wait=True)


def collect(*captures: Capture, stream: str = "primary") -> MsgGenerator[None]:
    """Complete captures and collect their rows, with Bluesky's own stub."""
    yield from bps.collect_while_completing(
        captures, captures, flush_period=0.05, stream_name=stream
    )


def fly(
    captures: Iterable[Capture], send: Callable[[], object], stream: str = "primary"
) -> MsgGenerator[None]:
    """Kick off captures, send what they record, and collect their rows."""
    yield from kick_off(*captures, stream=stream)
    send()
    yield from collect(*captures, stream=stream)


def settings(capture: Capture) -> dict[str, Any]:
    """Return the settings of a capture by name."""
    return {name: value["value"] for name, value in capture.read_configuration().items()}


def packets(files: list[Path]) -> int:
    """Count the packets in files."""
    total = 0
    for file in files:
        with PcapFile(file) as pcap:
            total += len(pcap)
    return total


def tcpdump_count(file: Path) -> int:
    """Count the packets that tcpdump reads from a file without warnings."""
    done = subprocess.run(["tcpdump", "-nr", file], capture_output=True, text=True, check=True)
    assert "truncated" not in done.stderr
    return len(done.stdout.splitlines())


def loopback(
    *,
    rx_buffers: int = 8192,
    tx_buffers: int = 4096,
    tx_size: int = 1024,
    timeout_us: int = 500,
    batch: int = 64,
    drops: bool = False,
    start: bool = False,
) -> dict[str, Any]:
    """A loopback engine whose two receive queues have separate regions.

    ``start``: with a flow ``begin`` to the first queue, of packets to port 4999.
    """
    begin = {
        "name": "begin",
        "id": 6,
        "match": {"udp_dst": 4999},
        "action": {"type": "queue", "id": 0},
    }
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "loopback_drops": drops,
        "memory_regions": [
            {"name": "rx", "kind": "host", "num_bufs": rx_buffers, "buf_size": 1024},
            {"name": "spare", "kind": "host", "num_bufs": 1024, "buf_size": 1024},
            {"name": "tx", "kind": "host", "num_bufs": tx_buffers, "buf_size": tx_size},
        ],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {
                    "queues": [
                        {
                            "name": "frames",
                            "id": 0,
                            "cpu_core": "any",
                            "batch_size": batch,
                            "timeout_us": timeout_us,
                            "memory_regions": ["rx"],
                        },
                        {
                            "name": "rest",
                            "id": 1,
                            "cpu_core": "any",
                            "batch_size": batch,
                            "timeout_us": timeout_us,
                            "memory_regions": ["spare"],
                        },
                    ],
                    "flows": [
                        *([begin] if start else []),
                        {
                            "name": "images",
                            "id": 7,
                            "match": {"udp_dst": 5000},
                            "action": {"type": "queue", "id": 0},
                        },
                        {
                            "name": "other",
                            "id": 8,
                            "match": {"udp_dst": "5001-5009"},
                            "action": {"type": "queue", "id": 1},
                        },
                    ],
                },
                "tx": {
                    "queues": [
                        {
                            "name": "out",
                            "id": 0,
                            "cpu_core": "any",
                            "batch_size": batch,
                            "memory_regions": ["tx"],
                        }
                    ]
                },
            }
        ],
    }


@pytest.fixture
def build() -> Callable[..., dict[str, Any]]:
    return loopback


@pytest.fixture
def fixed_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines refuse other flows while they are open, as those of sockets do."""

    def refuse(engine: Engine, config: object) -> None:
        raise NotSupportedError("the flows of this engine are fixed")

    monkeypatch.setattr(Engine, "change_flows", refuse)
    monkeypatch.setattr(Engine, "check_flows", refuse)


@pytest.fixture
def both(make: Callable[..., Daq]) -> tuple[Daq, Capture, Capture]:
    """The captures of two queues of an engine; they get the packets to ports 5000 and 5001."""
    daq = make()
    return daq, daq.port0.rx.frames.capture, daq.port0.rx.rest.capture


@pytest.fixture
def send_to() -> Callable[[Daq, int, int], None]:
    """Send frames to a UDP port, and wait until they have been sent."""

    def send_frames(daq: Daq, port: int, count: int) -> None:
        packets = ethernet.udp_frames(
            (count, 60),
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=4000,
            dst_port=port,
        )
        queue = daq.tx_queue("port0", "out")
        assert queue.send(packets) == count
        assert queue.wait_sent(5.0)

    return send_frames


@pytest.fixture
def send(send_to: Callable[[Daq, int, int], None]) -> Callable[[Daq, int], None]:
    """Send frames to the first receive queue, and wait until they have been sent."""
    return lambda daq, count: send_to(daq, 5000, count)


@pytest.fixture
def profile(captures) -> Iterator[Callable[..., tuple[Daq, Capture, TxQueue]]]:
    """Return the device of a profile on unused ports of this host, and its two ends."""
    made = []

    def make(
        name: str, num_bufs: int = 1024, timeout_us: int = 1000
    ) -> tuple[Daq, Capture, TxQueue]:
        text = profiles.path(name).read_text()
        text = text.replace("num_bufs: 1024", f"num_bufs: {num_bufs}")
        text = text.replace("timeout_us: 1000", f"timeout_us: {timeout_us}")
        text = text.replace("47100", str(free_port("udp")))
        text = text.replace("47200", str(free_port("tcp")))
        daq: Any = make_daq(load_config(yaml.safe_load(text)), "daq", directory=captures)
        made.append(daq)
        if name == "loopback":
            return daq, daq.port0.capture, daq.port0.tx.tx_q0
        return daq, daq.receiver.capture, daq.sender.tx.tx_q0

    yield make
    for daq in made:
        daq.close()
