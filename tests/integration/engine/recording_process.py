"""A process that records numbered frames until it is killed."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from daqiri_ophyd.engine import Engine

FRAME = 8000
WINDOW = 2048
BURST = 512


def numbered(first: int, count: int) -> np.ndarray:
    """Frames whose bytes depend on their number, with which the payload begins."""
    numbers = np.arange(first, first + count, dtype="<u4")
    rows = np.repeat((numbers & 0xFF).astype(np.uint8)[:, None], FRAME, axis=1)
    rows[:, 42:46] = numbers.view(np.uint8).reshape(-1, 4)
    return rows


def config() -> dict[str, object]:
    region = {"kind": "host", "num_bufs": 2 * WINDOW, "buf_size": FRAME}
    queue = {"id": 0, "cpu_core": "any", "batch_size": BURST, "timeout_us": 1000}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "log_level": "error",
        "memory_regions": [{"name": "rx", **region}, {"name": "tx", **region}],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {"queues": [{"name": "rx0", "memory_regions": ["rx"], **queue}]},
                "tx": {"queues": [{"name": "tx0", "memory_regions": ["tx"], **queue}]},
            }
        ],
    }


def main(directory: Path, roll_bytes: int, **options: Any) -> None:
    with Engine.open(config()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        with rx.record(directory, roll_bytes=roll_bytes, **options) as recorder:
            sys.stdout.write("recording\n")
            sys.stdout.flush()
            sent = 0
            # Never more in flight than there are buffers: nothing is lost.
            while True:
                if sent - recorder.snapshot().packets <= WINDOW - BURST:
                    sent += tx.send(numbered(sent, BURST))


if __name__ == "__main__":
    options = dict(word.split("=") for word in sys.argv[3:])
    main(Path(sys.argv[1]), int(sys.argv[2]), **options)
