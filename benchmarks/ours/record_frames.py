"""Records frames that it sends itself to HDF5 files.

usage: record_frames fill COMPRESSION WRITER FRAMES DIRECTORY [REDUCTION...]
       record_frames count FRAMES
       record_frames follow SECONDS DIRECTORY
       record_frames gpu; then lines `fill ...` and `count ...`, each answered with one of JSON

`fill` writes one file of so many frames, until the disk has it, and prints how long that took; with
reductions (`total`, `maximum`), numbers of each frame are computed.
`count` takes as many frames and writes nothing: what the way to the recorder takes. `follow` writes
files for so long while a process reads along with h5py (SWMR), and prints what both have seen.
There are never more packets under way than buffers: nothing may be lost. With `gpu`, frames are
made and kept in a GPU's memory, by one engine that stays open.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from configurations import Config, queue, region, with_interface

from daqiri_ophyd.devices import reductions
from daqiri_ophyd.engine import (
    DaqiriError,
    Engine,
    FrameReductions,
    Frames,
    NotSupportedError,
    Recorder,
    ethernet,
)

PACKETS, BYTES = 256, 8192
SHAPE = (1024, 1024)
# Frames that a sender may be ahead, and buffers: the direct writer holds up to 16 more.
AHEAD, BUFFERS = 8, 32
ROLL_FRAMES = 2000


def configuration(where: str = "host") -> Config:
    """Return a port whose transmit queue feeds a plan of frames of 2 MiB."""
    size = BYTES + 46
    gpu = where == "gpu"
    kind = "host_pinned" if gpu else "host"
    plan = {
        "name": "camera",
        "reorder_type": "gpu" if gpu else "cpu",
        "memory_region": "frames",
        "flow_ids": [7],
        "payload_base": "udp_payload",
        "payload_byte_offset": 4,
        "frame": {"shape": list(SHAPE), "dtype": "uint16"},
        "timeout_us": 60_000_000,
        "method": {
            "seq_packets_per_batch": {
                "sequence_number": {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"},
                "packets_per_batch": PACKETS,
            }
        },
    }
    regions = [region(name, 8 * PACKETS, size, kind) for name in ("rx", "tx")]
    regions.append(region("frames", BUFFERS, PACKETS * BYTES, "device" if gpu else "host"))
    rx = {
        "queues": [queue("rx0", PACKETS, "rx", timeout_us=1000)],
        "flows": [{"name": "data", "id": 7, "match": {}, "action": {"type": "queue", "id": 0}}],
        "reorder_configs": [plan],
    }
    tx = {"queues": [queue("tx0", PACKETS, "tx")]}
    interface = {"name": "port0", "address": "loopback", "rx": rx, "tx": tx}
    return with_interface(interface, regions, loopback="sw")


def image(number: int) -> np.ndarray:
    """Return a frame like detector data: low counts, noise, its number in the first pixel."""
    pixels = np.random.default_rng(number % 8).poisson(3, SHAPE).astype(np.uint16)
    pixels[0, 0] = number % 2**16
    return pixels


def first_packets() -> list[np.ndarray]:
    """Packets of eight frames, sent in turn: made before the measurement."""
    made = []
    for number in range(8):
        payloads = np.zeros((PACKETS, 4 + BYTES), np.uint8)
        payloads[:, 4:] = image(number).view(np.uint8).reshape(PACKETS, BYTES)
        made.append(
            ethernet.udp_frames(
                payloads,
                src_mac="02:00:00:00:00:01",
                dst_mac="02:00:00:00:00:02",
                src_ip="192.0.2.1",
                dst_ip="192.0.2.2",
                src_port=4000,
                dst_port=5000,
            )
        )
    return made


def packets(made: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Packets of one frame after another."""
    number = 0
    while True:
        rows = made[number % 8]
        sequence = np.arange(number * PACKETS, (number + 1) * PACKETS, dtype=np.uint32)
        rows[:, 42:46] = sequence.astype(">u4").view(np.uint8).reshape(-1, 4)
        rows[0, 46:48] = np.array([number % 2**16], "<u2").view(np.uint8)
        yield rows
        number += 1


