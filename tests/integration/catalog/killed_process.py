"""A process that scans with a catalog until it is killed."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bluesky import RunEngine
from bluesky import plans as bp
from ophyd.sim import SynAxis

import daqiri_ophyd.plans as plans
from daqiri_ophyd import profiles
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.engine import PcapFile


def scan(kind: str, capture: Any, tx: Any, roll_packets: int) -> Any:
    """Return a scan without end."""
    packets = {"count": 100_000, "size": 200, "rate": 2000}
    if kind == "step":
        motor = SynAxis(name="motor")
        packets |= {"count": 600, "rate": 500}
        return plans.capture_scan(capture, motor, 0, 1, 1000, tx=tx, packets=packets)
    return plans.capture(
        capture,
        acquire_time=3600,
        roll_packets=roll_packets,
        tx=tx,
        packets=packets,
        on_drop="ignore",
        flush_period=0.05,
    )


def in_files(captures: Path, kind: str) -> int:
    """Return the packets in files: of a step scan, in that of the present reading."""
    files = list(captures.rglob("*.pcap"))
    if kind == "step":
        files = [file for file in files if not sidecar_path(file).exists()]
    found = 0
    for file in files:
        with PcapFile(file) as pcap:
            found += len(pcap)
    return found


def main(data: Path, kind: str, uri: str, roll_packets: int, batch_size: int) -> None:
    """Capture without end; report and stop when packets are in the open file."""
    engine = RunEngine({}, context_managers=[])
    readable = [data / "captures"]
    if uri:
        catalog = Catalog.connect(uri, readable=readable, backup_directory=data / "backup")
    else:
        catalog = Catalog.open(data / "catalog", readable=readable)
    daq = make_daq(profiles.path("loopback"), "daq", directory=data / "captures")
    engine.subscribe(catalog.writer(batch_size=batch_size))
    capture = daq.port0.capture
    capture.num_packets.put(10)

    # With complete files, once the writer has some.
    stored = threading.Event()
    rows = []

    def count(_name: str, doc: dict[str, Any]) -> None:
        rows.append(doc)
        if kind == "fly" or len(rows) > 3:
            stored.set()

    if kind == "fly" and not roll_packets:
        stored.set()

    def tell() -> None:
        stored.wait()
        catalog.flush()
        while in_files(data / "captures", kind) < 250:
            time.sleep(0.01)
        os.write(sys.stdout.fileno(), b"recording\n")
        # The process that kills this one may be late, after the file was completed.
        os.kill(os.getpid(), signal.SIGSTOP)

    engine(bp.count([daq.port0.rx.rx_q0]))
    catalog.flush()
    for name in ("event", "event_page"):
        engine.subscribe(count, name)
    threading.Thread(target=tell, daemon=True).start()
    engine(scan(kind, capture, daq.port0.tx.tx_q0, roll_packets))


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
