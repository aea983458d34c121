"""Frames of 2 MiB from a GPU's memory to HDF5 files on a disk.

Packets of a loopback stream from Python become frames in the GPU's memory, which are recorded: by
cuFile from there (*mode* says how it does that), or copied to the CPU and written directly. `count`
is that without a file. The limit is a plain loop of as many bytes: a copy of a frame to pinned
memory of the host (cudaMemcpy), then a write of it with O_DIRECT, one after the other. The time
counts until the disk has everything (fdatasync).
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from frame_files import FRAME
from machine import ROOT
from programs import once, script
from recorder import in_folder
from runner import Comparison, Measurement, MissingError, Want, arguments

PLAIN = "limit: copy, then write"


def recorded(layout: str, writer: str, count: int, folder: Path) -> Measurement:
    """MB/s of a recorder of frames in the GPU's memory."""
    command = [*script("ours/record_frames.py"), "fill", layout, "none", writer]
    done = once([*command, str(count), str(folder), "gpu"])
    if done["writer"] != writer:
        raise MissingError(f"the disk takes no writer {writer!r}, only {done['writer']!r}")
    mode = json.loads((folder / "frames_000000.h5.json").read_text()).get("cufile")
    return Measurement(done["bytes"] * 1e3 / done["ns"], {"mode": mode} if mode else {})


def counted(count: int, _folder: Path) -> Measurement:
    """MB/s of frames in the GPU's memory that go nowhere."""
    done = once([*script("ours/record_frames.py"), "count", str(count), "gpu"])
    return Measurement(done["bytes"] * 1e3 / done["ns"])


class Plain:
    """Frames from the GPU to the disk by way of one buffer."""

    def __init__(self, count: int) -> None:
        import cupy
        import numpy as np

        self.count, self.cupy = count, cupy
        self.frames = cupy.random.randint(0, 256, (8, FRAME), cupy.uint8)
        # Of whole pages, as O_DIRECT wants it.
        self.buffer = mmap.mmap(-1, FRAME)
        self.address = np.frombuffer(self.buffer, np.uint8).ctypes.data
        cupy.cuda.runtime.hostRegister(self.address, FRAME, 0)

    def write(self, folder: Path) -> Measurement:
        """MB/s of a file."""
        copy, to_host = self.cupy.cuda.runtime.memcpy, 2
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_DIRECT
            file = os.open(folder / "plain", flags, 0o600)
        except OSError as error:
            raise MissingError(f"O_DIRECT is refused: {error.strerror}") from None
        begun = time.monotonic_ns()
        for number in range(self.count):
            copy(self.address, self.frames[number % 8].data.ptr, FRAME, to_host)
            if os.pwrite(file, self.buffer, number * FRAME) != FRAME:
                raise RuntimeError("a frame was written in part")
        os.fdatasync(file)
        took = time.monotonic_ns() - begun
        os.close(file)
        return Measurement(self.count * FRAME * 1e3 / took)


def main() -> None:
    """Measure one GPU and one disk."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=float, default=2e9, help="of one measurement")
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    args = arguments(__doc__, seconds=10, rounds=5, parser=parser)
    count = max(int(args.bytes) // FRAME, 1)
    try:
        plain = Plain(count)
    except Exception as error:  # noqa: BLE001  # cupy is missing, or its GPU, in many ways
        print(f"gpu_files: left out: {error}")
        return
    comparison = Comparison("gpu_files", "Frames of a GPU to HDF5 files", __doc__, args)

    def on_disk(measure: Callable[[Path], Measurement]) -> Callable[[], Measurement]:
        return partial(in_folder, args.disk, 0, measure)

    for layout in ("contiguous", "chunked"):
        comparison.case(
            layout,
            "MB/s",
            {
                PLAIN: on_disk(plain.write),
                "ours, cufile": on_disk(partial(recorded, layout, "cufile", count)),
                "ours, copied, direct": on_disk(partial(recorded, layout, "direct", count)),
                "count": on_disk(partial(counted, count)),
            },
            wants=(
                Want("ours, cufile", (PLAIN,)),
                Want("ours, copied, direct", (PLAIN,)),
                Want("ours, cufile", ("ours, copied, direct",)),
            ),
            digits=2,
        )
    comparison.finish()


if __name__ == "__main__":
    main()
