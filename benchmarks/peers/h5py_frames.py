"""Writes frames to one HDF5 file with h5py, one chunk per frame, until the disk has it.

usage: h5py_frames COMPRESSION FRAMES PATH
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
    compression, count, path = sys.argv[1:]
    images = [np.random.default_rng(i).poisson(3, SHAPE).astype(np.uint16) for i in range(8)]
    how = hdf5plugin.Bitshuffle(cname="lz4") if compression != "none" else {}
    begun = time.monotonic_ns()
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset(
            "data", (0, *SHAPE), "u2", chunks=(1, *SHAPE), maxshape=(None, *SHAPE), **how
        )
        for i in range(int(count)):
            data.resize(i + 1, 0)
            data[i] = images[i % 8]
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    took = time.monotonic_ns() - begun
    print(json.dumps({"ns": took, "bytes": int(count) * images[0].nbytes}))


if __name__ == "__main__":
    main()
