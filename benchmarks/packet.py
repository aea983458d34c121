"""Engine packet on a pair of virtual Ethernet devices: reception, capture, replay of a capture.

One program sends Ethernet frames with UDP to one port into one end, past the queueing discipline,
as fast as it can or at a set rate; what is compared is at the other end, in turn, on one core. A
rate counts when every frame of a trial has arrived, those included that the devices refuse. The
devices are in a network namespace of their own without IPv6, and nothing else sends on them.

*Whose time.* What a network card's interrupt does (run the XDP program, copy the frame to the ring
or to the memory of AF_XDP) is done on such devices by the one who sends, in the time of the
sender's core, for all receivers. `CPU` is the processor time of the receiving process, all of its
threads: what is left to do once the kernel has put the frame there. Where the sender's core is the
limit, ratios of rates say little, and those of processor time say how much room the receivers have.

*Reception*: the limits are bare loops over the same facility, a ring of AF_PACKET (TPACKET_V3) and
AF_XDP, which count frames and look at none; the engine finds each frame's flow, copies it to a
buffer of the application, and hands bursts over. *Capture*: the engine's recorder and the tools,
each with 128 MiB for frames that wait; the rate counts the time until the last frame has been read
from there. To a disk, the recorder writes past the page cache, which no tool does; in /dev/shm it
cannot. *Replay*: `daqiri-ophyd send` and tcpreplay send one file; how far the time between two
frames is from that in the file, by the kernel's receive times at the other end. Both run on the
cores that the kernel gives them.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socket import if_nametoindex

import numpy as np
from capture import DEVICE, PACKAGES, PORT, at_rate, file_size, processor_time, run, tools
from capture_files import HEADERS, frames
from lateness import gap_errors
from loss_free import Trial, bisect, send_and_count
from machine import ROOT
from programs import Program, built, cores, in_own_network, installed, script
from runner import Comparison, Contender, Measurement, MissingError, Want, arguments

from daqiri_ophyd.engine import PcapFile, write_pcap

SENDER, MTU = "sender0", 9000
SIZES = (64, 1500, 8192)
PARTS = ("reception", "capture", "replay")
# Buffer of every receiver for waiting frames, MiB, as in `daqiri-ophyd capture`.
BUFFER = 128
REGION = BUFFER << 20
PATHS = {"AF_XDP": "af_xdp", "AF_PACKET": "af_packet"}
LOOPS = {"AF_XDP": "peers_xdp_receive", "AF_PACKET": "peers_packet_receive"}
# Fraction of the rate of the slowest; at that rate, the processor time of all is measured.
PART_OF_LOWEST = 0.5
LEAST_RATE = 10_000
RECEIVE_TRIALS, CAPTURE_TRIALS = 7, 5
# Large frames behind a trial: without them, tools get the last block of their ring up to 1 s later.
CLOSING = 64
LONGEST_START = 10.0
TIMERS = ("nano", "gtod", "select", "ioport")
ETHERNET = 1

Measure = Callable[[Callable[[float], Trial]], Measurement]


@contextmanager
def network() -> Iterator[None]:
    """Create the devices, with one queue each."""
    for which in ("all", "default"):
        switch = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        if switch.exists():
            switch.write_text("1")
    ip = installed("ip", "iproute2")
    shape = ("mtu", f"{MTU}", "numtxqueues", "1", "numrxqueues", "1")
    run(ip, "link", "add", DEVICE, *shape, "type", "veth", "peer", "name", SENDER, *shape)
    try:
        for device in (DEVICE, SENDER):
            run(ip, "link", "set", device, "up")
        yield
    finally:
        run(ip, "link", "del", DEVICE)


def sending(size: int) -> Program:
    """Start the sender."""
    return Program([built("peers_frame_send"), SENDER, f"{size}", f"{PORT}"], cores()[0])


def receive(command: list[str], size: int, seconds: float, measure: Measure) -> Measurement:
    """Measure a receiver that only counts packets."""
    with Program(command, cores()[1]) as receiver, sending(size) as sender:
        send_and_count(sender, receiver, 1000, 0.02)
        found = measure(partial(send_and_count, sender, receiver, seconds=seconds))
        if others := receiver.ask().get("others"):
            raise RuntimeError(f"{others} frames on {DEVICE} that nobody here has sent")
        return found


def record(path: str, directory: Path, size: int, seconds: float, measure: Measure) -> Measurement:
    """Measure the engine's recorder."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        command = [*script("ours/record.py"), "packet", "auto", DEVICE, f"{size - HEADERS}"]
        command += [f"{REGION}", folder, f"{PORT}", path]
        with Program(command, cores()[1]) as recorder, sending(size) as sender:

            def trial(rate: float) -> Trial:
                recorder.ask("clear")
                return send_and_count(sender, recorder, rate, seconds)

            send_and_count(sender, recorder, 1000, 0.02)
            return measure(trial)


