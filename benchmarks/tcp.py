"""TCP on 127.0.0.1: bytes of messages of one size from one core to another.

The bare loop makes one `send` call a message and reads into a ring of memory, as much at once as a
packet buffer of the engine's receiver holds: a message, at least 64 KiB. iperf3 reads and writes
messages. A rate counts from the first byte sent until the last one has reached the consumer.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import time
from functools import partial
from pathlib import Path

from loss_free import settled
from programs import Program, built, cores, installed
from runner import Comparison, Measurement, Want, arguments

SIZES = {"1000 B": 1000, "8000 B": 8000, "64 KiB": 1 << 16, "1 MiB": 1 << 20}
RING = 64 << 20
READ = 1 << 16


def stream(receiving: list[str], sending: list[str], seconds: float) -> Measurement:
    """Gb/s from one program to the other, which gets the port as its first argument."""
    sender_core, receiver_core = cores()
    with Program(receiving, receiver_core) as receiver:
        program, *rest = sending
        with Program([program, str(receiver.ready["port"]), *rest], sender_core) as sender:
            sender.ask("0.05")  # the window has grown by now
            before = settled(receiver, "bytes")
            sent = sender.ask(str(seconds))
            after = settled(receiver, "bytes")
    received = after["bytes"] - before["bytes"]
    used = after["cpu"] - before["cpu"]
    notes: dict[str, float | str] = {"receiver's CPU, ns/kB": used * 1e12 / max(received, 1)}
    return Measurement(received * 8 / (after["latest"] - sent["begun"]), notes)


def listening(port: int) -> bool:
    """Whether a program listens on the port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(
        line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines
    )


def iperf3(size: int, seconds: float) -> Measurement:
    """Gb/s of iperf3, which measures whole seconds."""
    program = installed("iperf3")
    sender_core, receiver_core = cores()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = subprocess.Popen(
        [program, "-s", "-1", "-B", "127.0.0.1", "-p", port, "-A", str(receiver_core)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(500):
            if listening(int(port)):
                break
            time.sleep(0.01)
        client = [program, "-c", "127.0.0.1", "-p", port, "-l", str(size), "-J"]
        client += ["-t", str(max(1, round(seconds))), "-A", str(sender_core)]
        done = subprocess.run(client, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"iperf3: {done.stdout}{done.stderr}")
        return Measurement(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e9)
    finally:
        server.terminate()
        server.wait()


def ours(size: int, seconds: float) -> Measurement:
    """Gb/s of the engine at both ends."""
    return stream(
        [built("ours_receive"), "tcp", str(max(size, READ)), str(RING)],
        [built("ours_tcp_send"), str(size), str(RING)],
        seconds,
    )


def bare(size: int, seconds: float) -> Measurement:
    """Gb/s of the bare loops."""
    return stream(
        [built("peers_tcp_receive"), str(max(size, READ)), str(RING)],
        [built("peers_tcp_send"), str(size)],
        seconds,
    )


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES, help="messages")
    args = arguments(__doc__, seconds=0.5, rounds=5, parser=parser)
    comparison = Comparison("tcp", "TCP", __doc__, args)
    for name in args.sizes:
        size = SIZES[name]
        comparison.case(
            name,
            "Gb/s",
            {
                "ours": partial(ours, size, args.seconds),
                "bare loop": partial(bare, size, args.seconds),
                "iperf3": partial(iperf3, size, args.seconds),
            },
            wants=(Want("ours", ("bare loop", "iperf3"), at_least=0.9),),
        )
    comparison.finish()


if __name__ == "__main__":
    main()
