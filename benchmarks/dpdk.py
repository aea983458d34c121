"""Engine dpdk over virtual devices of DPDK, beside bare loops of DPDK.

Time per packet, when a device always has packets: 1 s divided by the packets of a second. *Bare
loops* do what a program needs that receives with one thread and works with another: for each queue,
one thread reads packets from the device and passes them over a ring of DPDK, the other reads the
header of each packet and frees it. The engine does it with as many cores: its poller on one, the
application on the other. It also finds each packet's flow, takes its time, and keeps lengths, flows
and times in bursts. It reads up to 128 packets at once, the bare loops up to 64. *One thread* is
the bare loop without the second thread.

`net_null` makes packets without end, and nothing is copied. `net_memif` is shared memory between
two processes: the sender is a bare loop on a core of its own, with fewer than three cores on that
of the application. `net_ring` receives what it sends, at most 4096 packets ahead; a header of 42
bytes is written to each. A third core sends, or the second one if there are not three for each
queue. Such a device passes the sender's own buffers on. The engine gives them back to the sender
and copies each packet to a buffer of the receiver: *with copies*, the bare loops do that, too.

*Queues*: `net_ring` with several queues, each with cores of its own. *Stages*: cycles of the
time stamp counter per packet, measured around each stage by a program that calls the engine's
functions on one core. It has a loop for *steer* and one for *batch*, the engine one for both.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial

from programs import Program, built, cores, in_own_network, once
from runner import Comparison, Contender, Measurement, MissingError, Want, arguments

ABOUT_RECEPTION = """\
Frames through a pair of virtual Ethernet devices: the rate without loss of the engines `dpdk`, over
`net_af_packet`, and `packet`, on one core each. `net_af_xdp` is not among them: its driver receives
only into memory of DPDK's own."""

SIZES = (64, 1500, 8192)
QUEUES = (1, 2, 4, 7)
PARTS = ("null", "memif", "ring", "queues", "stages", "reception")
AT_MOST = 1.15
STAGES = ("poll", "steer", "batch", "hand over", "free")
# Until caches and pools are warm.
WARM_SECONDS = 0.2
# Both ends of a memif need a moment to find each other.
LONGEST_WAIT = 20.0
# Of a buffer of net_memif.
LEAST_ROOM, HEADROOM = 2048, 256
# Frames of net_af_packet in its ring, and the bytes of each.
RING_FRAMES, RING_FRAME = 8192, 16384


def rate(program: Program, seconds: float) -> Measurement:
    """Return the time per packet of a running program, ns.

    On a busy machine, its threads may not run for a while: it then takes longer.
    """
    end = time.monotonic() + LONGEST_WAIT
    while program.ask()["packets"] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(WARM_SECONDS)
    before = after = program.ask()
    while after["packets"] == before["packets"] and time.monotonic() < end:
        time.sleep(seconds)
        after = program.ask()
    packets, ns = after["packets"] - before["packets"], after["now"] - before["now"]
    if packets == 0:
        raise RuntimeError(f"{' '.join(program.command)}: no packet in {LONGEST_WAIT} s")
    return Measurement(ns / packets, {"Mpackets/s": packets / ns * 1e3})


def measure(command: list[str], seconds: float) -> Measurement:
    """Measure a program."""
    with Program(command) as program:
        return rate(program, seconds)


def measure_memif(program: str, what: str, size: int, seconds: float) -> Measurement:
    """Measure a program that receives from another."""
    available = sorted(os.sched_getaffinity(0))
    sender, reader, application = (available[i % len(available)] for i in range(3))
    room = max(LEAST_ROOM, size + HEADROOM)
    # A socket for each measurement: the driver leaves its file behind.
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        socket = f"socket={folder}/memif,socket-abstract=no,bsize={room}"
        server, client = (f"net_memif{i},role={('server', 'client')[i]},{socket}" for i in (0, 1))
        sending = [built("peers_dpdk_loop"), "send", server, f"{size}", "1", f"{sender}"]
        stack.enter_context(Program(sending))
        receiving = [program, what, client, f"{size}", "1", f"{reader},{application}"]
        return rate(stack.enter_context(Program(receiving)), seconds)


def compare_null(comparison: Comparison, size: int) -> None:
    """Packets from nowhere."""
    reader, application = cores()
    rest = [f"net_null0,size={size}", f"{size}", "1", f"{reader},{application}"]
    loop, seconds = built("peers_dpdk_loop"), comparison.args.seconds
    comparison.case(
        f"net_null, {size} B",
        "ns a packet",
        {
            "ours": partial(measure, [built("ours_dpdk"), "receive", *rest], seconds),
            "bare loops": partial(measure, [loop, "receive", *rest], seconds),
            "one thread": partial(measure, [loop, "alone", *rest], seconds),
        },
        wants=(Want("ours", ("bare loops",), at_most=AT_MOST), Want("ours", ("one thread",))),
        better="lower",
        digits=1,
    )


