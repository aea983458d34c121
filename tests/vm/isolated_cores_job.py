"""In a guest with an isolated core: a queue on this core, and what the host check says of it."""

import json
import os
import sys
from pathlib import Path

from daqiri_ophyd.engine import Engine, load_config
from daqiri_ophyd.host import check_host

CONFIG = load_config(
    {
        "version": 1,
        "stream_type": "raw",
        "master_core": 0,
        "memory_regions": [{"name": "m", "kind": "host", "num_bufs": 1024, "buf_size": 2048}],
        "interfaces": [
            {
                "name": "p",
                "address": "lo",
                "rx": {
                    "queues": [
                        {
                            "name": "q",
                            "id": 0,
                            "cpu_core": 1,
                            "batch_size": 64,
                            "memory_regions": ["m"],
                        }
                    ]
                },
            }
        ],
    }
)


def cores_of_threads() -> list[str]:
    """Return the cores on which each thread of this process may run."""
    words = [
        dict(line.split(":", 1) for line in path.read_text().splitlines())
        for path in Path("/proc/self/task").glob("*/status")
    ]
    return [each["Cpus_allowed_list"].strip() for each in words]


with Engine.open(CONFIG):
    threads = cores_of_threads()
report = check_host(CONFIG.to_dict(), only=["queue-cores", "cpu-isolation"])
Path(sys.argv[1]).write_text(
    json.dumps(
        {
            "affinity": sorted(os.sched_getaffinity(0)),
            "threads": threads,
            "checks": {each.check: [each.status, each.found] for each in report.results},
        }
    )
)
