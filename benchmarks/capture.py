"""Capturing one UDP stream to a pcap file: the engine's recorder, dumpcap, netsniff-ng, tcpdump.

A sender in a network namespace of its own sends over a pair of virtual Ethernet devices, whose
kernel cuts its batches into packets before they reach the device. The tools see every packet on the
receiving device, and so does engine packet; engine socket receives what they carry. The rate is the
highest of which nothing is lost. Processor time is that of the capturing process at half of the
lowest rate, without what it takes to start and stop; what the kernel does while a packet arrives is
part of the sender's time, for all of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from loss_free import Trial, bisect, send_and_count
from machine import ROOT
from programs import Program, built, cores, in_own_network, installed, script
from runner import Comparison, Measurement, Want, arguments

HERE, THERE, PORT = "10.77.0.1", "10.77.0.2", 4096
DEVICE, MTU = "bench0", 9000
REGION = 256 << 20
HEADERS, RECORD, FILE_HEADER = 42, 16, 24
# Buffer size of the tools, MiB; the same as that of the engine.
BUFFER = 256
# Engines, and the addresses where they receive.
OURS = {"ours, packet": ("packet", DEVICE), "ours, socket": ("udp", HERE)}
RAW = "ours, packet"
# Each starts its tool anew.
TRIALS = 6
LEAST_RATE = 10_000
LONGEST_START = 10.0

Measure = Callable[[Callable[[float], Trial]], Measurement]


def tools(buffer: int = BUFFER) -> dict[str, list[str]]:
    """Return the commands that capture to a file (its name follows), with this buffer in MiB."""
    only = f"udp and dst port {PORT}"
    return {
        "dumpcap": ["dumpcap", "-i", DEVICE, "-P", "-q", "-B", f"{buffer}", "-f", only, "-w"],
        "netsniff-ng": [
            *("netsniff-ng", "--in", DEVICE, "--silent", "--ring-size", f"{buffer}MiB"),
            *("--filter", only, "--out"),
        ],
        "tcpdump": [
            *("tcpdump", "-i", DEVICE, "-n", "-Z", "root", "-B", f"{buffer * 1024}", only, "-w"),
        ],
    }


PACKAGES = {"dumpcap": "wireshark-common"}


def run(*command: str) -> None:
    """Run a short command; its output is part of the error when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


@contextmanager
def network() -> Iterator[list[str]]:
    """Create the devices; return the start of a command that runs at the sender's end."""
    ip, unshare, enter = installed("ip", "iproute2"), installed("unshare"), installed("nsenter")
    holder = subprocess.Popen([unshare, "--net", "sleep", "1000000"])
    try:
        time.sleep(0.2)
        there = [enter, f"--net=/proc/{holder.pid}/ns/net"]
        peer = ("name", "sender0", "mtu", f"{MTU}", "netns", f"{holder.pid}")
        run(ip, "link", "add", DEVICE, "mtu", f"{MTU}", "type", "veth", "peer", *peer)
        for where, address, device in (([], HERE, DEVICE), (there, THERE, "sender0")):
            run(*where, ip, "addr", "add", f"{address}/24", "dev", device)
            run(*where, ip, "link", "set", device, "up")
        # Network cards gather packets of a flow while a socket asks for it (UDP_GRO).
        run(installed("ethtool"), "-K", DEVICE, "gro", "on")
        # A batch is then cut before the device, not after the receiving socket.
        run(*there, ip, "link", "set", "sender0", "gso_max_segs", "1")
        yield there
    finally:
        holder.terminate()
        holder.wait()


def send_command(there: list[str], size: int) -> list[str]:
    """Return the command of the sender."""
    return [*there, built("peers_udp_send"), HERE, f"{PORT}", f"{size}"]


