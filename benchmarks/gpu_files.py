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

import machine
from frame_files import FRAME
from machine import ROOT
from programs import Program, script
from recorder import in_folder
from runner import Comparison, Measurement, MissingError, Want, arguments

PLAIN = "limit: copy, then write"
# Frames written to measure the speed of the disk; MB/s if it is unknown.
FIRST = 128
UNKNOWN = 1000


def recorded(program: Program, writer: str, count: int, folder: Path) -> Measurement:
    """MB/s of a recorder of frames in GPU memory."""
    done = program.ask(f"fill none {writer} {count} {folder.absolute()}")
    if done["writer"] != writer:
        raise MissingError(f"the disk takes no writer {writer!r}, only {done['writer']!r}")
    mode = json.loads((folder / "frames_000000.h5.json").read_text()).get("cufile")
    return Measurement(done["bytes"] * 1e3 / done["ns"], {"mode": mode} if mode else {})


def counted(program: Program, count: int) -> Measurement:
    """MB/s of frames in GPU memory that are not written."""
    done = program.ask(f"count {count}")
    return Measurement(done["bytes"] * 1e3 / done["ns"])


class Plain:
    """Frames from the GPU to the disk through one buffer."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError:
            raise MissingError("cupy is not installed") from None
        import numpy as np

        self.cupy = cupy
        self.frames = cupy.random.randint(0, 256, (8, FRAME), cupy.uint8)
        # Whole pages, as O_DIRECT requires.
        self.buffer = mmap.mmap(-1, FRAME)
        self.address = np.frombuffer(self.buffer, np.uint8).ctypes.data
        cupy.cuda.runtime.hostRegister(self.address, FRAME, 0)

    def write(self, count: int, folder: Path) -> Measurement:
        """MB/s of a file."""
        copy, to_host = self.cupy.cuda.runtime.memcpy, 2
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_DIRECT
            file = os.open(folder / "plain", flags, 0o600)
        except OSError as error:
            raise MissingError(f"O_DIRECT is refused: {error.strerror}") from None
        begun = time.monotonic_ns()
        for number in range(count):
            copy(self.address, self.frames[number % 8].data.ptr, FRAME, to_host)
            if os.pwrite(file, self.buffer, number * FRAME) != FRAME:
                raise RuntimeError("a frame was written in part")
        os.fdatasync(file)
        took = time.monotonic_ns() - begun
        os.close(file)
        return Measurement(count * FRAME * 1e3 / took)


def frames_of(args: argparse.Namespace, plain: Plain | None) -> int:
    """Count the frames of a measurement: as many as the plain loop writes in its time."""
    if args.bytes is None and plain is not None:
        try:
            rate = in_folder(args.disk, 0, partial(plain.write, FIRST)).value
        except MissingError:
            rate = UNKNOWN
        args.bytes = rate * 1e6 * args.seconds
    return max(int(args.bytes or UNKNOWN * 1e6 * args.seconds) // FRAME, 1)


def main() -> None:
    """Measure one GPU and one disk."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--bytes", type=float, help="of one measurement, instead of what the limit writes meanwhile"
    )
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    args = arguments(__doc__, seconds=1.2, rounds=5, parser=parser)
    args.disk.mkdir(parents=True, exist_ok=True)
    try:
        program = Program([*script("ours/record_frames.py"), "gpu"])
    except MissingError as error:
        print(f"gpu_files: left out: {error}")
        return
    with program:
        measure(args, program)


def measure(args: argparse.Namespace, program: Program) -> None:
    """Measure the writers."""
    plain, lack = None, ""
    try:
        plain = Plain()
    except Exception as error:  # noqa: BLE001  # cupy is missing, or its GPU, in many ways
        lack = str(error)
    count = frames_of(args, plain)
    comparison = Comparison("gpu_files", "Frames of a GPU to HDF5 files", __doc__, args)
    if gpu := machine.gpu():
        comparison.machine["gpu"] = gpu

    def limit(folder: Path) -> Measurement:
        if plain is None:
            raise MissingError(lack)
        return plain.write(count, folder)

    def ours(writer: str) -> Callable[[], Measurement]:
        return partial(in_folder, args.disk, 0, partial(recorded, program, writer, count))

    comparison.case(
        "chunked",
        "MB/s",
        {
            PLAIN: partial(in_folder, args.disk, 0, limit),
            "ours, cufile": ours("cufile"),
            "ours, copied, direct": ours("direct"),
            "count": partial(counted, program, count),
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
