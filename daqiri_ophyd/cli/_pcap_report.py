"""Reports on pcap files, and their repair."""

from dataclasses import asdict
from pathlib import Path
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from ..documents import read_sidecar
from ..engine import Packets, PcapFile
from ._output import counts_text, print_facts, print_json, print_line, print_message, print_table
from ._pcap_file import examine, facts, repair
from ._recorded_file import arrival_rows, repair_files, run_rows, show_files

_CHUNK = 1_000_000
_LINK_TYPES = {
    1: "Ethernet",
    101: "IP",
    113: "Linux cooked",
    228: "IPv4",
    229: "IPv6",
    276: "Linux cooked 2",
}
_PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}


def show_pcap(files: list[Path], flows: int, as_json: bool) -> None:
    """Print the contents of files, with so many of the largest flows."""
    show_files(files, lambda path: describe(path, flows), _print_info, as_json)


def check_pcap(files: list[Path], as_json: bool) -> None:
    """Report problems of files; exit with the code of the worst."""
    found = [examine(path) for path in files]
    if as_json:
        print_json(
            {
                str(f.path): {
                    "state": f.state,
                    "problems": f.problems,
                    "packets": 0 if f.pcap is None else len(f.pcap),
                    "whole_bytes": f.whole_bytes,
                    "being_written": f.written,
                }
                for f in found
            }
        )
    else:
        for f in found:
            f.print_problems()
            if f.pcap is not None and not f.problems:
                suffix = "; a recorder is writing it" if f.written else ""
                print_line(f"{f.path}: sound, {len(f.pcap):,} packets{suffix}")
    code = max(f.code for f in found)
    repairable = [f for f in found if f.code == 1]
    if not as_json and any(not f.needs_copy for f in repairable):
        print_message(
            "to cut files to their complete packets and correct their metadata: "
            "daqiri-ophyd pcap repair FILE..."
        )
    for f in repairable:
        if not as_json and f.needs_copy:
            print_message(
                "to write a copy of the complete packets: "
                f"daqiri-ophyd pcap repair --output COPY.pcap {f.path}"
            )
    if code:
        raise typer.Exit(code)


def repair_pcap(files: list[Path], output: Path | None, as_json: bool) -> None:
    """Repair files in place, or one to a copy, and print the repairs."""
    repair_files(files, lambda path: repair(path, output), as_json)


def describe(path: Path, flows: int) -> dict[str, Any]:
    """Return the contents of a file; ``flows`` is the number of the largest flows to list."""
    with PcapFile(path, allow_damage=True) as pcap:
        common = facts(pcap)
        duration = (common["t_last_ns"] - common["t_first_ns"]) / 1e9
        sidecar = read_sidecar(path)
        return {
            **common,
            "file_bytes": path.stat().st_size,
            "captured_bytes": int(pcap.lengths.sum(dtype=np.uint64)),
            "duration_s": duration,
            "packets_per_s": len(pcap) / duration if duration > 0 else None,
            "bits_per_s": common["bytes"] * 8 / duration if duration > 0 else None,
            "snap_length": pcap.snap_length,
            "byte_order": pcap.byte_order,
            "wrapping": list(pcap.wrapping),
            "in_order": pcap.in_order,
            "torn_bytes": pcap.torn_bytes,
            "damage": pcap.damage,
            "flows": largest_flows(pcap, flows),
            "metadata": None if sidecar is None else asdict(sidecar),
        }


