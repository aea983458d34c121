"""Lateness of packets sent at set times, 20 µs and 100 µs apart, over UDP on this machine.

In `sending`, each program says how long after a packet's time it called the kernel. In `gaps`, one
receiver on another core measures all by the kernel's receive time stamps: how far the time between
two packets is from the wanted one. (tcpreplay has gaps but no times, and does not catch up.)
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from capture_files import HEADERS, write_capture
from programs import Program, built, cores, in_own_network, installed, once, script
from runner import Comparison, Measurement, Want, arguments

GAPS_US = (20, 100)
SIZE = 1000
QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


class Arrivals:
    """The receiver, and the packets of the latest sender."""

    def __init__(self, folder: Path) -> None:
        self._stamps = folder / "stamps"
        self._program = Program([built("peers_udp_stamps"), "0", str(self._stamps)], cores()[1])
        self.port: int = self._program.ready["port"]

    def take(self) -> np.ndarray:
        """Return when each packet since the last call was received, ns."""
        time.sleep(0.05)
        self._program.ask()
        return np.fromfile(self._stamps, np.int64)

    def __enter__(self) -> Arrivals:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.close()


def gap_errors(received: np.ndarray, gap_ns: int | np.ndarray) -> dict[str, float]:
    """Return the quantiles of the distance to the wanted gap, ns."""
    errors = np.abs(np.diff(received) - gap_ns)
    return {name: float(np.quantile(errors, q)) for name, q in QUANTILES.items()}


def measurement(found: dict[str, float]) -> Measurement:
    """p99 as the value, with the other quantiles; µs."""
    notes: dict[str, float | str] = {"p50": found["p50"] / 1e3, "p99.9": found["p999"] / 1e3}
    return Measurement(found["p99"] / 1e3, notes)


def sending(command: list[str]) -> Measurement:
    """Lateness of the calls to the kernel, as reported by the sender."""
    return measurement(once(command, cores()[0]))


def arriving(command: list[str], arrivals: Arrivals, gap_ns: int, count: int) -> Measurement:
    """Error of the gaps at the receiver."""
    arrivals.take()
    once(command, cores()[0])
    stamps = arrivals.take()
    if len(stamps) != count:
        raise RuntimeError(f"{' '.join(command)}: {len(stamps)} of {count} packets arrived")
    return measurement(gap_errors(stamps, gap_ns))


def replaying(capture: Path, timer: str, arrivals: Arrivals, gap_ns: int) -> Measurement:
    """Error of the gaps at the receiver for packets that tcpreplay sends on `lo`."""
    arrivals.take()
    command = [installed("tcpreplay"), "-q", "-K", "-i", "lo", "-T", timer, str(capture)]
    command = [installed("taskset", "util-linux"), "-c", str(cores()[0]), *command]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return measurement(gap_errors(arrivals.take(), gap_ns))


def compare(comparison: Comparison, arrivals: Arrivals, folder: Path, gap_us: int) -> None:
    """Both cases of one gap."""
    gap_ns = gap_us * 1000
    count = int(comparison.args.seconds * 1e6 / gap_us)
    numbers = [str(arrivals.port), str(SIZE), str(gap_ns), str(count)]
    capture = folder / f"{gap_us}.pcap"
    write_capture(capture, SIZE + HEADERS, count, gap_ns, arrivals.port)
    limit = "limit: bare spin loop"
    ours = [*script("ours/timed_send.py"), *numbers]
    spin = [built("peers_spin_send"), *numbers]
    wants = (Want("ours", (limit,), at_most=1.5),)
    comparison.case(
        f"sending every {gap_us} µs",
        "p99, µs",
        {"ours": lambda: sending(ours), limit: lambda: sending(spin)},
        wants=wants,
        better="lower",
    )
    comparison.case(
        f"gaps of {gap_us} µs",
        "p99 of the error, µs",
        {
            "ours": lambda: arriving(ours, arrivals, gap_ns, count),
            limit: lambda: arriving(spin, arrivals, gap_ns, count),
            "tcpreplay, gtod": lambda: replaying(capture, "gtod", arrivals, gap_ns),
            "tcpreplay, nano": lambda: replaying(capture, "nano", arrivals, gap_ns),
        },
        wants=wants,
        better="lower",
    )


def main() -> None:
    """Measure both gaps."""
    args = arguments(__doc__, seconds=1, rounds=3)
    in_own_network("The lateness benchmark puts frames on `lo`, and")
    comparison = Comparison("lateness", "Lateness of timed packets", __doc__, args)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with Arrivals(Path(folder)) as arrivals:
            for gap_us in GAPS_US:
                compare(comparison, arrivals, Path(folder), gap_us)
    comparison.finish()


if __name__ == "__main__":
    main()
