"""A detector that sends images over a loopback engine, and runs that record them."""

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky import preprocessors as bpp
from named_files import names_every_file  # noqa: F401 - a fixture
from numpy.typing import NDArray
from run_documents import new_run_engine, until
from tiled.client import from_context

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import Daq, FrameDetector, make_daq, reductions
from daqiri_ophyd.engine import ethernet

PACKETS, SHAPE = 8, (8, 32)


def configuration(**plan: Any) -> dict[str, Any]:
    """A loopback engine with reorder plan ``images``: 8 packets are an image of 8 x 32 pixels.

    Packets to port 4999 are of flow ``begin``, which the plan has, too.
    """

    def flow(name: str, number: int, port: int) -> dict[str, Any]:
        action = {"type": "queue", "id": 0}
        return {"name": name, "id": number, "match": {"udp_dst": port}, "action": action}

    sequence = {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"}
    images = {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flow_ids": [6, 7],
        "payload_base": "udp_payload",
        "payload_byte_offset": 4,
        "timeout_us": 10_000_000,
        "frame": {"shape": list(SHAPE), "dtype": "uint16"},
        "method": {
            "seq_packets_per_batch": {"sequence_number": sequence, "packets_per_batch": PACKETS}
        },
    }
    images = {key: value for key, value in (images | plan).items() if value is not None}
    queue = {"id": 0, "cpu_core": "any", "batch_size": 8, "timeout_us": 500}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            {"name": "rx", "kind": "host", "num_bufs": 4096, "buf_size": 256},
            {"name": "tx", "kind": "host", "num_bufs": 2048, "buf_size": 256},
            {"name": "frames", "kind": "host", "num_bufs": 64, "buf_size": 4096},
        ],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {
                    "queues": [{"name": "q", "memory_regions": ["rx"], **queue}],
                    "flows": [flow("begin", 6, 4999), flow("data", 7, 5000)],
                    "reorder_configs": [images],
                },
                "tx": {
                    "queues": [
                        {
                            "name": "out",
                            "id": 0,
                            "cpu_core": "any",
                            "batch_size": 8,
                            "memory_regions": ["tx"],
                        }
                    ]
                },
            }
        ],
    }


def image(batch: int) -> NDArray[np.uint16]:
    """Return the image with this number."""
    return np.random.default_rng(batch).integers(0, 1 << 16, SHAPE, np.uint16)


def images(batches: Any) -> NDArray[np.uint16]:
    """Return the images with these numbers."""
    numbers = np.asarray(batches)
    return np.array([image(int(batch)) for batch in numbers.flat]).reshape(*numbers.shape, *SHAPE)


class Source:
    """Sends images, one after the other; their numbers are those of their batches."""

    def __init__(self, daq: Daq, port: str = "port0", queue: str = "out") -> None:
        self._daq = daq
        self._port, self._queue = port, queue
        self._end: threading.Event | None = None
        self.next = 0

    def send(self, count: int = 1, *, without: tuple[int, ...] = (), port: int = 5000) -> None:
        """Send so many images, without some of their packets, to a UDP port."""
        kept = [slot for slot in range(PACKETS) if slot not in without]
        queue = self._daq.tx_queue(self._port, self._queue)
        for batch in range(self.next, self.next + count):
            numbers = (batch * PACKETS + np.array(kept)).astype(">u4")
            pixels = self.image(batch).view(np.uint8).reshape(PACKETS, -1)[kept]
            packets = ethernet.udp_frames(
                np.hstack([numbers.view(np.uint8).reshape(-1, 4), pixels]),
                src_mac="02:00:00:00:00:01",
                dst_mac="02:00:00:00:00:02",
                src_ip="192.0.2.1",
                dst_ip="192.0.2.2",
                src_port=4000,
                dst_port=port,
            )
            assert queue.send(packets) == len(kept)
        self.next += count
        assert queue.wait_sent(5.0)

    def image(self, batch: int) -> NDArray[np.uint16]:
        """Return the image to send with this number."""
        return image(batch)

    def start(self, period: float = 0.005) -> None:
        """Send an image at a time until `stop`."""
        end = self._end = threading.Event()

        def run() -> None:
            while not end.wait(period):
                self.send()

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def stop(self) -> None:
        """Stop sending."""
        if self._end is not None:
            self._end.set()
            self._thread.join()
            self._end = None


@pytest.fixture
def build() -> Callable[..., dict[str, Any]]:
    return configuration


@pytest.fixture
def detector(daq: Daq) -> FrameDetector:
    return daq.port0.frames.images


@pytest.fixture
def source(daq: Daq) -> Iterator[Source]:
    daq.open()
    source = Source(daq)
    yield source
    source.stop()


def recorded(detector: FrameDetector, frames: int) -> Any:
    """Wait in a plan until a recording has so many frames."""
    yield from until(lambda: detector.progress is not None and detector.progress.frames >= frames)


def fly(detector: FrameDetector, motion: Iterable[Any] = (), prepared: int = 0) -> Any:
    """A fly scan during which `motion` runs."""
    if prepared:
        yield from bps.prepare(detector, prepared, wait=True)
    yield from bps.open_run()
    yield from bps.declare_stream(detector, name="primary", collect=True)
    yield from bps.kickoff(detector, wait=True)
    yield from motion
    yield from bps.collect_while_completing(
        [detector], [detector], flush_period=0.05, stream_name="primary"
    )
    yield from bps.close_run()


@dataclass(frozen=True)
class Recorded:
    """A folder with ``catalog`` and ``captures``, and its runs."""

    folder: Path
    packets: str  # in pcap files
    scan: str  # frames in events
    flight: str  # frames without events

    def copy(self, folder: Path) -> "Recorded":
        """Copy it, as ``cp -r`` does."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Recorded(folder, self.packets, self.scan, self.flight)

    @property
    def catalog(self) -> Path:
        return self.folder / "catalog"

    @property
    def captures(self) -> Path:
        return self.folder / "captures"


@pytest.fixture(scope="package", name="recorded")
def recorded_folder(tmp_path_factory: pytest.TempPathFactory, empty_catalog: Path) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded") / "experiment"
    captures = folder / "captures"
    shutil.copytree(empty_catalog, folder / "catalog")
    daq = make_daq(configuration(), "daq", directory=captures)
    detector: FrameDetector = daq.port0.frames.images
    detector.reductions = {"total": reductions.total()}

    def motion() -> Any:
        source.send(5)
        yield from bps.null()

    with (
        Catalog.open(folder / "catalog", readable=[captures]) as catalog,
        new_run_engine() as engine,
        daq.open(),
    ):
        engine.subscribe(catalog.writer())
        source = Source(daq)
        source.start()
        (scan,) = engine(bp.count([detector], 3))
        (packets,) = engine(plans.capture(daq.port0.capture, 40))
        source.stop()
        (flight,) = engine(bpp.stage_wrapper(fly(detector, motion(), prepared=5), [detector]))
        from_context(catalog.client.context).write_array([1, 2, 3], key="own")
    return Recorded(folder, packets, scan, flight)


def take_reading(detector: FrameDetector, source: Source) -> Any:
    """Trigger a detector, send it a frame, and read it."""
    yield from bps.trigger(detector, group="reading")
    source.send(1)
    yield from bps.wait("reading")
    yield from bps.create()
    yield from bps.read(detector)
    yield from bps.save()