def largest_flows(packets: Packets, most: int) -> list[dict[str, Any]] | None:
    """Return the flows with the most packets; None if headers of this link type are not parsed."""
    if packets.link_type not in _LINK_TYPES:
        return None
    if most == 0 or not len(packets):
        return []
    parts = [_flows_of(part) for part in packets.chunks(_CHUNK)]
    keys, counts = _summed(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return [
        {
            "protocol": _PROTOCOLS.get(protocol, str(protocol)) if version else "not IP",
            "src": _address(version, src_hi, src_lo),
            "src_port": sport,
            "dst": _address(version, dst_hi, dst_lo),
            "dst_port": dport,
            "packets": number,
            "bytes": size,
        }
        for (version, protocol, src_hi, src_lo, dst_hi, dst_lo, sport, dport), (number, size) in (
            (keys[i].tolist(), counts[i].tolist())
            for i in np.argsort(-counts[:, 0], kind="stable")[:most]
        )
    ]


def _flows_of(packets: Packets) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the flows, one a row, and the packets and bytes of each."""
    names = ["ip_version", "ip_protocol", "src_port", "dst_port"]
    columns = packets.to_columns([*names, "ipv4_src", "ipv4_dst", "ipv6_src", "ipv6_dst"])
    keys = [columns["ip_version"], columns["ip_protocol"]]
    for side in ("src", "dst"):
        halves = columns[f"ipv6_{side}"].view(">u8").astype(np.uint64)
        keys += [halves[:, 0], halves[:, 1] + columns[f"ipv4_{side}"]]
    keys += [columns["src_port"], columns["dst_port"]]
    counts = np.ones((len(packets), 2), np.int64)
    counts[:, 1] = packets.wire_lengths
    return _summed(np.stack(keys, axis=1, dtype=np.uint64), counts)


def _summed(
    keys: NDArray[np.uint64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the different rows of keys, sorted, and the sum of the counts of each."""
    group = np.zeros(len(keys), np.intp)
    for column in keys.T:
        values, code = np.unique(column, return_inverse=True)
        # Numbered anew for each column: a number stays below that of the rows, squared.
        group = np.unique(group * len(values) + code, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
    return keys[order[firsts]], np.add.reduceat(counts[order], firsts)


def _address(version: int, high: int, low: int) -> str:
    # As the kernel writes it; the text of ipaddress differs between Pythons.
    if version == 4:
        return inet_ntop(AF_INET, low.to_bytes(4, "big"))
    return inet_ntop(AF_INET6, (high << 64 | low).to_bytes(16, "big")) if version == 6 else ""


def _print_info(name: str, found: dict[str, Any]) -> None:
    link = found["link_type"]
    metadata = found["metadata"]
    rows = [("file", name)]
    if metadata is not None:
        rows += run_rows(metadata["run"], metadata["detector"])
    rows += [
        ("packets", f"{found['packets']:,}"),
        ("bytes", f"{found['bytes']:,} on the wire, {found['captured_bytes']:,} captured"),
    ]
    if found["packets"]:
        rows += arrival_rows(found)
    if found["packets_per_s"]:
        rate = f"{found['packets_per_s']:,.1f} packets/s, {found['bits_per_s'] / 1e6:,.3f} Mbit/s"
        rows.append(("rate", rate))
    rows += [
        ("link type", f"{link} ({_LINK_TYPES.get(link, 'headers not parsed')})"),
        ("resolution", "ns" if found["nanosecond"] else "µs"),
        ("byte order", found["byte_order"]),
        ("snap length", f"{found['snap_length']:,}"),
        (
            "in order",
            "yes"
            if found["in_order"]
            else "no: some packets have an earlier time than their predecessor",
        ),
    ]
    if found["wrapping"]:
        rows.append(("wrapping", ", ".join(found["wrapping"])))
    if found["torn_bytes"]:
        rows.append(("torn", f"{found['torn_bytes']:,} bytes at the end; see pcap check"))
    if metadata is not None:
        left_out = metadata["left_out_by_reason"]
        rows += [
            ("queue", metadata["queue"]),
            ("clock", metadata["clock"]),
            ("dropped", counts_text(metadata["dropped"], metadata["dropped_by_reason"])),
            ("left out", counts_text(sum(left_out.values()), left_out)),
        ]
        before_engine = metadata["lost_before_engine_by_reason"]
        if before_engine:
            lost = metadata["lost_before_engine"]
            rows.append(("lost before the engine", counts_text(lost, before_engine)))
    print_facts(rows)
    if found["flows"]:
        print_table(
            ["protocol", "source", "destination", "packets", "bytes"],
            [
                (
                    flow["protocol"],
                    f"{flow['src']} {flow['src_port']}",
                    f"{flow['dst']} {flow['dst_port']}",
                    flow["packets"],
                    flow["bytes"],
                )
                for flow in found["flows"]
            ],
        )
