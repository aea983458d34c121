"""The metadata file that a recorder writes for each capture file.

Classic pcap cannot store losses, the clock, or whether headers were reconstructed. So
``capture_000000.pcap`` comes with ``capture_000000.pcap.json``: one JSON object.

====================== ======= =================================================================
key                    type    meaning
====================== ======= =================================================================
packets                int     packets in the file
bytes                  int     packet bytes on the wire, record headers not counted
t_first_ns, t_last_ns  int     timestamps of the first and last packet, ns; -1 in an empty file
dropped                int     packets lost while this was the current file
dropped_by_reason      object  lost packets by reason: ``{"ring_full": 3}``
left_out_by_reason     object  packets left out on request, by reason: paused, before the start,
                               beyond the limit, filtered, flushed
lost_before_engine     int     packets that the host lost before the engine in that time, of the
                               port's whole network interface; not in dropped
lost_before_engine     object  these packets by reason: ``card``, ``backlog``, ``errors``,
_by_reason                     ``dropped`` (see `daqiri_ophyd.engine.PortCounters`)
link_type              int     pcap link type (1 Ethernet, 101 raw IP)
nanosecond             bool    timestamps of the pcap file are in ns, not µs
headers_reconstructed  bool    link, IP or transport headers were not seen on the wire
queue                  str     receive queue that was recorded
clock                  str     clock of the timestamps
run                    object  of the run: ``uid``, ``scan_id`` (int), ``plan_name``, ``start_time``
                               (ISO 8601), ``title``, ``sample``, ``experiment_identifier``, as far
                               as they are known; absent: recorded in no run
detector               object  ``name`` of the device that recorded; ``count_time`` (s),
                               ``x_pixel_size``, ``y_pixel_size``, ``distance`` (m) if given
configuration          str     YAML of the engine's configuration when the recording began
====================== ======= =================================================================

A recorder writes further keys, which this package does not read:

====================== ======= =================================================================
left_out               int     packets left out on request
format, writer         str     ``pcap``, ``raw`` or ``hdf5``; ``buffered``, ``direct``
                               or ``cufile``
cufile                 str     frames written by cuFile: ``nvidia-fs`` and its version, or
                               ``compatibility mode``
packet_data_offset     int     raw: bytes skipped at the beginning of each packet
flows                  list    flows that steer to the queue: objects with id, name, match
tai_offset_s           int     TAI - UTC in the kernel; null if it is not set
begin_ns, end_ns       int     time when the file was begun and completed
counters_begin, _end   object  counters of the queue when the previous file was completed (for the
                               first: at the start), and when this file was completed
host                   object  name, kernel, machine, cpu, engine
torn_bytes             int     bytes that ``pcap repair`` cut off; 0 as written
====================== ======= =================================================================

The first five are required. Unknown keys are ignored.
"""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ._summary import FileSummary

__all__ = [
    "Sidecar",
    "SidecarError",
    "no_link",
    "read_sidecar",
    "read_sidecar_content",
    "sidecar_of",
    "sidecar_part",
    "sidecar_path",
    "write_sidecar",
]

_INTEGERS = {  # key: lowest value
    "packets": 0,
    "bytes": 0,
    "t_first_ns": -1,
    "t_last_ns": -1,
    "dropped": 0,
    "lost_before_engine": 0,
    "link_type": 0,
}
_REQUIRED = ("packets", "bytes", "t_first_ns", "t_last_ns", "dropped")
_LARGEST = 2**63 - 1


class SidecarError(ValueError):
    """The metadata file of a capture file is not valid."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Contents of the metadata file of a capture file.

    Parameters
    ----------
    packets, bytes, t_first_ns, t_last_ns, dropped : int
        As in `FileSummary`.
    dropped_by_reason, left_out_by_reason : mapping of str to int
        Packets lost, and packets left out on request, by reason.
    lost_before_engine : int
        As in `FileSummary`.
    lost_before_engine_by_reason : mapping of str to int
        Losses before the engine by reason.
    link_type : int
        Link type of the pcap file.
    nanosecond : bool
        Whether the pcap file stores ns.
    headers_reconstructed : bool
        Whether the file has reconstructed headers, which were not seen on the wire.
    queue, clock : str
        Receive queue that was recorded, clock of the timestamps; empty: not in the file.
    run, detector : mapping
        Run, and device that recorded; empty: not in the file.
    configuration : str
        YAML of the engine's configuration; empty: not in the file.
    """

    packets: int
    bytes: int
    t_first_ns: int
    t_last_ns: int
    dropped: int
    dropped_by_reason: Mapping[str, int] = field(default_factory=dict)
    left_out_by_reason: Mapping[str, int] = field(default_factory=dict)
    lost_before_engine: int = 0
    lost_before_engine_by_reason: Mapping[str, int] = field(default_factory=dict)
    link_type: int = 1
    nanosecond: bool = False
    headers_reconstructed: bool = False
    queue: str = ""
    clock: str = ""
    run: Mapping[str, str | int] = field(default_factory=dict)
    detector: Mapping[str, str | float] = field(default_factory=dict)
    configuration: str = ""

    def summary(self, path: Path) -> FileSummary:
        """Return the summary of the pcap file at ``path`` that this metadata describes."""
        counters = (each.name for each in fields(FileSummary) if each.name != "path")
        return FileSummary(path, **{name: getattr(self, name) for name in counters})


