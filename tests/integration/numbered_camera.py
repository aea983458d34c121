"""A camera on loopback whose packets have the number of the image, then their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - has h5py read compressed frames
import numpy as np
from numpy.typing import NDArray
from waiting import wait_for

from daqiri_ophyd.engine import Engine, RecordedFile, ReorderPlan, ethernet

PACKETS, BYTES = 4, 512


def loopback(packets: int = PACKETS, size: int = BYTES, buffers: int = 32, **plan: Any) -> Any:
    """A camera whose packets have the number of the image, then their own."""

    def bits(at: int) -> dict[str, Any]:
        return {"bit_offset": at, "bit_width": 32, "base": "udp_payload"}

    def region(name: str, num_bufs: int, buf_size: int) -> dict[str, Any]:
        return {"name": name, "kind": "host", "num_bufs": num_bufs, "buf_size": buf_size}

    queue = {"id": 0, "cpu_core": "any", "batch_size": 64}
    received = {**queue, "name": "rx", "timeout_us": 1000, "memory_regions": ["in"]}
    number = {"batch_number": bits(0), "packet_number": bits(32), "packets_per_batch": packets}
    plan = {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "images",
        "flow_ids": [1],
        "payload_base": "udp_payload",
        "payload_byte_offset": 8,
        "frame": {"shape": [packets, size], "dtype": "uint8"},
        "method": {"batch_packet_number": number},
    } | plan
    flow = {"name": "data", "id": 1, "match": {"udp_dst": 6000}}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [
            region("in", 4096, 1024),
            region("images", buffers, packets * 1024),
            region("out", 4096, 1024),
        ],
        "interfaces": [
            {
                "name": "camera",
                "address": "loopback",
                "rx": {
                    "queues": [received],
                    "flows": [{**flow, "action": {"type": "queue", "id": 0}}],
                    "reorder_configs": [plan],
                },
                "tx": {"queues": [{**queue, "name": "tx", "memory_regions": ["out"]}]},
            }
        ],
    }


def numbered_packets(
    images: Any, slots: Any, values: int | NDArray[np.uint8], size: int
) -> NDArray[np.uint8]:
    """Return a packet for each image and slot; all bytes of its payload have the value."""
    rows = np.empty((len(images), 8 + size), np.uint8)
    rows[:] = np.reshape(values, (-1, 1))
    rows[:, :4] = np.array(images, ">u4").view(np.uint8).reshape(-1, 4)
    rows[:, 4:8] = np.array(slots, ">u4").view(np.uint8).reshape(-1, 4)
    mac = "02:00:00:00:00:01"
    return ethernet.udp_frames(
        rows,
        src_mac=mac,
        dst_mac=mac,
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=6000,
        dst_port=6000,
    )


class Camera:
    """An engine with the plan, and what sends to it."""

    def __init__(self, engine: Engine, packets: int, size: int) -> None:
        self.engine, self.packets, self.size = engine, packets, size
        self.plan: ReorderPlan = engine.ports[0].reorder["images"]
        self.sent = 0

    def packets_of(self, images: Any, value: int = 0) -> NDArray[np.uint8]:
        slots = np.tile(np.arange(self.packets), len(images))
        return numbered_packets(np.repeat(images, self.packets), slots, value, self.size)

    def send(self, images: Any, value: int = 0, lost: tuple[int, ...] = ()) -> None:
        """Send the packets of images, without some, and wait until the plan has them."""
        packets = np.delete(self.packets_of(images, value), list(lost), 0)
        assert self.engine.ports[0].tx[0].send(packets, timeout=60.0) == len(packets)
        self.sent += len(packets)
        wait_for(lambda: self.plan.counters().packets == self.sent)


@contextmanager
def camera(packets: int = PACKETS, size: int = BYTES, **plan: Any) -> Iterator[Camera]:
    with Engine.open(loopback(packets, size, **plan)) as engine:
        yield Camera(engine, packets, size)


def together(files: list[RecordedFile], name: str) -> NDArray[Any]:
    rows = []
    for each in files:
        with h5py.File(each.path) as file:
            rows.append(file["entry/data"][name][:])
    return np.concatenate(rows)
