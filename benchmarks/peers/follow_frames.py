"""Reads along with files of frames while they are written: h5py, SWMR.

usage: follow_frames DIRECTORY

Looks at each frame once: the first pixel is the frame's number. Files that are complete and read
are removed. Ends behind the frame whose number comes on stdin, and prints what it has seen.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

import h5py


def main() -> None:
    """Follow."""
    directory = Path(sys.argv[1])
    number = seen = wrong = 0
    last, longest, news = None, 0.0, time.monotonic()
    while last is None or seen < last:
        path = directory / f"frames_{number:06d}.h5"
        if not path.exists():
            time.sleep(0.01)
            last = asked() or last
            continue
        with h5py.File(path, swmr=True) as file:
            data, count = file["entry/data/data"], 0
            while True:
                complete = path.with_name(path.name + ".json").exists()
                data.refresh()
                if len(data) > count:
                    longest, news = max(longest, time.monotonic() - news), time.monotonic()
                for i in range(count, len(data)):
                    wrong += int(data[i, 0, 0]) != seen % 2**16
                    seen += 1
                count = len(data)
                last = asked() or last
                if complete:
                    break
                time.sleep(0.05)
        path.unlink()
        path.with_name(path.name + ".json").unlink()
        number += 1
    print(json.dumps({"frames": seen, "wrong": wrong, "longest": longest}))


def asked() -> int | None:
    """Return the number on stdin, when it is available."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        return None
    line = sys.stdin.readline()
    return int(line) if line.strip() else None


if __name__ == "__main__":
    main()