def sidecar_path(pcap: str | Path) -> Path:
    """Return the path of a capture file's metadata file: with ``.json`` appended."""
    pcap = Path(pcap)
    return pcap.with_name(pcap.name + ".json")


def sidecar_part(path: str | Path) -> Path:
    """Return the path of a file's metadata until it is complete."""
    sidecar = sidecar_path(path)
    return sidecar.with_name(f".{sidecar.name}.part")


def no_link(path: str, flags: int) -> int:
    """Open a file for writing, but not through a link; an ``opener`` for `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def write_sidecar(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write the metadata file of a file atomically.

    Parameters
    ----------
    path : str or Path
        The file of packets or frames.
    content : mapping
        All keys and values.

    Raises
    ------
    OSError
        If it cannot be written, or another process is writing it.
    """
    part = sidecar_part(path)
    with open(part, "x", opener=no_link) as file:
        file.write(json.dumps(content, indent=2) + "\n")
    part.replace(sidecar_path(path))


def read_sidecar(pcap: str | Path) -> Sidecar | None:
    """Read and check the metadata file of a capture file.

    Parameters
    ----------
    pcap : str or Path
        The pcap file (not the metadata file).

    Returns
    -------
    Sidecar or None
        None if there is no metadata file.

    Raises
    ------
    SidecarError
        If it is not a regular file, is not a JSON object, a required key is missing, or a known key
        has a value of the wrong type or out of range. The message lists all faults.
    """
    path = sidecar_path(pcap)
    try:
        content = json.loads(_content(path))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise SidecarError(
            f"{path} is not JSON ({error}). Remove it to use the pcap file alone."
        ) from error
    return sidecar_of(content, path)


def read_sidecar_content(path: str | Path) -> dict[str, Any]:
    """Return what the metadata file of a file has, unchecked; nothing: there is none.

    Raises
    ------
    SidecarError
        If it is not a JSON object.
    """
    name = sidecar_path(path)
    try:
        found = json.loads(_content(name))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise SidecarError(f"{name} is not JSON ({error}).") from error
    if not isinstance(found, dict):
        raise SidecarError(f"{name} holds a {type(found).__name__}, not a JSON object.")
    return found


def sidecar_of(content: Any, name: str | Path) -> Sidecar:
    """Check the contents of a metadata file.

    Parameters
    ----------
    content : object
        What was read from JSON.
    name : str or Path
        Where from, for messages.

    Raises
    ------
    SidecarError
        As for `read_sidecar`.
    """
    if not isinstance(content, dict):
        raise SidecarError(f"{name} holds a {type(content).__name__}, not a JSON object.")
    faults = _faults(content)
    if faults:
        raise SidecarError(
            f"{name}: {'; '.join(faults)}. Correct it, or remove it to use the pcap file alone."
        )
    return Sidecar(**{f.name: content[f.name] for f in fields(Sidecar) if f.name in content})


def _content(path: Path) -> bytes:
    # Opening a named pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        return file.read()


def _faults(content: dict[str, Any]) -> list[str]:
    faults = [f"{key} is missing" for key in _REQUIRED if key not in content]
    for key, lowest in _INTEGERS.items():
        if key in content and not _is_count(content[key], lowest):
            faults.append(f"{key} is {content[key]!r}, expected an integer >= {lowest}")
    for key in ("nanosecond", "headers_reconstructed"):
        if not isinstance(content.get(key, False), bool):
            faults.append(f"{key} is {content[key]!r}, expected true or false")
    for key in ("queue", "clock", "configuration"):
        if not isinstance(content.get(key, ""), str):
            faults.append(f"{key} is {content[key]!r}, expected a string")
    for key in ("run", "detector"):
        if not isinstance(content.get(key, {}), dict):
            faults.append(f"{key} is {content[key]!r}, expected an object")
    for key in ("dropped_by_reason", "left_out_by_reason", "lost_before_engine_by_reason"):
        reasons = content.get(key, {})
        if not isinstance(reasons, dict):
            faults.append(f"{key} is {reasons!r}, expected an object")
            continue
        faults += [
            f"{key}.{reason} is {count!r}, expected an integer >= 0"
            for reason, count in reasons.items()
            if not _is_count(count, 0)
        ]
    return faults


def _is_count(value: Any, lowest: int) -> bool:
    # bool is an int in Python, but not in JSON.
    return type(value) is int and lowest <= value <= _LARGEST
