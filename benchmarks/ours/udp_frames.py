"""udp_frames PAYLOAD cpu|gpu|copied: takes frames of UDP packets, those of peers_udp_send.

`cpu`: a plan on the CPU, frames in its memory; `copied`: those, each copied to a GPU with cupy;
`gpu`: a plan on a GPU, frames in its memory.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from answers import answer_lines
from configurations import Config, free_port, queue, region, server, with_interface

from daqiri_ophyd.engine import DaqiriError, Engine, Frame

HEADER = 48
FRAME = 1 << 20
REGION = 64 << 20
FRAMES = 64
BATCH = 256


def configuration(port: int, payload: int, on_gpu: bool) -> Config:
    """Return a UDP server whose packets become frames of about 1 MiB."""
    size = payload + HEADER
    packets = FRAME // size

    def field(offset: int, width: int) -> dict[str, Any]:
        return {"bit_offset": offset, "bit_width": width, "base": "udp_payload"}

    plan = {
        "name": "frames",
        "reorder_type": "gpu" if on_gpu else "cpu",
        "memory_region": "frames",
        "flow_ids": [1],
        "payload_base": "udp_payload",
        "payload_byte_offset": HEADER,
        "timeout_us": 30_000,
        "frame": {"shape": [packets, payload]},
        "method": {
            "batch_packet_number": {
                # The number of the heap, and the offset in it, without the bits below the size of a
                # payload.
                "batch_number": field(96, 32),
                "packet_number": field(224, 33 - payload.bit_length()),
                "packets_per_batch": packets,
            }
        },
    }
    rx = {
        "queues": [queue("rx0", BATCH, "packets", timeout_us=1000)],
        "flows": [{"name": "all", "id": 1, "match": {}, "action": {"type": "queue", "id": 0}}],
        "reorder_configs": [plan],
    }
    regions = [
        region("packets", REGION // size, size, "host_pinned" if on_gpu else "host"),
        region("frames", FRAMES, FRAME, "device" if on_gpu else "host"),
    ]
    return with_interface({"name": "receiver", **server(port), "rx": rx}, regions)


def check(frame: Frame) -> None:
    """Raise an error unless each payload is as sent, in its place."""
    data = np.asarray(frame.data.get() if hasattr(frame.data, "get") else frame.data)
    wanted = np.arange(len(data)).astype(np.uint8)[:, np.newaxis]
    if frame.missing == 0 and (data != wanted).any():
        raise RuntimeError("a frame differs from what was sent")


def main() -> None:
    """Receive frames until the input ends."""
    payload, how = int(sys.argv[1]), sys.argv[2]
    port = free_port()
    cupy: Any = None
    try:
        if how == "copied":
            import cupy

            cupy.cuda.runtime.getDeviceCount()
        engine = Engine.open(configuration(port, payload, how == "gpu"))
    except (DaqiriError, ImportError, RuntimeError) as error:
        print(json.dumps({"missing": f"{error}"}), flush=True)
        return
    counts = {"packets": 0, "latest": 0}
    packets = FRAME // (payload + HEADER)
    first = True
    with engine.port("receiver").reorder["frames"].frames() as taken:
        answer_lines(lambda: counts, port=port)
        for frame in taken:
            if first:
                check(frame)
                first = False
            if cupy is not None:
                cupy.asarray(frame.data)
            counts["packets"] += packets - frame.missing
            counts["latest"] = time.monotonic_ns()


main()
