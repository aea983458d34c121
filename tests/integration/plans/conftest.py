"""Engines small enough to overload, a RunEngine, and every document checked."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import event_model
import pytest
import yaml
from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky.utils import MsgGenerator

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Capture, Daq, TxQueue, make_daq
from daqiri_ophyd.documents import COUNTER_MIMETYPE
from daqiri_ophyd.engine import PcapFile, frames, load_config


class Documents(list):
    """The documents of runs, each checked against its schema as it comes."""

    def take(self, name: str, doc: dict[str, Any]) -> None:
        event_model.schema_validators[event_model.DocumentNames[name]].validate(doc)
        json.dumps(doc)  # what a server is sent
        self.append((name, doc))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [doc for kind, doc in self if kind == name]

    @property
    def stop(self) -> dict[str, Any]:
        return self.of("stop")[-1]

    def descriptor(self, stream: str = "primary") -> dict[str, Any]:
        return next(doc for doc in self.of("descriptor") if doc["name"] == stream)

    def rows(self, stream: str = "primary") -> list[dict[str, Any]]:
        """Data of the events of a stream, pages unpacked."""
        uid = self.descriptor(stream)["uid"]
        events = []
        for name, doc in self:
            if name == "event_page":
                events += event_model.unpack_event_page(doc)
            elif name == "event":
                events.append(doc)
        events = [event for event in events if event["descriptor"] == uid]
        assert [event["seq_num"] for event in events] == list(range(1, len(events) + 1))
        return [event["data"] for event in events]

    def files(self, stream: str | None = None) -> list[Path]:
        """The files that stream documents name, in order, of one stream or of all."""
        resources = {doc["uid"]: doc for doc in self.of("stream_resource")}
        streams = {doc["uid"]: doc["name"] for doc in self.of("descriptor")}
        users: dict[str, set[str]] = {}
        found = []
        for datum in self.of("stream_datum"):
            resource = resources[datum["stream_resource"]]
            # A writer takes all files of a resource for those of one stream.
            users.setdefault(resource["uid"], set()).add(datum["descriptor"])
            assert len(users[resource["uid"]]) == 1
            if stream not in (None, streams[datum["descriptor"]]):
                continue
            if resource["mimetype"] == COUNTER_MIMETYPE:
                continue
            folder = Path(resource["uri"].removeprefix("file://localhost"))
            indices = datum["indices"]
            for index in range(indices["start"], indices["stop"]):
                found.append(folder / resource["parameters"]["template"].format(index))
        return found


def until(condition: Callable[[], object]) -> MsgGenerator[None]:
    """Let the RunEngine go on until a condition holds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        yield from bps.sleep(0.01)


def prepare(tx: TxQueue, description: dict[str, Any]) -> MsgGenerator[None]:
    """Prepare a transmit queue with the packets of a description."""
    yield from bps.prepare(tx, plans.packet_source(description, tx.link_type), wait=True)


def collect(*captures: Capture) -> MsgGenerator[None]:
    """Complete captures and collect their rows, with Bluesky's own stub."""
    yield from bps.collect_while_completing(
        captures, captures, flush_period=0.1, stream_name="primary"
    )


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
    """Count the packets that tcpdump reads from a file without a complaint."""
    done = subprocess.run(["tcpdump", "-nr", file], capture_output=True, text=True, check=True)
    assert "truncated" not in done.stderr
    return len(done.stdout.splitlines())


@pytest.fixture
def documents() -> Documents:
    return Documents()


@pytest.fixture
def run_engine(documents: Documents) -> RunEngine:
    engine = RunEngine({}, context_managers=[])
    engine.subscribe(documents.take)
    return engine


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    return tmp_path / "captures"


def loopback(
    *,
    rx_buffers: int = 8192,
    tx_buffers: int = 4096,
    timeout_us: int = 500,
    batch: int = 64,
    drops: bool = False,
    start: bool = False,
) -> dict[str, Any]:
    """A loopback engine whose two receive queues have regions of their own.

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
            {"name": "tx", "kind": "host", "num_bufs": tx_buffers, "buf_size": 1024},
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
def make(captures: Path) -> Iterator[Callable[..., Daq]]:
    """Make loopback devices; they are closed at the end."""
    made: list[Daq] = []

    def make_one(**changes: Any) -> Daq:
        made.append(make_daq(loopback(**changes), "daq", directory=captures))
        return made[-1]

    yield make_one
    for daq in made:
        daq.close()


@pytest.fixture
def daq(make: Callable[..., Daq]) -> Daq:
    return make()


@pytest.fixture
def send_to() -> Callable[[Daq, int, int], None]:
    """Send frames to a UDP port, and wait until they have left."""

    def send_frames(daq: Daq, port: int, count: int) -> None:
        packets = frames.udp_frames(
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
    """Send frames to the first receive queue, and wait until they have left."""
    return lambda daq, count: send_to(daq, 5000, count)


@pytest.fixture
def profile(captures) -> Iterator[Callable[..., tuple[Daq, Capture, TxQueue]]]:
    """Return the device of a profile, on ports of this host that are free, and its two ends."""
    made = []

    def make(name: str, num_bufs: int | None = None) -> tuple[Daq, Capture, TxQueue]:
        text = profiles.path(name).read_text()
        if num_bufs is not None:
            text = text.replace("num_bufs: 1024", f"num_bufs: {num_bufs}")
        for used in ("47100", "47200"):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                text = text.replace(used, str(probe.getsockname()[1]))
        daq: Any = make_daq(load_config(yaml.safe_load(text)), "daq", directory=captures)
        made.append(daq)
        if name == "loopback":
            return daq, daq.port0.capture, daq.port0.tx.tx_q0
        return daq, daq.receiver.capture, daq.sender.tx.tx_q0

    yield make
    for daq in made:
        daq.close()


@pytest.fixture
def catalog(
    tmp_path: Path, captures: Path, run_engine: RunEngine, empty_catalog: Path
) -> Iterator[Catalog]:
    """A catalog in which the runs of `run_engine` are stored."""
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    with Catalog.open(tmp_path / "catalog", readable=[captures]) as catalog:
        run_engine.subscribe(catalog.writer())
        yield catalog
