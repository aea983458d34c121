"""A process that records frames of modules with columns, until it is killed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numbered_camera import Camera, camera
from numpy.typing import NDArray
from waiting import wait_for

ROW = 64


def _modules(rows: int, lower: int) -> dict[str, Any]:
    """Return an image of two modules of so many rows, with a gap; the lower one is upside down."""
    positions = [{"origin": [0, 0]}, {"origin": [lower, 0], "flip": "rows"}]
    modules = {"shape": [rows, ROW], "positions": positions}
    return {"shape": [lower + rows, ROW], "dtype": "uint8", "modules": modules}


def _method(packets: int) -> dict[str, Any]:
    numbers = [{"bit_offset": at, "bit_width": 32, "base": "udp_payload"} for at in (0, 32)]
    keys = dict(zip(("batch_number", "packet_number"), numbers, strict=True))
    return {"batch_packet_number": {**keys, "packets_per_batch": packets}}


PLAN: dict[str, Any] = {
    "payload_byte_offset": 8,
    "columns": {
        "pulse_id": {"bit_offset": 64, "bit_width": 32, "base": "udp_payload"},
        "hits": {"bit_offset": 96, "bit_width": 8, "base": "udp_payload", "from": "sum"},
    },
    "frame": _modules(2, 4),
    "method": _method(4),
    "modes": {"roi": {"frame": _modules(1, 2), "method": _method(2)}},
}
ROWS = {"": (0, 1, 5, 4), "roi": (0, 2)}  # of packets


def image(mode: str, number: int, lost: tuple[int, ...] = ()) -> NDArray[np.float32]:
    """Return an image whose packets have its number; NaN where no packet is."""
    made = np.full((6 if not mode else 3, ROW), np.nan, np.float32)
    made[[row for slot, row in enumerate(ROWS[mode]) if slot not in lost]] = number
    return made


def columns(mode: str, number: int, lost: tuple[int, ...] = ()) -> dict[str, int]:
    return {"pulse_id": number * 0x01010101, "hits": number * (len(ROWS[mode]) - len(lost))}


@contextmanager
def opened(mode: str = "") -> Iterator[Camera]:
    """Open the camera in a mode."""
    with camera(len(ROWS[mode]), ROW, **(PLAN | {"timeout_us": 100_000})) as made:
        made.plan.set_mode(mode)
        yield made


def main(folder: Path, mode: str) -> None:
    """Report when seven images are in files; packet 1 of numbers 3 and 6 is lost."""
    with opened(mode) as made, made.plan.record(folder, roll_frames=3) as recorder:
        for number in range(1, 8):
            made.send([number], number, (1,) if number in (3, 6) else ())
        # Of the third file; those before it are complete.
        wait_for(lambda: recorder.snapshot().frames == 7 and recorder.snapshot().flushed == 1)
        sys.stdout.write("recorded\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
