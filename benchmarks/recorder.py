"""Recording to pcap files, in memory (/dev/shm) and on disk, of a UDP and of a loopback stream.

Of the loopback stream, a fixed number of bytes is recorded, never more at once than the receive
buffers hold; of the UDP stream, the rate is the highest without loss. The limits are a plain
write(2) loop of as many bytes and, for the direct writer, fio with O_DIRECT. On disk, the time
counts until the kernel has put everything there (fdatasync), except in the UDP stream, where it
counts until all is written. Before each measurement, a file of as many bytes is written and
removed, so that none of them pays for memory that the host of a virtual machine has taken back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from loss_free import bisect, send_and_count
from machine import ROOT
from programs import Program, built, cores, installed, once, script
from runner import Comparison, Measurement, Want, arguments

SIZES = (1000, 8000)
REGION = 64 << 20
PLAIN = "limit: plain write"
DIRECT = "limit: fio, O_DIRECT"


def in_folder(directory: Path, total: int, measure: Callable[[Path], Measurement]) -> Measurement:
    """Measure with a folder that is removed afterwards.

    A host takes memory back that a virtual machine has freed, and the next use of each page waits
    for it. A file written and removed before lets every contender find memory that is there; one
    that needs none has a `total` of 0.
    """
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        if total > 0:
            plain_write(total, Path(folder))
            (Path(folder) / "plain").unlink()
        return measure(Path(folder))


def loopback(writer: str, size: int, total: int, folder: Path) -> Measurement:
    """MB/s of the engine's recorder."""
    command = [*script("ours/record.py"), "loopback", writer, str(size), str(REGION), str(total)]
    done = once([*command, str(folder)])
    return Measurement(done["bytes"] * 1e3 / done["ns"])


def udp(writer: str, size: int, seconds: float, folder: Path) -> Measurement:
    """MB/s of the engine's recorder."""
    command = [*script("ours/record.py"), "udp", writer, "127.0.0.1", str(size)]
    command += [str(REGION), str(folder)]
    with Program(command) as receiver:
        sending = [built("peers_udp_send"), "127.0.0.1", str(receiver.ready["port"]), str(size)]
        with Program(sending, cores()[0]) as sender:

            def trial(rate: float):
                receiver.ask("clear")
                return send_and_count(sender, receiver, rate, seconds)

            send_and_count(sender, receiver, 1000, 0.02)
            found = bisect(trial, size)
    limited = found.notes["limited by"]
    return Measurement(found.value * size, {"limited by": limited})


def plain_write(total: int, folder: Path) -> Measurement:
    """MB/s of write(2)."""
    done = once([built("peers_plain_write"), str(folder / "plain"), str(total)])
    return Measurement(total * 1e3 / done["ns"])


def fio(total: int, folder: Path) -> Measurement:
    """MB/s of fio's sequential O_DIRECT writes."""
    command = [installed("fio"), "--name=sequential", f"--directory={folder}", "--rw=write"]
    command += ["--bs=1M", f"--size={total >> 20}M", "--direct=1", "--ioengine=io_uring"]
    command += ["--iodepth=8", "--output-format=json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"fio: {done.stderr}")
    return Measurement(json.loads(done.stdout)["jobs"][0]["write"]["bw_bytes"] / 1e6)


def compare(comparison: Comparison, name: str, directory: Path, size: int, total: int) -> None:
    """One folder, one packet size."""
    contenders: dict[str, Callable[[Path], Measurement]] = {
        "ours, loopback": partial(loopback, "buffered", size, total),
        PLAIN: partial(plain_write, total),
        "ours, UDP": partial(udp, "buffered", size, comparison.args.seconds),
    }
    wants = [Want(ours, (PLAIN,), at_least=0.8) for ours in ("ours, loopback", "ours, UDP")]
    if name == "disk":
        contenders["ours, loopback, direct"] = partial(loopback, "direct", size, total)
        contenders[DIRECT] = partial(fio, total)
        contenders["ours, UDP, direct"] = partial(udp, "direct", size, comparison.args.seconds)
        wants += [
            Want(ours, (DIRECT,), at_least=0.8)
            for ours in ("ours, loopback, direct", "ours, UDP, direct")
        ]
    comparison.case(
        f"{size} B to {name}",
        "MB/s",
        {who: partial(in_folder, directory, total, what) for who, what in contenders.items()},
        wants=tuple(wants),
        digits=0,
    )


def main() -> None:
    """Measure memory and disk."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=float, default=512e6, help="of one measurement")
    parser.add_argument("--disk", type=Path, default=ROOT / "build", help="a folder on a disk")
    args = arguments(__doc__, seconds=0.3, rounds=3, parser=parser)
    comparison = Comparison("recorder", "Recording", __doc__, args)
    for name, directory in {"/dev/shm": Path("/dev/shm"), "disk": args.disk}.items():
        for size in SIZES:
            compare(comparison, name, directory, size, int(args.bytes))
    comparison.finish()


if __name__ == "__main__":
    main()