def send(
    engine: Engine,
    stream: Iterator[np.ndarray],
    taken: Callable[[], int],
    count: int | None = None,
    until: float = 0,
) -> int:
    """Send so many frames, or until a time; return the number sent once all are received."""
    tx, sent = engine.ports[0].tx[0], 0
    while sent != count and (count is not None or time.monotonic() < until):
        while sent - taken() > AHEAD:
            time.sleep(0.0005)
        tx.send(next(stream))
        sent += 1
    for _ in range(60_000):
        if taken() >= sent:
            return sent
        time.sleep(0.001)
    raise RuntimeError(f"{sent} frames were sent, {taken()} were taken")


def taken_by(recorder: Recorder) -> int:
    """Count frames that a recorder has received, including lost ones."""
    now = recorder.snapshot()
    return now.frames + now.dropped


def fill(
    engine: Engine,
    stream: Iterator[np.ndarray],
    compression: str,
    writer: str,
    count: str,
    directory: str,
    *names: str,
) -> dict:
    """One file."""
    options: dict[str, Any] = {"compression": compression, "writer": writer}
    reduce = FrameReductions({name: getattr(reductions, name)().function for name in names})
    plan = engine.ports[0].reorder["camera"]
    try:  # libraries start before the measurement
        plan.record(directory, "first", max_frames=1, **options).stop()
    except NotSupportedError as error:
        return {"missing": str(error)}
    begun = time.monotonic_ns()
    with plan.record(
        directory, durable=True, max_frames=int(count), reductions=reduce, **options
    ) as recorder:
        send(engine, stream, partial(taken_by, recorder), int(count))
    took = time.monotonic_ns() - begun
    done = recorder.snapshot()
    if done.frames != int(count) or done.missing or done.error:
        raise RuntimeError(f"not all is recorded: {done}")
    stored = recorder.files()[0].path.stat().st_size
    return {"ns": took, "bytes": done.bytes, "stored": stored, "writer": recorder.writer}


def count(engine: Engine, stream: Iterator[np.ndarray], number: str) -> dict:
    """Without a file."""
    taken = 0

    def take(images: Frames) -> None:
        nonlocal taken
        for _ in range(int(number)):
            next(images)
            taken += 1

    begun = time.monotonic_ns()
    with engine.ports[0].reorder["camera"].frames(60.0) as images:
        consumer = threading.Thread(target=take, args=(images,))
        consumer.start()
        send(engine, stream, lambda: taken, int(number))
        consumer.join()
    took = time.monotonic_ns() - begun
    return {"ns": took, "bytes": taken * PACKETS * BYTES}


TASKS: dict[str, Callable[..., dict]] = {"fill": fill, "count": count}


def serve() -> None:
    """Run tasks given on the input, with frames in GPU memory."""
    stream = packets(first_packets())
    try:
        engine = Engine.open(configuration("gpu"))
    except DaqiriError as error:
        print(json.dumps({"missing": f"{error}"}), flush=True)
        return
    with engine:
        print("{}", flush=True)
        for line in sys.stdin:
            task, *words = line.split()
            print(json.dumps(TASKS[task](engine, stream, *words)), flush=True)


def follow(seconds: str, directory: str) -> dict:
    """Record files for the given time; they are removed after recorder and reader have finished."""
    follower = subprocess.Popen(
        [sys.executable, str(Path(__file__).parents[1] / "peers" / "follow_frames.py"), directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    made = first_packets()
    with Engine.open(configuration()) as engine:
        plan = engine.ports[0].reorder["camera"]
        begun = time.monotonic()
        with plan.record(directory, writer="auto", roll_frames=ROLL_FRAMES) as recorder:
            sent = send(
                engine, packets(made), partial(taken_by, recorder), until=begun + float(seconds)
            )
        took = time.monotonic() - begun
        done = recorder.snapshot()
        lost = plan.counters()
    seen = json.loads(follower.communicate(f"{sent}\n")[0])
    return {
        "bytes": done.bytes,
        "ns": int(took * 1e9),
        "frames": done.frames,
        "lost": sent - done.frames + done.missing + lost.lost + done.dropped,
        "seen": seen["frames"],
        "wrong": seen["wrong"],
        "longest": seen["longest"],
    }


def main() -> None:
    """Run the requested measurement."""
    task, *words = sys.argv[1:]
    if task == "gpu":
        serve()
    elif task == "follow":
        print(json.dumps(follow(*words)), flush=True)
    else:
        stream = packets(first_packets())
        with Engine.open(configuration()) as engine:
            print(json.dumps(TASKS[task](engine, stream, *words)), flush=True)


if __name__ == "__main__":
    main()
