"""Reception with several cores: as many streams as cores, on one interface or one UDP port.

Each stream has a program that sends on a core of its own, past the queueing discipline, into one
end of a pair of virtual Ethernet devices, and a queue on a core of its own at the other end. What a
network card's interrupt does (copy the frame to the ring) is done by the one who sends, in the time
of its core. The limit is as many bare loops over rings of AF_PACKET, among which the kernel
distributes frames by their port; they look at no frame. The engine finds each frame's flow and
copies it to a buffer, and a Python program takes the bursts. A rate counts when every frame of a
trial has arrived. `linear` is the engine's rate with one queue times the number of queues.

With AF_XDP, the devices have a queue for each core that sends. UDP is sent over 127.0.0.1 to one
port, in UDP_SEGMENT batches; the limit is as many bare loops over recvmmsg with UDP_GRO, among
whose sockets the kernel distributes packets by their source port.
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
PATHS = ("interface", "udp")
UDP_PORT = 4900
#: Of a socket.
BUFFER = 64 << 20
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
        # A frame that is sent past the queueing discipline goes to the queue of the sender's core.
        queues = {each: os.cpu_count() for each in ("num_tx_queues", "num_rx_queues")}
        ip.link("add", ifname=DEVICE, kind="veth", **queues, peer={"ifname": SENDER, **queues})
        for device in (DEVICE, SENDER):
            ip.link("set", index=ip.link_lookup(ifname=device)[0], mtu=MTU, state="up")
        try:
            yield
        finally:
            ip.link("del", index=ip.link_lookup(ifname=DEVICE)[0])


class Senders:
    """A sender for each stream, which send at once."""

    def __init__(self, stack: ExitStack, commands: list[list[str]], cores: list[int]) -> None:
        self._senders = [
            stack.enter_context(Program(command, core))
            for command, core in zip(commands, cores, strict=True)
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
    return Trial.of(sent, before, settled(receiver, "packets"))


def senders_of(path: str, size: int, count: int) -> list[list[str]]:
    """Commands of the senders of each stream."""
    if path == "udp":
        command = [built("peers_udp_send"), "127.0.0.1", f"{UDP_PORT}", f"{size}"]
    else:
        command = [built("peers_frame_send"), SENDER, f"{size}"]
    return [[*command, f"{PORT + i}"] for i in range(count)]


def receive(
    path: str,
    command: list[str],
    size: int,
    seconds: float,
    senders: list[int],
    receivers: list[int],
) -> Measurement:
    """Million packets a second without loss."""
    with ExitStack() as stack:
        cores = ",".join(map(str, receivers))
        receiver = stack.enter_context(Program(command, cores))
        sending = Senders(stack, senders_of(path, size, len(senders)), senders)
        # A sender sends its packets in bursts of thousands.
        trial(sending, receiver, 0.05, 1e5 * len(senders))
        return bisect(partial(trial, sending, receiver, seconds), size, TRIALS)


def contenders(path: str, size: int, queues: int, core: int) -> dict[str, list[str]]:
    """Commands of the receivers; the last one is the limit."""
    streams = [f"{PORT}", f"{queues}", f"{core}"]
    ours = script("ours/receive_queues.py")
    if path == "udp":
        peer = built("peers_reuseport_receive")
        return {
            "ours": [*ours, "udp", f"{UDP_PORT}", f"{size}", f"{REGION}", *streams],
            "limit: recvmmsg loops": [peer, f"{size}", f"{BUFFER}", f"{UDP_PORT}", *streams],
        }
    numbers = [DEVICE, f"{size}", f"{REGION}", *streams]
    return {
        "ours": [*ours, "af_packet", *numbers],
        "ours, AF_XDP": [*ours, "af_xdp", *numbers],
        "limit: AF_PACKET loops": [built("peers_fanout_receive"), *numbers],
    }


def compare(
    comparison: Comparison, path: str, size: int, queues: int, one: dict[str, float]
) -> dict[str, float]:
    """One size and number of queues; returns the engine's rates. `one`: those of one queue."""
    available = sorted(os.sched_getaffinity(0))
    half = len(available) // 2
    senders, receivers = available[:queues], available[half : half + queues]
    commands = contenders(path, size, queues, receivers[0])
    measured: dict[str, Contender] = {
        name: partial(receive, path, command, size, comparison.args.seconds, senders, receivers)
        for name, command in commands.items()
    }
    *ours, limit = commands
    wants = [Want(name, (limit,)) for name in ours]
    for name, rate in one.items():
        linear = name.replace("ours", "linear")
        measured[linear] = partial(Measurement, rate * queues)
        wants.append(Want(name, (linear,), at_least=0.8 if queues <= 4 else None))
    name = f"{path.upper()}, " if path == "udp" else ""
    name += f"{size} B, {queues} " + ("queue" if queues == 1 else "queues")
    case = comparison.case(name, "Mpackets/s", measured, wants=tuple(wants), digits=3)
    return {
        each: statistics.median(found.value for found in case.values[each])
        for each in ours
        if each in case.values
    }


def main() -> None:
    """Measure all sizes with each number of queues for which there are cores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a packet")
    parser.add_argument(
        "--paths", nargs="+", default=PATHS, choices=PATHS, help="interface: frames; udp: one port"
    )
    args = arguments(__doc__, seconds=0.3, rounds=3, parser=parser)
    if os.geteuid() != 0:
        print("receive_scaling: left out; virtual Ethernet devices need root")
        return
    in_own_network("The benchmark of several cores makes virtual Ethernet devices, and")
    comparison = Comparison("receive_scaling", "Several cores", __doc__, args)
    most = len(os.sched_getaffinity(0)) // 2
    with network():
        for path in args.paths:
            for size in args.sizes:
                one: dict[str, float] = {}
                for queues in (each for each in QUEUES if each <= most):
                    rates = compare(comparison, path, size, queues, one)
                    one = one or rates
    comparison.finish()


if __name__ == "__main__":
    main()
