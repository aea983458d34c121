"""Records a UDP stream, or a stream of its own, to pcap files.

usage: record udp WRITER HOST SIZE REGION_BYTES DIRECTORY [PORT]
       record packet WRITER INTERFACE SIZE REGION_BYTES DIRECTORY PORT [RECEIVE_PATH]
       record loopback WRITER SIZE REGION_BYTES BYTES DIRECTORY

`udp` records a UDP server's queue, and `packet` the frames of a network interface to a UDP port;
both answer each line with the counters; the line `clear` removes complete files. `loopback` records
what it sends itself, never more at once than the region holds, and prints how long it took until
everything was in files.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Literal, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from answers import answer_lines
from configurations import Config, flow, free_port, queue, region, server, with_interface

from daqiri_ophyd.engine import Engine

MAX_BATCH = 1024
Writer = Literal["buffered", "direct", "auto"]


def packets(name: str, size: int, region_bytes: int) -> Config:
    """Return a memory region."""
    return region(name, max(region_bytes // size, 64), size)


def queue_of(name: str, size: int, region_bytes: int, **keys: Any) -> Config:
    """Return a queue of that region."""
    return queue(name, min(max(region_bytes // size, 64) // 8, MAX_BATCH), name, **keys)


def udp_configuration(host: str, port: int, size: int, region_bytes: int) -> Config:
    """Return a UDP server with one queue."""
    rx = {"queues": [queue_of("rx", size, region_bytes, timeout_us=10_000)]}
    interface = {"name": "port", **server(port, host), "rx": rx}
    return with_interface(interface, [packets("rx", size, region_bytes)])


def packet_configuration(
    interface: str, port: int, size: int, region_bytes: int, receive_path: str = "af_packet"
) -> Config:
    """Return a network interface with a queue for one UDP port, of payloads of `size`."""
    size += 42
    rx = {
        "receive_path": receive_path,
        "flow_isolation": True,
        "queues": [queue_of("rx", size, region_bytes, timeout_us=10_000)],
        "flows": [flow(port)],
    }
    receiver = {"name": "port", "address": interface, "rx": rx}
    return with_interface(receiver, [packets("rx", size, region_bytes)], engine="packet")


def loopback_configuration(size: int, region_bytes: int) -> Config:
    """Return a port whose transmit queue feeds its receive queue."""
    interface = {
        "name": "port",
        "address": "loopback",
        "rx": {"queues": [queue_of("rx", size, region_bytes, timeout_us=10_000)]},
        "tx": {"queues": [queue_of("tx", size, region_bytes)]},
    }
    regions = [packets(name, size, region_bytes) for name in ("rx", "tx")]
    return with_interface(interface, regions, loopback="sw")


def record_received(writer: Writer, configuration: Config, port: int, directory: Path) -> None:
    """Record until the input ends."""
    engine = Engine.open(configuration)
    recorder = engine.port("port").rx[0].record(directory, writer=writer)

    def counters() -> dict[str, float]:
        found = recorder.snapshot()
        if found.error:
            raise RuntimeError(found.error)
        return {"packets": found.packets, "dropped": found.dropped}

    def clear() -> None:
        recorder.roll()
        for file in recorder.files():
            file.path.unlink(missing_ok=True)

    answer_lines(counters, {"clear": clear}, port=port)
    while True:
        time.sleep(3600)


def sync(directory: Path) -> None:
    """Wait until the files are on disk, unless they are in memory."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fdatasync(file.fileno())


def record_loopback(
    writer: Writer, size: int, region_bytes: int, total: int, directory: Path
) -> None:
    """Record `total` bytes of packets."""
    with Engine.open(loopback_configuration(size, region_bytes)) as engine:
        port = engine.port("port")
        batch = port.tx[0].batch_size
        room = port.rx[0].config.batch_size * 4
        sent_at_once = np.random.default_rng(1).integers(0, 256, (batch, size), np.uint8)
        count = total // size // batch * batch
        recorder = port.rx[0].record(directory, writer=writer)
        begun, sent = time.monotonic_ns(), 0
        while sent < count:
            if sent - recorder.snapshot().packets + batch > room:
                time.sleep(50e-6)
                continue
            sent += port.tx[0].send(sent_at_once)
        while recorder.snapshot().packets < count and time.monotonic_ns() - begun < 60e9:
            time.sleep(50e-6)
        recorder.stop()
        sync(directory)
        elapsed = time.monotonic_ns() - begun
        found = recorder.snapshot()
        if found.packets != count or found.error:
            sys.exit(f"{found.packets} of {count} packets recorded; {found.error}")
        print(json.dumps({"bytes": count * size, "ns": elapsed, "cpu": time.process_time()}))


writer = cast(Writer, sys.argv[2])
if sys.argv[1] in ("udp", "packet"):
    where, size, region_bytes, directory = sys.argv[3:7]
    port = int(sys.argv[7]) if len(sys.argv) > 7 else free_port(where)
    configuration = udp_configuration if sys.argv[1] == "udp" else packet_configuration
    receiver = configuration(where, port, int(size), int(region_bytes), *sys.argv[8:])
    record_received(writer, receiver, port, Path(directory))
else:
    size, region_bytes, total, directory = sys.argv[3:]
    record_loopback(writer, int(size), int(region_bytes), int(total), Path(directory))
