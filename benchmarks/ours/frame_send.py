"""frame_send DEVICE SIZE PORT: a Python program that sends frames through the engine.

It sends as many frames as a line says, and answers when all have been sent.
"""

import json
import sys
import time

import numpy as np
from configurations import Config, queue, region, with_interface

from daqiri_ophyd.engine import Engine, ethernet

BATCH = 64


def configuration(device: str, size: int) -> Config:
    """Return a port with one transmit queue."""
    tx = {"queues": [queue("tx0", BATCH, "packets")]}
    interface = {"name": "sender", "address": device, "tx": tx}
    return with_interface(interface, [region("packets", 8192, size)], engine="packet")


def main() -> None:
    """Answer lines."""
    device, size, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Engine.open(configuration(device, size)) as engine:
        sender = engine.ports[0].tx[0]
        print("{}", flush=True)
        for line in sys.stdin:
            count = int(line)
            packets = ethernet.udp_frames(
                np.zeros((count, size - 42), np.uint8),
                src_mac="02:00:00:00:00:01",
                dst_mac="02:00:00:00:00:02",
                src_ip="192.0.2.1",
                dst_ip="192.0.2.2",
                src_port=4000,
                dst_port=port,
            )
            begun = time.monotonic_ns()
            sender.send(packets)
            if not sender.wait_sent(60):
                raise SystemExit("not all frames left within a minute")
            print(json.dumps({"begun": begun, "sent": sender.counters().sent}), flush=True)


if __name__ == "__main__":
    main()
