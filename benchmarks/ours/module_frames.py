"""module_frames MODULES PAYLOAD PACKETS THREADS PORT CORE [alone]: takes frames of modules.

Each module has a UDP socket, at PORT and the following ones; THREADS threads read them, on CORE and
the following ones, unpinned where the host has no such core. `alone`: the packets are received and
released, without a reorder plan.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from answers import answer_lines
from configurations import Config, queue, region, server, with_interface

from daqiri_ophyd.engine import Engine, RxQueue

HEADER = 8
REGION = 256 << 20
# Those that wait for this program, besides the window: a thread waits where there is none.
FRAMES = 256
BATCH = 256


def field(offset: int) -> dict[str, Any]:
    """Return a number of 32 bits in a packet."""
    return {"bit_offset": offset, "bit_width": 32, "base": "udp_payload"}


def configuration(
    modules: int, payload: int, packets: int, threads: int, port: int, core: int
) -> Config:
    """Return a socket for each module, and a plan with the flows of all."""
    size = HEADER + payload

    def interface(number: int) -> Config:
        name = f"packets{number}"
        received = queue("rx", BATCH, name, cpu_core=core + number % threads, timeout_us=1000)
        flow = {"name": "data", "id": number + 1, "action": {"type": "queue", "id": 0}}
        rx = {"queues": [received], "flows": [flow]}
        return {"name": f"module{number}", **server(port + number), "rx": rx}

    plan = {
        "name": "frames",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flows": [f"module{number}/data" for number in range(modules)],
        "flow_stride": packets,
        "payload_base": "udp_payload",
        "payload_byte_offset": HEADER,
        "timeout_us": 100_000,
        # Threads may be apart by some frames.
        "window": 32,
        "frame": {"shape": [modules * packets, payload]},
        "method": {
            "batch_packet_number": {
                "batch_number": field(0),
                "packet_number": field(32),
                "packets_per_batch": modules * packets,
            }
        },
    }
    regions = [region(f"packets{i}", REGION // modules // size, size) for i in range(modules)]
    regions.append(region("frames", FRAMES, modules * packets * size))
    first, *others = (interface(number) for number in range(modules))
    config = with_interface(first, regions, reorder_configs=[plan])
    config["interfaces"] += others
    return config


def release_all(receiver: RxQueue, counts: dict[str, int]) -> None:
    """Count and release packets."""
    while True:
        burst = receiver.receive(timeout=1)
        if burst is None:
            continue
        counts["packets"] += len(burst)
        burst.release()
        counts["latest"] = time.monotonic_ns()


def main() -> None:
    """Receive until the input ends."""
    alone = sys.argv[-1] == "alone"
    modules, payload, packets, threads, port, core = map(int, sys.argv[1:7])
    config = configuration(modules, payload, packets, threads, port, core)
    if alone:
        del config["reorder_configs"]
        config["memory_regions"].pop()
    engine = Engine.open(config)
    if alone:
        counted = [{"packets": 0, "latest": 0} for _ in engine.ports]
        for each, counts in zip(engine.ports, counted, strict=True):
            threading.Thread(target=release_all, args=(each.rx[0], counts), daemon=True).start()
        answer_lines(
            lambda: {
                "packets": sum(each["packets"] for each in counted),
                "latest": max(each["latest"] for each in counted),
            }
        )
        threading.Event().wait()
    counts = {"packets": 0, "latest": 0}
    wanted = (np.arange(modules)[:, None] + np.arange(packets)).astype(np.uint8).reshape(-1, 1)
    with engine.reorder["frames"].frames() as taken:
        answer_lines(lambda: counts)
        for number, frame in enumerate(taken):
            if number == 0 and frame.missing == 0 and (frame.data != wanted).any():
                raise RuntimeError("a frame differs from what was sent")
            counts["packets"] += modules * packets - frame.missing
            counts["latest"] = time.monotonic_ns()


main()
