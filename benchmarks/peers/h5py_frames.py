"""Writes frames to one HDF5 file with h5py, until the disk has it.

usage: h5py_frames LAYOUT COMPRESSION FRAMES PATH
"""

from __future__ import annotations

import json
import os
import sys
import time

import h5py
import hdf5plugin
import numpy as np

SHAPE = (1024, 1024)


def main() -> None:
    """Write."""
    layout, compression, count, path = sys.argv[1:]
    images = [np.random.default_rng(i).poisson(3, SHAPE).astype(np.uint16) for i in range(8)]
    how = {} if layout == "contiguous" else {"chunks": (1, *SHAPE), "maxshape": (None, *SHAPE)}
    if compression != "none":
        how |= hdf5plugin.Bitshuffle(cname="lz4")
    begun = time.monotonic_ns()
    with h5py.File(path, "w", libver="latest") as file:
        frames = int(count) if layout == "contiguous" else 0
        data = file.create_dataset("data", (frames, *SHAPE), "u2", **how)
        for i in range(int(count)):
            if layout != "contiguous":
                data.resize(i + 1, 0)
            data[i] = images[i % 8]
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    took = time.monotonic_ns() - begun
    print(json.dumps({"ns": took, "bytes": int(count) * images[0].nbytes}))


if __name__ == "__main__":
    main()
