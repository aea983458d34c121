"""Capturing one UDP stream to a pcap file: the engine's recorder, dumpcap, netsniff-ng, tcpdump.

A sender in a network namespace of its own sends over a pair of virtual Ethernet devices, whose
kernel cuts its batches into packets before they reach the device. The tools see every packet on the
receiving device; the engine receives them from a socket. The rate is the highest of which nothing
is lost. Processor time is that of the capturing process, from ready to finished; what the kernel
does for it while a packet arrives is part of the sender's time, for all of them.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from loss_free import CPU, Trial, bisect, send_and_count
from machine import ROOT
from programs import Program, built, cores, in_own_network, installed, script
from runner import Comparison, Measurement, Want, arguments

HERE, THERE, PORT = "10.77.0.1", "10.77.0.2", 4096
DEVICE, MTU = "bench0", 9000
REGION = 64 << 20
HEADERS, RECORD, FILE_HEADER = 42, 16, 24
# What the tools are told to buffer, MiB.
BUFFER = 256
OURS = "ours"
# Each starts its tool anew.
TRIALS = 6


def tools(file: Path) -> dict[str, list[str]]:
    """Return the commands that capture to a file."""
    only = f"udp and dst port {PORT}"
    return {
        "dumpcap": ["dumpcap", "-i", DEVICE, "-P", "-q", "-B", f"{BUFFER}", "-f", only, "-w"],
        "netsniff-ng": [
            *("netsniff-ng", "--in", DEVICE, "--silent", "--ring-size", f"{BUFFER}MiB"),
            *("--filter", only, "--out"),
        ],
        "tcpdump": [
            *("tcpdump", "-i", DEVICE, "-n", "-Z", "root", "-B", f"{BUFFER * 1024}", only, "-w"),
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
    """Make the devices; the beginning of a command that runs at the sender's end."""
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
        # A batch is then cut before the device, not behind the receiving socket.
        run(*there, ip, "link", "set", "sender0", "gso_max_segs", "1")
        yield there
    finally:
        holder.terminate()
        holder.wait()


def send_command(there: list[str], size: int) -> list[str]:
    """Return the command of the sender."""
    return [*there, built("peers_udp_send"), HERE, f"{PORT}", f"{size}"]


def processor_time(pid: int) -> float:
    """Processor time of all threads of a process and of its ended children, s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    threads = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            threads += int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            pass
    return threads + (int(fields[13]) + int(fields[14])) / 100


def file_size(path: Path) -> int:
    """Bytes of a file, 0 while there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def one_capture(
    command: list[str], file: Path, sender: Program, size: int, seconds: float, rate: float
) -> Trial:
    """Start a tool, send, stop it, and count what its file holds."""
    file.unlink(missing_ok=True)
    taskset = [installed("taskset", "util-linux"), "-c", f"{cores()[1]}"]
    program = installed(command[0], PACKAGES.get(command[0], ""))
    tool = subprocess.Popen(
        [*taskset, program, *command[1:], str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # It is ready once it sleeps after it has made its file, or its socket.
        time.sleep(0.7)
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
        used = processor_time(tool.pid) - before
        if tool.poll() is not None:
            raise RuntimeError(f"{' '.join(command)} ended with {tool.returncode}")
        # What it still holds in buffers of its own was captured, too.
        tool.send_signal(signal.SIGINT)
        tool.wait(timeout=20)
    finally:
        if tool.poll() is None:
            tool.kill()
            tool.wait()
    received = (file_size(file) - FILE_HEADER) // (size + HEADERS + RECORD)
    sending = (sent["ended"] - sent["begun"]) / 1e9
    file.unlink(missing_ok=True)
    return Trial(sent["sent"], sending, received, (latest - sent["begun"]) / 1e9, used)


def capture_with(
    name: str, there: list[str], directory: Path, size: int, seconds: float
) -> Measurement:
    """Mpps of a tool."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        file = Path(folder) / "capture.pcap"
        with Program(send_command(there, size), cores()[0]) as sender:
            command = tools(file)[name]
            return bisect(partial(one_capture, command, file, sender, size, seconds), size, TRIALS)


def capture_ours(there: list[str], directory: Path, size: int, seconds: float) -> Measurement:
    """Mpps of the engine's recorder."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        command = [
            *script("ours/record.py"),
            "udp",
            HERE,
            f"{size}",
            f"{REGION}",
            folder,
            f"{PORT}",
        ]
        with (
            Program(command, cores()[1]) as receiver,
            Program(send_command(there, size), cores()[0]) as sender,
        ):

            def trial(rate: float) -> Trial:
                receiver.ask("clear")
                return send_and_count(sender, receiver, rate, seconds)

            send_and_count(sender, receiver, 1000, 0.02)
            return bisect(trial, size, TRIALS)


def compare(
    comparison: Comparison, there: list[str], name: str, directory: Path, size: int
) -> None:
    """One folder and one size of frames."""
    seconds, payload = comparison.args.seconds, size - HEADERS
    contenders: dict[str, Callable[[], Measurement]] = {
        OURS: partial(capture_ours, there, directory, payload, seconds)
    }
    others = tuple(tools(Path()))
    for tool in others:
        contenders[tool] = partial(capture_with, tool, there, directory, payload, seconds)
    case = comparison.case(
        f"{size} B to {name}",
        "Mpps",
        contenders,
        wants=(Want(OURS, others, at_least=1.0),),
        digits=3,
    )
    comparison.derived(
        case,
        CPU,
        f"{size} B to {name}, processor time",
        "ns a packet",
        wants=(Want(OURS, others, at_most=0.5),),
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