def captures(process: subprocess.Popen[bytes]) -> bool:
    """Whether a packet socket on the device receives."""
    device = f"{if_nametoindex(DEVICE)}"
    lines = Path(f"/proc/{process.pid}/net/packet").read_text().splitlines()[1:]
    return any((line := row.split())[4] == device and line[5] == "1" for row in lines)


@contextmanager
def running(command: list[str], file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a tool on the receiver's core, wait until it captures; stop it, its file complete."""
    taskset = [installed("taskset", "util-linux"), "-c", f"{cores()[1]}"]
    program = installed(command[0], PACKAGES.get(command[0], ""))
    quiet = subprocess.DEVNULL
    tool = subprocess.Popen([*taskset, program, *command[1:], file], stdout=quiet, stderr=quiet)
    try:
        end, idle, used = time.monotonic() + LONGEST_START, 0, -1.0
        # It is ready when it receives and no longer uses processor time.
        while idle < 4 and tool.poll() is None and time.monotonic() < end:
            time.sleep(0.025)
            before, used = used, processor_time(tool.pid)
            idle = idle + 1 if used == before and captures(tool) else 0
        if idle < 4:
            raise RuntimeError(f"{' '.join(command)} did not start to capture")
        yield tool
        tool.send_signal(signal.SIGINT)
        tool.wait(20)
    finally:
        tool.kill()
        tool.wait()


def one_capture(
    name: str, file: Path, sender: Program, size: int, seconds: float, rate: float
) -> Trial:
    """Start a tool, send, stop it, and count the frames in its file."""
    with running(tools(BUFFER)[name], file) as tool:
        before = processor_time(tool.pid)
        sent = sender.ask(f"{rate} {seconds} {CLOSING}")
        seen, latest, unchanged = file_size(file), time.monotonic_ns(), 0
        while unchanged < 10:
            time.sleep(0.01)
            now = file_size(file)
            unchanged = unchanged + 1 if now == seen else 0
            if now != seen:
                seen, latest = now, time.monotonic_ns()
        used = processor_time(tool.pid) - before
    with PcapFile(file) as pcap:
        received = int(np.count_nonzero(pcap.lengths == size))
    file.unlink()
    duration = (sent["ended"] - sent["begun"]) / 1e9
    return Trial(sent["sent"], duration, received, (latest - sent["begun"]) / 1e9, used)


def capture(name: str, directory: Path, size: int, seconds: float, measure: Measure) -> Measurement:
    """Measure a tool."""
    with tempfile.TemporaryDirectory(dir=directory) as folder, sending(size) as sender:
        file = Path(folder) / "capture.pcap"
        return measure(partial(one_capture, name, file, sender, size, seconds))


def common_rate(rates: list[list[Measurement]]) -> float:
    """Return a rate without loss for all of them, frames a second."""
    lowest = min(statistics.median(m.value for m in found) for found in rates)
    return max(lowest * 1e6 * PART_OF_LOWEST, LEAST_RATE)


def rate_and_time(
    comparison: Comparison,
    name: str,
    contenders: Callable[[Measure, float], dict[str, Contender]],
    search: Measure,
    wants: tuple[tuple[Want, ...], tuple[Want, ...]],
) -> None:
    """Two cases: the highest rate without loss, and the processor time at a common rate."""
    seconds = comparison.args.seconds
    rates = comparison.case(
        name, "Mframes/s", contenders(search, seconds), wants=wants[0], digits=3
    )
    rate = common_rate(list(rates.values.values()))
    comparison.case(
        f"{name}, processor time at {rate / 1e3:.0f} kframes/s",
        "ns a frame",
        contenders(partial(at_rate, rate), 2 * seconds),
        wants=wants[1],
        better="lower",
        digits=0,
    )


def compare_reception(comparison: Comparison, size: int) -> None:
    """Compare with bare loops."""

    def contenders(measure: Measure, seconds: float) -> dict[str, Contender]:
        numbers = [f"{size}", f"{REGION}"]
        rest = (size, seconds, measure)
        found: dict[str, Contender] = {}
        for name, path in PATHS.items():
            ours = [built("ours_receive"), path, *numbers, DEVICE, f"{PORT}"]
            found[f"ours, {name}"] = partial(receive, ours, *rest)
            bare = [built(LOOPS[name]), DEVICE, *numbers]
            found[f"limit: {name} loop"] = partial(receive, bare, *rest)
        return found

    pairs = [(f"ours, {name}", (f"limit: {name} loop",)) for name in PATHS]
    rate_and_time(
        comparison,
        f"reception, {size} B",
        contenders,
        partial(bisect, size=size, trials=RECEIVE_TRIALS),
        (tuple(Want(*pair, at_least=0.9) for pair in pairs), tuple(Want(*pair) for pair in pairs)),
    )


def compare_capture(comparison: Comparison, where: str, directory: Path, size: int) -> None:
    """Compare with the tools."""
    others = tuple(tools())

    def contenders(measure: Measure, seconds: float) -> dict[str, Contender]:
        rest = (directory, size, seconds, measure)
        ours = {f"ours, {name}": partial(record, path, *rest) for name, path in PATHS.items()}
        return {**ours, **{tool: partial(capture, tool, *rest) for tool in others}}

    ours = [f"ours, {name}" for name in PATHS]
    rate_and_time(
        comparison,
        f"capture to {where}, {size} B",
        contenders,
        partial(bisect, size=size, trials=CAPTURE_TRIALS),
        (
            # The sender limits the rates of most.
            tuple(Want(name, others) for name in ours),
            tuple(Want(name, others, at_most=0.5) for name in ours),
        ),
    )


class Replay:
    """A file of frames with gaps, the receiver at the other end, and the measured quantiles."""

    def __init__(self, folder: Path, gaps_ns: np.ndarray) -> None:
        self.file, self._times = folder / "sent.pcap", folder / "times"
        self._gaps = gaps_ns
        times = 1_700_000_000_000_000_000 + np.concatenate(([0], np.cumsum(gaps_ns)))
        payloads = np.zeros((len(times), SIZES[1] - HEADERS), np.uint8)
        write_pcap(self.file, frames(payloads, PORT), times, ETHERNET)
        command = [built("peers_packet_receive"), DEVICE, f"{SIZES[1]}", f"{REGION}"]
        self._receiver = Program([*command, f"{self._times}"], cores()[1])
        self.p50: defaultdict[str, list[float]] = defaultdict(list)

    def measure(self, name: str, command: list[str]) -> Measurement:
        """Send the file once; the 99th percentile of the error, µs."""
        self._receiver.ask()
        command = [installed(command[0]), *command[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise MissingError(done.stderr.strip().rpartition("\n")[2])
        time.sleep(0.05)
        self._receiver.ask()
        received = np.fromfile(self._times, np.int64)
        if len(received) != len(self._gaps) + 1:
            raise RuntimeError(f"{name}: {len(received)} of {len(self._gaps) + 1} frames arrived")
        found = gap_errors(received, self._gaps)
        self.p50[name].append(found["p50"] / 1e3)
        return Measurement(found["p99"] / 1e3, {"p99.9": found["p999"] / 1e3})

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.close()


def compare_replay(comparison: Comparison, name: str, gaps_ns: np.ndarray) -> None:
    """Compare with tcpreplay and each of its timers."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with Replay(Path(folder), gaps_ns) as replay:
            ours = [sys.executable, "-m", "daqiri_ophyd", "send", SENDER]
            commands = {"ours": [*ours, f"{replay.file}"]}
            for timer in TIMERS:
                theirs = ["tcpreplay", "-q", "-K", "-i", SENDER, "-T", timer]
                commands[f"tcpreplay, {timer}"] = [*theirs, f"{replay.file}"]
            others = tuple(commands)[1:]
            comparison.case(
                f"replay, {name}: p99",
                "µs",
                {who: partial(replay.measure, who, command) for who, command in commands.items()},
                wants=(Want("ours", others, at_most=1),),
                better="lower",
            )
        turns = {who: iter(found) for who, found in replay.p50.items()}
        comparison.case(
            f"replay, {name}: p50",
            "µs",
            {who: (lambda turn=turn: next(turn)) for who, turn in turns.items()},
            wants=(Want("ours", others, at_most=1),),
            better="lower",
        )


def main() -> None:
    """Measure frames of all sizes, then both files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a frame")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is compared")
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    # Short when run as a part of all topics.
    args = arguments(__doc__, seconds=0.3, rounds=5 if "--save" in sys.argv else 1, parser=parser)
    if os.geteuid() != 0:
        print("packet: left out; AF_XDP and virtual Ethernet devices need root")
        return
    in_own_network("The packet benchmark makes virtual Ethernet devices, and")
    comparison = Comparison("packet", "Engine packet", __doc__, args)
    with network():
        for size in args.sizes:
            if "reception" in args.parts:
                compare_reception(comparison, size)
        if "capture" in args.parts:
            for where, directory in (("disk", args.disk), ("/dev/shm", Path("/dev/shm"))):
                for size in args.sizes:
                    compare_capture(comparison, where, directory, size)
        if "replay" in args.parts:
            # For about twice the time of another measurement.
            count = int(2 * args.seconds * 1e4)
            irregular = np.random.default_rng(1).exponential(100, count).clip(20, 1000)
            compare_replay(comparison, "gaps of 20 to 1000 µs", irregular.astype(np.int64) * 1000)
            compare_replay(comparison, "gaps of 20 µs", np.full(5 * count, 20_000))
    comparison.finish()


if __name__ == "__main__":
    main()
