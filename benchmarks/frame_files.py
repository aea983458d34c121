"""Frames of 2 MiB to HDF5 files on a disk, and a reader in another process that reads along.

*The writer alone* gets frames that are ready, as a recorder hands them to it: `count` is the same
without a file. The limits are plain O_DIRECT calls of whole frames, eight at once, from the same
program; a plain write(2) loop through the page cache; and fio with O_DIRECT. h5py writes the same
frames from memory. *From packets to the file* adds a loopback stream from Python and the reorder
plan, on the same cores; `count` is that without a file, and `maximum` and `total` compute that
number of each frame as well. The time counts until the disk has everything (fdatasync). Before each
measurement of what uses the page cache, a file of as many bytes is written and
removed. `seen` of the reader are frames that it saw, each with the number that it must have;
`longest` is the longest time without a new one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from machine import ROOT
from programs import engine_program, once, script
from recorder import DIRECT, PLAIN, fio, in_folder, plain_write
from runner import Comparison, Measurement, MissingError, Want, arguments

FRAME = 2 << 20
PWRITE = "limit: plain calls, O_DIRECT"
LZ4 = "bitshuffle-lz4"


def plugins() -> str:
    """Return the folder of HDF5's plugins."""
    try:
        import hdf5plugin
    except ImportError:
        raise MissingError("hdf5plugin is not installed") from None
    return hdf5plugin.PLUGIN_PATH


def rate(done: dict) -> Measurement:
    """MB/s reported by a program."""
    notes = {"cores": done["cpu"] * 1e9 / done["ns"]} if "cpu" in done else {}
    return Measurement(done["bytes"] * 1e3 / done["ns"], notes)


def alone(what: str, count: int, folder: Path) -> Measurement:
    """MB/s of the writer of the engine, for frames before compression."""
    command = [engine_program("bench_frame_writer"), what, str(count), str(folder)]
    return rate(once([*command, plugins()] if what.startswith("compressed") else command))


def h5py_writes(compression: str, count: int, folder: Path) -> Measurement:
    """MB/s of h5py."""
    command = [*script("peers/h5py_frames.py"), compression, str(count)]
    return rate(once([*command, str(folder / "frames0.h5")]))


def recorded(
    compression: str, writer: str, count: int, folder: Path, *, reductions: tuple[str, ...] = ()
) -> Measurement:
    """MB/s of a recorder whose frames come from packets."""
    command = [*script("ours/record_frames.py"), "fill", compression, writer, str(count)]
    done = once([*command, str(folder), *reductions])
    notes = {"compressed to": done["stored"] / done["bytes"]} if compression != "none" else {}
    return Measurement(done["bytes"] * 1e3 / done["ns"], notes)


def counted(count: int, _folder: Path) -> Measurement:
    """MB/s of frames made of packets, without a file."""
    return rate(once([*script("ours/record_frames.py"), "count", str(count)]))


def follow(seconds: float, folder: Path) -> Measurement:
    """MB/s of the recorder while a reader follows."""
    command = [*script("ours/record_frames.py"), "follow", str(seconds), str(folder)]
    done = once(command, timeout=seconds + 120)
    notes = {name: done[name] for name in ("frames", "lost", "seen", "wrong", "longest")}
    return Measurement(done["bytes"] * 1e3 / done["ns"], notes)


def main() -> None:
    """Measure the writer, the complete pipeline, then the reader."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=float, default=512e6, help="of one measurement")
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    args = arguments(__doc__, seconds=10, rounds=5, parser=parser)
    comparison = Comparison("frame_files", "Frames to HDF5 files", __doc__, args)
    count = max(int(args.bytes) // FRAME, 1)

    def cached(measure: Callable[[Path], Measurement]) -> Callable[[], Measurement]:
        return partial(in_folder, args.disk, count * FRAME, measure)

    def direct(measure: Callable[[Path], Measurement]) -> Callable[[], Measurement]:
        return partial(in_folder, args.disk, 0, measure)

    comparison.case(
        "the writer alone",
        "MB/s",
        {
            PWRITE: direct(partial(alone, "pwrite-direct", count)),
            "ours, chunked, direct": direct(partial(alone, "chunked-direct", count)),
            "ours, compressed, direct": direct(partial(alone, "compressed-direct", count)),
            DIRECT: direct(partial(fio, count * FRAME)),
            PLAIN: cached(partial(plain_write, count * FRAME)),
            "ours, chunked": cached(partial(alone, "chunked", count)),
            "h5py, chunked": cached(partial(h5py_writes, "none", count)),
            "h5py, compressed": cached(partial(h5py_writes, LZ4, count)),
            "count": direct(partial(alone, "count", count)),
        },
        wants=(
            Want("ours, chunked, direct", (PWRITE,), at_least=0.7),
            Want("ours, chunked", (PLAIN,), at_least=0.7),
            Want("ours, chunked, direct", ("h5py, chunked",), at_least=1),
            Want("ours, compressed, direct", ("h5py, compressed",), at_least=1),
        ),
        digits=2,
    )
    comparison.case(
        "from packets to the file",
        "MB/s",
        {
            "count": direct(partial(counted, count)),
            "ours, chunked, direct": direct(partial(recorded, "none", "direct", count)),
            "ours, chunked": cached(partial(recorded, "none", "buffered", count)),
            "ours, compressed, direct": direct(partial(recorded, LZ4, "direct", count)),
            "ours, direct, maximum": direct(
                partial(recorded, "none", "direct", count, reductions=("maximum",))
            ),
            "ours, direct, total": direct(
                partial(recorded, "none", "direct", count, reductions=("total",))
            ),
        },
        rounds=min(args.rounds, 3),
    )
    comparison.case(
        f"{args.seconds:g} s with a reader",
        "MB/s",
        {"ours, chunked, direct": direct(partial(follow, args.seconds))},
        rounds=1,
    )
    comparison.finish()


if __name__ == "__main__":
    main()
