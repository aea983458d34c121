"""A process that scans until the disk of its captures is full; it prints the documents' end."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from bluesky import RunEngine
from bluesky.utils import FailedStatus
from ophyd.sim import SynAxis
from preloaded_processes import enter_namespaces

import daqiri_ophyd.plans as plans
from daqiri_ophyd import profiles
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import make_daq


def main(data: Path, kind: str) -> None:
    """Scan; then copy the files of the disk, which disappears with this process."""
    captures = data / "captures"
    # A really full file system, without root permissions.
    enter_namespaces(user=0, mounts=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", captures], check=True)
    engine = RunEngine({}, context_managers=[])
    stops = []
    with (
        Catalog.open(data / "catalog", readable=[captures]) as catalog,
        make_daq(profiles.path("loopback"), "daq", directory=captures) as daq,
    ):
        writer = catalog.writer()
        engine.subscribe(writer)
        engine.subscribe(lambda _, doc: stops.append(doc), "stop")
        capture, tx = daq.port0.capture, daq.port0.tx.tx_q0
        packets = {"count": 300, "size": 900, "rate": 20_000}
        if kind == "step":
            motor = SynAxis(name="motor")
            plan = plans.capture_scan(capture, motor, 0, 1, 10, tx=tx, packets=packets)
        else:
            packets["count"] = 3000
            plan = plans.capture(
                capture, roll_packets=300, tx=tx, packets=packets, flush_period=0.05
            )
        try:
            engine(plan)
        except FailedStatus:
            pass
        assert not writer.backups
    shutil.copytree(captures, data / "copy")
    sys.stdout.write(json.dumps(stops[-1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