def compare_memif(comparison: Comparison, size: int) -> None:
    """Packets from another process."""
    loop, rest = built("peers_dpdk_loop"), (size, comparison.args.seconds)
    comparison.case(
        f"net_memif, {size} B",
        "ns a packet",
        {
            "ours": partial(measure_memif, built("ours_dpdk"), "receive", *rest),
            "bare loops": partial(measure_memif, loop, "receive", *rest),
            "one thread": partial(measure_memif, loop, "alone", *rest),
        },
        wants=(Want("ours", ("bare loops",), at_most=AT_MOST), Want("ours", ("one thread",))),
        better="lower",
        digits=1,
    )


def compare_ring(comparison: Comparison, name: str, size: int, queues: int) -> None:
    """Packets that are sent to the device itself."""
    available = sorted(os.sched_getaffinity(0))
    of = [available[i % len(available)] for i in range(3 * queues)]
    if len(available) < 3 * queues:
        of[2 * queues :] = of[queues : 2 * queues]
    rest = ["net_ring0", f"{size}", f"{queues}", ",".join(map(str, of))]
    loop, seconds = built("peers_dpdk_loop"), comparison.args.seconds
    comparison.case(
        name,
        "ns a packet",
        {
            "ours": partial(measure, [built("ours_dpdk"), "exchange", *rest], seconds),
            "bare loops": partial(measure, [loop, "exchange", *rest], seconds),
            "bare loops, with copies": partial(measure, [loop, "copied", *rest], seconds),
        },
        wants=(
            Want("ours", ("bare loops, with copies",), at_most=AT_MOST),
            Want("ours", ("bare loops",)),
        ),
        better="lower",
        digits=1,
    )


def compare_stages(comparison: Comparison, size: int) -> None:
    """Each stage of reception; a run of the program gives all of them."""
    command = [built("ours_dpdk_stages"), f"{size}", f"{comparison.args.seconds}"]
    latest: dict[str, float] = {}

    def stage(name: str) -> float:
        if name == STAGES[0]:
            latest.update(once(command, cores()[1]))
        return latest[name]

    comparison.case(
        f"stages, {size} B",
        "cycles a packet",
        {name: partial(stage, name) for name in (*STAGES, "all")},
        better="lower",
        digits=1,
    )


def compare_reception(comparison: Comparison, size: int) -> None:
    """Frames over virtual Ethernet devices, with the contenders of the topic `packet`."""
    from capture import DEVICE, PORT
    from loss_free import bisect
    from packet import RECEIVE_TRIALS, REGION, network, receive

    ring = f"framesz={RING_FRAME},blocksz={4 * RING_FRAME},framecnt={RING_FRAMES}"
    devices = {
        "ours, net_af_packet": ("dpdk", f"net_af_packet0,iface={DEVICE},{ring}"),
        "ours, AF_PACKET": ("af_packet", DEVICE),
        "ours, AF_XDP": ("af_xdp", DEVICE),
    }
    search = partial(bisect, size=size, trials=RECEIVE_TRIALS)
    contenders: dict[str, Contender] = {}
    for name, (path, device) in devices.items():
        # Of a DPDK device, the whole frame of the ring, which the driver copies.
        room = RING_FRAME if path == "dpdk" else size
        command = [built("ours_receive"), path, f"{room}", f"{REGION}", device, f"{PORT}"]
        contenders[name] = partial(receive, command, size, comparison.args.seconds, search)
    with network():
        comparison.case(
            f"reception, {size} B",
            "Mframes/s",
            contenders,
            wants=tuple(Want("ours, net_af_packet", (name,)) for name in list(devices)[1:]),
            digits=3,
        )


def compare_devices(args: argparse.Namespace) -> None:
    """Compare all parts but reception."""
    comparison = Comparison("dpdk", "Engine dpdk over virtual devices", __doc__, args)
    for size in args.sizes:
        if "null" in args.parts:
            compare_null(comparison, size)
        if "memif" in args.parts:
            compare_memif(comparison, size)
        if "ring" in args.parts:
            compare_ring(comparison, f"net_ring, {size} B", size, 1)
        if "stages" in args.parts:
            compare_stages(comparison, size)
        for queues in args.queues if "queues" in args.parts else ():
            if 2 * queues <= len(os.sched_getaffinity(0)):
                name = f"net_ring, {size} B, queues: {queues}"
                compare_ring(comparison, name, size, queues)
    comparison.finish()


def main() -> None:
    """Compare all parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--queues", type=int, nargs="+", default=QUEUES)
    # Short when run as a part of all topics.
    args = arguments(__doc__, seconds=0.5, rounds=5 if "--save" in sys.argv else 1, parser=parser)
    try:
        built("peers_dpdk_loop")
    except MissingError as error:
        print(f"dpdk: left out: {error}; it needs libdpdk")
        return
    if "reception" in args.parts:
        if os.geteuid() != 0:
            print("dpdk: without reception, which needs root")
            args.parts = [part for part in args.parts if part != "reception"]
        else:
            in_own_network("dpdk")
    if set(args.parts) != {"reception"}:
        compare_devices(args)
    if "reception" in args.parts:
        title = "Engine dpdk over virtual Ethernet devices"
        comparison = Comparison("dpdk_reception", title, ABOUT_RECEPTION, args)
        for size in args.sizes:
            compare_reception(comparison, size)
        comparison.finish()


if __name__ == "__main__":
    main()
