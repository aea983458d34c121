"""A process that flies with an embedded catalog until it is killed."""

import sys
import threading
import time
from pathlib import Path

from bluesky import RunEngine
from bluesky import plans as bp

import daqiri_ophyd.plans as plans
from daqiri_ophyd import profiles
from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.devices import make_daq


def main(data: Path, roll_packets: int, batch_size: int) -> None:
    """Capture without end; say so when packets are in the file that is being written."""
    packets = {"count": 100_000, "size": 200, "rate": 2000}
    engine = RunEngine({}, context_managers=[])
    catalog = Catalog.open(data / "catalog", readable=[data / "captures"])
    daq = make_daq(profiles.path("loopback"), "daq", directory=data / "captures")
    engine.subscribe(catalog.writer(batch_size=batch_size))
    capture = daq.port0.capture
    capture.num_packets.put(10)

    # With files that are complete: once the writer has one.
    stored = threading.Event()
    engine.subscribe(lambda *_: stored.set(), "event_page")
    if not roll_packets:
        stored.set()

    def tell() -> None:
        while capture.progress is None or capture.progress.packets < 250:
            time.sleep(0.01)
        stored.wait()
        sys.stdout.write("recording\n")
        sys.stdout.flush()

    engine(bp.count([daq.port0.rx.rx_q0]))
    threading.Thread(target=tell, daemon=True).start()
    engine(
        plans.capture(
            capture,
            acquire_time=3600,
            roll_packets=roll_packets,
            tx=daq.port0.tx.tx_q0,
            packets=packets,
            on_drop="ignore",
            flush_period=0.05,
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
