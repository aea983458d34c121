"""What it costs to find the flow of a packet among 1 to 4096.

Headers are read, the flow is found, the queue is chosen. Every table has one sort of flows, and
packets that are spread over them. *One by one* is the same work with the flows tried in turn, in
the same round. `native/bench/steering.cpp` measures.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

from programs import engine_program
from runner import Comparison, Measurement, MissingError, Want, arguments

LINE = re.compile(
    r"(?P<sort>.+), (?P<rules>\d+) rules: (?P<ns>[\d.]+) ns a packet, "
    r"one by one (?P<tried>[\d.]+) ns"
)
FLAT = Want("256 flows", ("16 flows",), at_most=1.5)


def measure(seconds: float) -> dict[str, dict[str, Measurement]]:
    """Return ns per packet by kind and number of flows."""
    command = [engine_program("bench_steering"), str(seconds), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for line in LINE.finditer(done.stdout):
        flows = "1 flow" if line["rules"] == "1" else f"{line['rules']} flows"
        notes: dict[str, float | str] = {"one by one": float(line["tried"])}
        found[line["sort"]][flows] = Measurement(float(line["ns"]), notes)
    return found


def main() -> None:
    """Measure every kind in all rounds."""
    args = arguments(__doc__, seconds=0.1, rounds=5)
    comparison = Comparison("steering", "Steering packets by flows", __doc__, args)
    try:
        runs = [measure(args.seconds) for _ in range(args.rounds)]
    except MissingError as error:
        sys.exit(str(error))
    for sort, flows in runs[0].items():
        turns = {name: iter([run[sort][name] for run in runs]) for name in flows}
        comparison.case(
            sort,
            "ns a packet",
            {name: (lambda turn=turn: next(turn)) for name, turn in turns.items()},
            wants=(FLAT,),
            better="lower",
            digits=1,
        )
    comparison.finish()


if __name__ == "__main__":
    main()
