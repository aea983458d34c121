"""Reading a pcap file of 1 GB: its index, and its packets gathered into one array.

The file lies in memory (/dev/shm), so that the disk plays no part. The index is measured from
opening the file to offset, lengths and time of every packet, each time in a new mapping. The limit
of the index is a bare C++ loop over a memory map that makes the same arrays; that of gathering is
numpy's copy (memcpy) of as many bytes. Gathering writes to memory that is there already, and reads
pages that are mapped already, as memcpy does; mapping them costs as much again (*not mapped*).
libpcap reads the file anew. dpkt and scapy read a part of it, because they take long.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from capture_files import write_capture
from programs import built, cores, once
from runner import Comparison, Measurement, MissingError, Want, arguments

from daqiri_ophyd.engine import PcapFile

SIZES = (1500, 8000)
# Number of packets for the slow readers.
DPKT_PACKETS = 100_000
SCAPY_PACKETS = 2_000


def programs_result(name: str, path: Path, size: int, key: str, scale: float) -> float:
    """Run a C++ reader; `scale` / its ns."""
    return scale / once([built(name), str(path), str(size)])[key]


def dpkt_index(path: Path) -> float:
    """Mpps of dpkt's reader."""
    try:
        import dpkt
    except ImportError:
        raise MissingError("dpkt is not installed") from None
    with path.open("rb") as file:
        begun = time.perf_counter()
        read = sum(1 for _ in itertools.islice(dpkt.pcap.Reader(file), DPKT_PACKETS))
        return read / (time.perf_counter() - begun) / 1e6


def scapy_index(path: Path, reader: str) -> float:
    """Mpps of one of scapy's readers."""
    try:
        import scapy.utils
        from scapy.layers import inet  # noqa: F401, so that frames are taken apart
    except ImportError:
        raise MissingError("scapy is not installed") from None
    begun = time.perf_counter()
    with getattr(scapy.utils, reader)(str(path)) as packets:
        read = sum(1 for _ in itertools.islice(packets, SCAPY_PACKETS))
    return read / (time.perf_counter() - begun) / 1e6


def our_index(path: Path, count: int) -> float:
    """Mpps of `PcapFile`."""
    begun = time.perf_counter()
    with PcapFile(path) as pcap:
        elapsed = time.perf_counter() - begun
        if len(pcap) != count:
            raise RuntimeError(f"{path}: {len(pcap)} packets instead of {count}")
    return count / elapsed / 1e6


def our_gather(path: Path, out: np.ndarray, *, again: bool) -> float:
    """GB/s of `PcapFile.gather`; `again`: of pages that are mapped already."""
    with PcapFile(path) as pcap:
        if again:
            pcap.gather(out)
        begun = time.perf_counter()
        pcap.gather(out)
        return out.nbytes / (time.perf_counter() - begun) / 1e9


def copy(source: np.ndarray, out: np.ndarray) -> float:
    """GB/s of a plain copy."""
    begun = time.perf_counter()
    np.copyto(out, source)
    return out.nbytes / (time.perf_counter() - begun) / 1e9


def compare(comparison: Comparison, path: Path, size: int, total: int) -> None:
    """Both cases of one packet size."""
    count = total // (size + 16)
    write_capture(path, size, count, gap_ns=10_000)

    def program(name: str, key: str, scale: float) -> Callable[[], Measurement | float]:
        return lambda: programs_result(name, path, size, key, scale)

    limit = "limit: bare loop over a memory map"
    comparison.case(
        f"index, {size} B",
        "Mpps",
        {
            "ours": lambda: our_index(path, count),
            limit: program("peers_pcap_read", "index_ns", count * 1e3),
            "bare loop that keeps nothing": program("peers_pcap_read", "walk_ns", count * 1e3),
            "libpcap": program("peers_pcap_read_libpcap", "index_ns", count * 1e3),
            "dpkt": lambda: dpkt_index(path),
            "scapy, raw": lambda: scapy_index(path, "RawPcapReader"),
            "scapy": lambda: scapy_index(path, "PcapReader"),
        },
        wants=(
            Want("ours", (limit,), at_least=0.95),
            Want("ours", ("libpcap",), at_least=1.5),
            Want("ours", ("dpkt",), at_least=25),
        ),
        digits=4,
    )
    out = np.ones((count, size), np.uint8)
    source = np.ones((count, size), np.uint8)
    comparison.case(
        f"gather, {size} B",
        "GB/s",
        {
            "ours": lambda: our_gather(path, out, again=True),
            "limit: memcpy": lambda: copy(source, out),
            "bare loop over a memory map": program("peers_pcap_read", "gather_ns", count * size),
            "ours, pages not mapped": lambda: our_gather(path, out, again=False),
            "libpcap": program("peers_pcap_read_libpcap", "gather_ns", count * size),
        },
        wants=(Want("ours", ("limit: memcpy",), at_least=0.75),),
    )


def main() -> None:
    """Measure both sizes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=float, default=1e9, help="size of the file")
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="where it lies")
    args = arguments(__doc__, seconds=1, rounds=3, parser=parser)
    comparison = Comparison("pcap_read", "Reading pcap files", __doc__, args)
    os.sched_setaffinity(0, {cores()[1]})
    for size in SIZES:
        with tempfile.TemporaryDirectory(dir=args.directory) as folder:
            compare(comparison, Path(folder) / "capture.pcap", size, int(args.bytes))
    comparison.finish()


if __name__ == "__main__":
    main()
