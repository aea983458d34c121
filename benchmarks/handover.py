"""What handing packets over costs inside the engine: buffers, bursts and rings.

There is no peer: nobody else's rings carry the same. `native/bench/handover.cpp` measures.
"""

from __future__ import annotations

import re
import subprocess
import sys

from programs import engine_program
from runner import Comparison, MissingError, arguments

LINE = re.compile(r"(?P<name>.+?) +[\d.]+ ns a call, +(?P<ns>[\d.]+) ns a packet")


def measure(seconds: float) -> dict[str, float]:
    """Return ns per packet of each part."""
    command = [engine_program("bench_handover"), str(seconds), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return {found["name"]: float(found["ns"]) for found in LINE.finditer(done.stdout)}


def main() -> None:
    """Measure every part in all rounds."""
    args = arguments(__doc__, seconds=0.2, rounds=5)
    comparison = Comparison("handover", "Hand-over inside the engine", __doc__, args)
    try:
        latest = measure(args.seconds)
    except MissingError as error:
        sys.exit(str(error))
    first = next(iter(latest))

    def part(name: str) -> float:
        nonlocal latest
        if name == first:
            latest = measure(args.seconds)
        return latest[name]

    comparison.case(
        "bursts of 1024",
        "ns a packet",
        {name: (lambda name=name: part(name)) for name in latest},
        better="lower",
    )
    comparison.finish()


if __name__ == "__main__":
    main()
