"""Engine packet with several cores: frames of as many streams as cores, on one interface.

Each stream has a program that sends on a core of its own, past the queueing discipline, into one
end of a pair of virtual Ethernet devices, and a queue on a core of its own at the other end. What a
network card's interrupt does (copy the frame to the ring) is done by the one who sends, in the time
of its core. The limit is as many bare loops over rings of AF_PACKET, among which the kernel
distributes frames by their port; they look at no frame. The engine finds each frame's flow and
copies it to a buffer, and a Python program takes the bursts. A rate counts when every frame of a
trial has arrived. `linear` is the engine's rate with one queue times the number of queues.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from capture import DEVICE, PORT
from loss_free import Trial, bisect, settled
from packet import MTU, SENDER
from programs import Program, built, in_own_network, script
from runner import Comparison, Contender, Measurement, Want, arguments

SIZES = (64, 1000, 8000)
QUEUES = (1, 2, 4, 7)
REGION = 512 << 20
TRIALS = 9


@contextmanager
def network() -> Iterator[None]:
    """Create the devices, by netlink: hosts of the facility may lack iproute2."""
    from pyroute2 import IPRoute

    for which in ("all", "default"):
        switch = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        if switch.exists():
            switch.write_text("1")
    with IPRoute() as ip:
        ip.link("add", ifname=DEVICE, kind="veth", peer={"ifname": SENDER})
        for device in (DEVICE, SENDER):
            ip.link("set", index=ip.link_lookup(ifname=device)[0], mtu=MTU, state="up")
        try:
            yield
        finally:
            ip.link("del", index=ip.link_lookup(ifname=DEVICE)[0])


class Senders:
    """A sender for each stream, which send at once."""

    def __init__(self, stack: ExitStack, size: int, cores: list[int]) -> None:
        self._senders = [
            stack.enter_context(
                Program([built("peers_frame_send"), SENDER, f"{size}", f"{PORT + i}"], core)
            )
            for i, core in enumerate(cores)
        ]
        self._threads = stack.enter_context(ThreadPoolExecutor(len(cores)))

    def ask(self, rate: float, seconds: float) -> list[dict]:
        """Send at a rate, of all together."""
        line = f"{rate / len(self._senders)} {seconds}"
        return list(self._threads.map(lambda sender: sender.ask(line), self._senders))


def trial(senders: Senders, receiver: Program, seconds: float, rate: float) -> Trial:
    """Send at a rate, 0: as fast as possible."""
    before = receiver.ask()
    sent = senders.ask(rate, seconds)
    after = settled(receiver, "packets")
    begun = min(each["begun"] for each in sent)
    return Trial(
        sum(each["sent"] for each in sent),
        (max(each["ended"] for each in sent) - begun) / 1e9,
        after["packets"] - before["packets"],
        (after["latest"] - begun) / 1e9,
        after["cpu"] - before["cpu"],
    )


def receive(
    command: list[str], size: int, seconds: float, senders: list[int], receivers: list[int]
) -> Measurement:
    """Mframes/s without loss."""
    with ExitStack() as stack:
        cores = ",".join(map(str, receivers))
        receiver = stack.enter_context(Program(command, cores))
        sending = Senders(stack, size, senders)
        trial(sending, receiver, 0.05, 1000 * len(senders))
        return bisect(partial(trial, sending, receiver, seconds), size, TRIALS)


def compare(comparison: Comparison, size: int, queues: int, one: float | None) -> float:
    """One size and number of queues; returns the engine's rate."""
    available = sorted(os.sched_getaffinity(0))
    half = len(available) // 2
    senders, receivers = available[:queues], available[half : half + queues]
    numbers = [DEVICE, f"{size}", f"{REGION}", f"{PORT}", f"{queues}", f"{receivers[0]}"]
    commands = {
        "ours": [*script("ours/receive_queues.py"), *numbers],
        "limit: AF_PACKET loops": [built("peers_fanout_receive"), *numbers],
    }
    contenders: dict[str, Contender] = {
        name: partial(receive, command, size, comparison.args.seconds, senders, receivers)
        for name, command in commands.items()
    }
    wants = [Want("ours", ("limit: AF_PACKET loops",))]
    if one is not None:
        contenders["linear"] = lambda: Measurement(one * queues)
        wants.append(Want("ours", ("linear",), at_least=0.8 if queues <= 4 else None))
    name = f"{size} B, {queues} " + ("queue" if queues == 1 else "queues")
    case = comparison.case(name, "Mframes/s", contenders, wants=tuple(wants), digits=3)
    return statistics.median(found.value for found in case.values["ours"])


def main() -> None:
    """Measure all sizes with each number of queues for which there are cores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a frame")
    args = arguments(__doc__, seconds=0.3, rounds=3, parser=parser)
    if os.geteuid() != 0:
        print("receive_scaling: left out; virtual Ethernet devices need root")
        return
    in_own_network("The benchmark of several cores makes virtual Ethernet devices, and")
    comparison = Comparison("receive_scaling", "Engine packet, several cores", __doc__, args)
    most = len(os.sched_getaffinity(0)) // 2
    with network():
        for size in args.sizes:
            one: float | None = None
            for queues in (each for each in QUEUES if each <= most):
                rate = compare(comparison, size, queues, one)
                one = rate if one is None else one
    comparison.finish()


if __name__ == "__main__":
    main()