def file_size(path: Path) -> int:
    """Bytes of a file, 0 while there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def start(command: list[str], file: Path) -> subprocess.Popen[bytes]:
    """Start a tool on the receiver's core, and wait until it captures."""
    file.unlink(missing_ok=True)
    taskset = [installed("taskset", "util-linux"), "-c", f"{cores()[1]}"]
    program = installed(command[0], PACKAGES.get(command[0], ""))
    tool = subprocess.Popen(
        [*taskset, program, *command[1:], str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.3)
    used, end = -1.0, time.monotonic() + LONGEST_START
    while tool.poll() is None and time.monotonic() < end:
        # It is waiting for packets when it no longer uses processor time.
        before, used = used, processor_time(tool.pid)
        if used == before:
            return tool
        time.sleep(0.1)
    tool.kill()
    tool.wait()
    raise RuntimeError(f"{' '.join(command)} did not start to capture")


def processor_time(pid: int) -> float:
    """Processor time of all threads of a process, s."""
    found = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += int((thread / "schedstat").read_text().split()[0])
    return found / 1e9


def finish(tool: subprocess.Popen[bytes], command: list[str]) -> float:
    """Stop a tool, which writes its remaining packets; return its processor time, s."""
    tool.send_signal(signal.SIGINT)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pid, status, used = os.wait4(tool.pid, os.WNOHANG)
        if pid:
            tool.returncode = os.waitstatus_to_exitcode(status)
            return used.ru_utime + used.ru_stime
        time.sleep(0.01)
    tool.kill()
    tool.wait()
    raise RuntimeError(f"{' '.join(command)} did not end within 20 s")


@cache
def time_to_stop(name: str) -> float:
    """Processor time that a tool needs to stop if it has captured nothing, s."""
    command = tools()[name]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tool = start(command, Path(folder) / "idle.pcap")
        before = processor_time(tool.pid)
        return finish(tool, command) - before


def one_capture(
    name: str, directory: Path, sender: Program, size: int, seconds: float, rate: float
) -> Trial:
    """Start a tool, send, stop it, and count the packets in its file."""
    stopping = time_to_stop(name)
    command, file = tools()[name], directory / "capture.pcap"
    tool = start(command, file)
    before = processor_time(tool.pid)
    sent = sender.ask(f"{rate} {seconds}")
    expected = FILE_HEADER + sent["sent"] * (size + HEADERS + RECORD)
    seen, latest, unchanged = file_size(file), time.monotonic_ns(), 0
    while unchanged < 30 and seen < expected:
        time.sleep(0.01)
        now = file_size(file)
        if now == seen:
            unchanged += 1
        else:
            seen, latest, unchanged = now, time.monotonic_ns(), 0
    used = finish(tool, command) - before - stopping
    received = (file_size(file) - FILE_HEADER) // (size + HEADERS + RECORD)
    file.unlink(missing_ok=True)
    sending = (sent["ended"] - sent["begun"]) / 1e9
    return Trial(sent["sent"], sending, received, (latest - sent["begun"]) / 1e9, used)


def capture_with(
    name: str, there: list[str], directory: Path, size: int, seconds: float, measure: Measure
) -> Measurement:
    """Measure a tool."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        with Program(send_command(there, size), cores()[0]) as sender:
            return measure(partial(one_capture, name, Path(folder), sender, size, seconds))


def capture_ours(
    name: str, there: list[str], directory: Path, size: int, seconds: float, measure: Measure
) -> Measurement:
    """Measure the recorder of an engine."""
    engine, where = OURS[name]
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        command = [
            *script("ours/record.py"),
            engine,
            "auto",
            where,
            f"{size}",
            f"{REGION}",
            folder,
        ]
        command.append(f"{PORT}")
        with (
            Program(command, cores()[1]) as receiver,
            Program(send_command(there, size), cores()[0]) as sender,
        ):

            def trial(rate: float) -> Trial:
                receiver.ask("clear")
                return send_and_count(sender, receiver, rate, seconds)

            send_and_count(sender, receiver, 1000, 0.02)
            return measure(trial)


def at_rate(rate: float, trial: Callable[[float], Trial]) -> Measurement:
    """Processor time at a rate, ns a packet."""
    done = trial(rate)
    return Measurement(done.cpu_ns, {"received": f"{done.received / done.sent:.1%}"})


def compare(
    comparison: Comparison, there: list[str], name: str, directory: Path, size: int
) -> None:
    """One folder and one size of frames."""
    seconds, payload = comparison.args.seconds, size - HEADERS
    others = tuple(tools())

    def contenders(measure: Measure, seconds: float) -> dict[str, Callable[[], Measurement]]:
        rest = (there, directory, payload, seconds, measure)
        captures = {tool: partial(capture_with, tool, *rest) for tool in others}
        return {**{engine: partial(capture_ours, engine, *rest) for engine in OURS}, **captures}

    rates = comparison.case(
        f"{size} B to {name}",
        "Mpps",
        contenders(partial(bisect, size=payload, trials=TRIALS), seconds),
        wants=(Want(RAW, others, at_least=2.0),),
        digits=3,
    )
    lowest = min(statistics.median(m.value for m in found) for found in rates.values.values())
    rate = max(lowest * 1e6 / 2, LEAST_RATE)
    comparison.case(
        f"{size} B to {name}, processor time at {rate / 1e3:.0f} kpps",
        "ns a packet",
        contenders(partial(at_rate, rate), 3 * seconds),
        wants=(Want(RAW, others, at_most=0.5),),
        better="lower",
        digits=0,
    )


def main() -> None:
    """Measure frames of two sizes in memory, and of one size on disk."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    args = arguments(__doc__, seconds=0.4, rounds=2, parser=parser)
    in_own_network("The capture benchmark makes virtual Ethernet devices, and")
    comparison = Comparison("capture", "Capturing a stream", __doc__, args)
    with network() as there:
        for size in (1500, 8000):
            compare(comparison, there, "/dev/shm", Path("/dev/shm"), size)
        compare(comparison, there, "disk", args.disk, 8000)
    comparison.finish()


if __name__ == "__main__":
    main()
