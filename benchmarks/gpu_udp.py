"""UDP packets on 127.0.0.1 to frames in a GPU's memory, without loss: the highest rate.

One sender on one core sends the same packets (those of `udp_receive`, in heaps of about 1 MiB) to
each receiver, which has all other cores, at rates found by bisection: a rate counts when every
packet of a trial is in a frame that a Python program has got. `gpu`: a plan with
`reorder_type: gpu`, frames in the GPU's memory. `cpu`: the same plan with `reorder_type: cpu`,
frames in the CPU's; `cpu, copied` copies each of them to the GPU with cupy. The peer is what a user
writes: recvmmsg into pinned memory, a copy of each burst to the GPU, and a fancy index of cupy
there. All receive buffers of the kernel are equally large. Ours check the first frame.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from functools import partial

import machine
from loss_free import bisect, send_and_count
from programs import Program, built, cores, script
from runner import Comparison, Contender, Measurement, MissingError, Want, arguments

RECEIVE_BUFFER = 64 << 20
HEADER = 48
PAYLOADS = (8192, 1024)
PEER = "recvmmsg, cupy"
HOW = {"ours, gpu": "gpu", "ours, cpu": "cpu", "ours, cpu, copied": "copied"}
TRIALS = 6


class Pair:
    """A receiver that keeps running, and a sender for it."""

    def __init__(self, command: list[str], size: int) -> None:
        sending, _ = cores()
        others = sorted(os.sched_getaffinity(0) - {sending}) or [sending]
        self.size = size
        with contextlib.ExitStack() as opened:
            # It starts threads of CUDA before the measurement.
            self._receiver = opened.enter_context(Program(command, ",".join(map(str, others))))
            port = str(self._receiver.ready["port"])
            sender = [built("peers_udp_send"), "127.0.0.1", port, str(size)]
            self._sender = opened.enter_context(Program(sender, sending))
            # After this, pages, caches and peers are warm.
            send_and_count(self._sender, self._receiver, 1000, 0.1)
            self.close = opened.pop_all().close

    def measure(self, seconds: float) -> Measurement:
        """GB/s of payload without loss."""
        trial = partial(send_and_count, self._sender, self._receiver, seconds=seconds)
        found = bisect(trial, self.size, TRIALS)
        notes = {key: found.notes[key] for key in ("CPU, ns a packet", "limited by")}
        return Measurement(found.value * (self.size - HEADER) / 1e3, notes)


def contender(
    opened: contextlib.ExitStack, command: list[str], size: int, seconds: float
) -> Contender:
    """Start a receiver; return a function that measures it."""
    try:
        pair = Pair(command, size)
    except MissingError as error:
        lack = str(error)

        def missing() -> Measurement:
            raise MissingError(lack)

        return missing
    opened.callback(pair.close)
    return partial(pair.measure, seconds)


def main() -> None:
    """Measure payloads of every size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--payloads", type=int, nargs="+", choices=PAYLOADS, default=PAYLOADS)
    args = arguments(__doc__, seconds=0.2, rounds=5, parser=parser)
    ours, peer = script("ours/udp_frames.py"), script("peers/udp_frames.py")
    try:
        Program([*ours, str(PAYLOADS[0]), "gpu"]).close()
    except MissingError as error:
        print(f"gpu_udp: left out: {error}")
        return
    comparison = Comparison("gpu_udp", "UDP packets to frames on a GPU", __doc__, args)
    if gpu := machine.gpu():
        comparison.machine["gpu"] = gpu
    for payload in args.payloads:
        commands = {name: [*ours, str(payload), how] for name, how in HOW.items()}
        commands[PEER] = [*peer, str(payload), str(RECEIVE_BUFFER)]
        with contextlib.ExitStack() as opened:
            contenders = {
                name: contender(opened, command, payload + HEADER, args.seconds)
                for name, command in commands.items()
            }
            comparison.case(
                f"payloads of {payload} B",
                "GB/s",
                contenders,
                wants=tuple(Want("ours, gpu", (name,)) for name in [*HOW, PEER][1:]),
            )
    comparison.finish()


if __name__ == "__main__":
    main()
