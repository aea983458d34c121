"""A process that records files of every format, with the umask that it is given."""

import os
import sys
import time
from pathlib import Path

from frame_recording_process import config as frame_config
from frame_recording_process import packets_of, pixels
from recording_process import config, numbered

from daqiri_ophyd.engine import Engine


def main(directory: Path) -> None:
    with Engine.open(config()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        formats = {
            "pcap": {"format": "pcap", "writer": "buffered"},
            "direct": {"format": "pcap", "writer": "auto"},
            "raw": {"format": "raw"},
        }
        for prefix, options in formats.items():
            with rx.record(directory, prefix, roll_packets=10, **options) as recorder:
                tx.send(numbered(0, 20))
                while recorder.snapshot().packets < 20:
                    time.sleep(0.001)
        tx.send(numbered(0, 1))
        burst = rx.receive(timeout=10.0)
        assert burst is not None
        with burst:
            burst.write_pcap(directory, "burst")
            burst.write_raw(directory, "burst")
    with Engine.open(frame_config()) as engine:
        port = engine.ports[0]
        with port.reorder["camera"].record(directory, "frames") as frames:
            port.tx[0].send(packets_of(0, pixels(0, 2)))
            while frames.snapshot().frames < 2:
                time.sleep(0.001)


if __name__ == "__main__":
    os.umask(int(sys.argv[2], 8))
    main(Path(sys.argv[1]))
