"""Frames of eight modules, each with a UDP port of its own, read by 1 to 8 threads.

A plan with flows of eight sockets makes one frame of them: a module has 32 packets of 8192 B, or
256 of 1024 B. Programs send the modules of each frame in step, in UDP_SEGMENT batches over
127.0.0.1. A rate counts when every packet of a trial is in its frame. *Reception alone* is the
engine with the same sockets and threads, whose packets are released without a plan. Threads are on
the cores that the senders leave, in turn; on a host with fewer, several are on one core.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from tempfile import NamedTemporaryFile

from loss_free import Trial, bisect, settled
from programs import Program, in_own_network, script
from runner import Comparison, Contender, Measurement, Want, arguments

MODULES = 8
MODULE_BYTES = 256 << 10
SIZES = (8192, 1024)
THREADS = (1, 2, 4, 8)
PORT = 4900
#: How long after its line is written the first frame is due, ns.
SOON = 5_000_000
TRIALS = 9
MOST_SENDERS = 4


@dataclass
class Senders:
    """Programs that send the modules of frames in step."""

    programs: list[Program]
    packets: int
    frame: int = 0  # the next one

    def trial(self, receiver: Program, seconds: float, rate: float) -> Trial:
        """Send at a rate of packets, 0: as fast as possible."""
        before = receiver.ask()
        begin = time.monotonic_ns() + SOON
        line = f"{rate / self.packets} {seconds} {begin} {self.frame}"
        with ThreadPoolExecutor(len(self.programs)) as threads:
            sent = list(threads.map(lambda program: program.ask(line), self.programs))
        self.frame = max(each["next"] for each in sent)
        return Trial.of(sent, before, settled(receiver, "packets"))


def receive(size: int, threads: int, seconds: float, *how: str) -> Measurement:
    """Million packets a second without loss."""
    available = sorted(os.sched_getaffinity(0))
    half = max(1, len(available) // 2)
    sending = available[: min(half, MOST_SENDERS)]
    packets = MODULE_BYTES // size
    numbers = [
        f"{MODULES}",
        f"{size}",
        f"{packets}",
        f"{threads}",
        f"{PORT}",
        f"{available[-half]}",
    ]
    with ExitStack() as stack:
        receiver = stack.enter_context(Program([*script("ours/module_frames.py"), *numbers, *how]))
        programs = []
        progress = stack.enter_context(NamedTemporaryFile())
        progress.truncate(8 * len(sending))
        each = MODULES // len(sending)
        for i, core in enumerate(sending):
            ports = [f"{PORT + module}" for module in range(i * each, (i + 1) * each)]
            command = [
                *script("ours/module_send.py"),
                f"{i}",
                f"{len(sending)}",
                progress.name,
                f"{i * each}",
                f"{size}",
                f"{packets}",
                *ports,
            ]
            programs.append(stack.enter_context(Program(command, core)))
        senders = Senders(programs, packets * MODULES)
        once = partial(senders.trial, receiver, seconds)
        senders.trial(receiver, 0.05, 1e5)
        return bisect(once, size, TRIALS)


def main() -> None:
    """Measure all sizes with each number of threads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a payload")
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS, help="reading threads")
    args = arguments(__doc__, seconds=0.3, rounds=3, parser=parser)
    in_own_network("The benchmark of modules sends on a network of its own, and")
    comparison = Comparison("modules", "Modules on sockets of their own", __doc__, args)
    for size in args.sizes:
        for threads in args.threads:
            contenders: dict[str, Contender] = {
                "frames": partial(receive, size, threads, args.seconds),
                "limit: reception alone": partial(receive, size, threads, args.seconds, "alone"),
            }
            named = f"{size} B, {threads} " + ("thread" if threads == 1 else "threads")
            wants = (Want("frames", ("limit: reception alone",)),)
            comparison.case(named, "Mpackets/s", contenders, wants=wants, digits=3)
    comparison.finish()


if __name__ == "__main__":
    main()
