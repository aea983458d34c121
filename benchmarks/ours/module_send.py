"""module_send PLACE OF PROGRESS MODULE PAYLOAD PACKETS PORT...: sends modules of frames by UDP.

The ports are of modules MODULE, MODULE + 1, and so on. Each line of input is `RATE SECONDS BEGIN
FRAME`: frames a second (0: as fast as possible), when the first is due, ns on CLOCK_MONOTONIC, and
its number. OF programs send in step: they share the file PROGRESS, each at its PLACE.
"""

import json
import socket
import sys
import time

import numpy as np

HEADER = 8
UDP_SEGMENT = 103
MOST_BYTES = 60_000
MOST_SEGMENTS = 60
HERE = "127.0.0.1"
# Frames by which one sender may be ahead of the last one: modules have one trigger.
IN_STEP = 2


def messages_of(module: int, payload: int, packets: int) -> list[np.ndarray]:
    """Return the messages of a module's packets, which the kernel cuts into packets."""
    rows = np.empty((packets, HEADER + payload), np.uint8)
    rows[:, 4:8] = np.arange(packets, dtype=">u4").view(np.uint8).reshape(-1, 4)
    rows[:, HEADER:] = (module + np.arange(packets, dtype=np.uint8))[:, None]
    each = max(1, min(MOST_SEGMENTS, MOST_BYTES // rows.shape[1]))
    return [rows[first : first + each] for first in range(0, packets, each)]


def main() -> None:
    """Send what lines ask for."""
    place, of, progress = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    first, payload, packets, *ports = map(int, sys.argv[4:])
    # Frames that each sender has sent.
    done = np.memmap(progress, np.int64, "r+", shape=(of,))
    modules = []
    for number, port in enumerate(ports):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, HEADER + payload)
        sender.connect((HERE, port))
        modules.append((sender, messages_of(first + number, payload, packets)))
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        words = line.split()
        rate, seconds, begun = float(words[0]), float(words[1]), int(words[2])
        frame = int(words[3])
        done[place] = frame
        sent, now = 0, time.monotonic_ns()
        while now < begun:
            now = time.monotonic_ns()
        while now < begun + seconds * 1e9:
            if rate and now < begun + sent / rate * 1e9:
                now = time.monotonic_ns()
                continue
            if frame >= done.min() + IN_STEP:
                now = time.monotonic_ns()
                continue
            number = np.array([frame], ">u4").view(np.uint8)
            parts = [(sender, part) for sender, module in modules for part in module]
            for sender, part in parts:
                part[:, :4] = number
                sender.send(part)
            frame += 1
            done[place] = frame
            sent += 1
            now = time.monotonic_ns()
        total = sent * packets * len(ports)
        found = {"sent": total, "begun": begun, "ended": now, "next": frame}
        print(json.dumps(found), flush=True)


main()
