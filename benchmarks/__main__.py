"""All topics, one after the other: `python benchmarks [--only TOPIC ...] [--save] [--rounds N]`.

What is not named here goes to every topic as it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
TOPICS = (
    "udp_receive",
    "tcp",
    "recorder",
    "reorder",
    "pixels",
    "gpu",
    "gpu_udp",
    "gpu_files",
    "frame_files",
    "capture",
    "packet",
    "dpdk",
    "full_device",
    "receive_scaling",
    "modules",
    "pcap_read",
    "lateness",
    "python_bursts",
    "python_compat",
    "object_files",
    "s3_objects",
    "handover",
    "steering",
    "dead_time",
    "long_scans",
)


def main() -> int:
    """Run the topics; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=TOPICS, default=TOPICS, help="these topics")
    args, others = parser.parse_known_args()
    begun = time.monotonic()
    failed = [
        topic
        for topic in args.only
        if subprocess.run([sys.executable, HERE / f"{topic}.py", *others]).returncode != 0
    ]
    print(f"all topics: {time.monotonic() - begun:.0f} s")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
