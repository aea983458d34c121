"""Checking and repairing a pcap file and its metadata file."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..documents import append_log, is_written, locked, logged, require_no_links
from ..engine import DaqiriError, PcapFile
from ._recorded_file import FileExamination, compare_metadata, correct_metadata, leftover_of

_COPY_BYTES = 16 << 20
_FILE_HEADER, _RECORD_HEADER = 24, 16
# Longest packet for tcpdump and this engine.
_LONGEST = 262_144


@dataclass
class Examination(FileExamination):
    """
    Result of checking a pcap file.

    Parameters
    ----------
    pcap
        Its packets; None if it cannot be read.
    whole_bytes
        Offset of the end of the last complete record.
    torn
        Description of the data after the last complete record; empty if there is none.
    cut_is_safe
        Whether this data cannot contain a complete packet.
    """

    pcap: PcapFile | None = None
    whole_bytes: int = 0
    torn: str = ""
    cut_is_safe: bool = True

    @property
    def damages(self) -> list[str]:
        """Damage to repair in the file itself, one sentence each."""
        return [self.torn]

    @property
    def needs_copy(self) -> bool:
        """Whether the file must be repaired with ``--output`` instead of in place."""
        wrapped = self.pcap is not None and bool(self.pcap.wrapping)
        return bool(self.torn) and (wrapped or not self.cut_is_safe)


def examine(path: Path) -> Examination:
    """Check a file and its metadata file."""
    found = Examination(path, written=is_written(path))
    try:
        pcap = found.pcap = PcapFile(path, allow_damage=True)
        found.whole_bytes = pcap.whole_bytes
        if not found.written:
            found.torn = _tail(pcap, found)
            _compare_metadata(found, pcap)
            found.leftover = leftover_of(path)
        pcap.verify()
    except DaqiriError as error:
        found.unreadable = str(error)
    return found


def _tail(pcap: PcapFile, found: Examination) -> str:
    if not pcap.torn_bytes:
        return ""
    count, begin = pcap.torn_bytes, found.whole_bytes
    if pcap.damage:
        found.cut_is_safe = False
        return f"{pcap.damage}; the {count:,} bytes from there on were not read"
    if "pcapng" in pcap.wrapping:
        return f"the block at byte {begin} is torn: only {count:,} bytes of it exist"
    if not any(
        pcap.data[i : i + _COPY_BYTES].any() for i in range(begin, begin + count, _COPY_BYTES)
    ):
        return f"{count:,} bytes of zeros from byte {begin} on, as a crash leaves them"
    found.cut_is_safe = count <= _RECORD_HEADER + _LONGEST
    return f"the record at byte {begin} is torn: only {count:,} bytes of it exist"


def _compare_metadata(found: Examination, pcap: PcapFile) -> None:
    def as_in_file(content: dict[str, Any]) -> dict[str, Any]:
        said = {"link_type": 1, "nanosecond": False} | content
        if not pcap.nanosecond:
            # Times in a µs file are coarser than in its metadata.
            for key in ("t_first_ns", "t_last_ns"):
                said[key] = max(-1, said[key] // 1000 * 1000)
        return said

    compare_metadata(found, facts(pcap), as_in_file)


def facts(pcap: PcapFile) -> dict[str, Any]:
    """Return the values that are both in the file and in its metadata."""
    return {
        "packets": len(pcap),
        "bytes": int(pcap.wire_lengths.sum(dtype="u8")),
        "t_first_ns": int(pcap.timestamps[0]) if len(pcap) else -1,
        "t_last_ns": int(pcap.timestamps[-1]) if len(pcap) else -1,
        "link_type": pcap.link_type,
        "nanosecond": pcap.nanosecond,
    }


def repair(path: Path, output: Path | None) -> list[str]:
    """
    Cut a file to its complete records and correct its metadata file.

    Parameters
    ----------
    path
        The file.
    output
        Path of a repaired copy, as classic pcap; None: in place.

    Returns
    -------
    list of str
        The repairs; empty if the file is sound and was not changed.

    Raises
    ------
    ValueError
        If it cannot be read, a recorder is writing it, or only a copy can be repaired.
    OSError
        If it cannot be written, or `output` exists.
    """
    found = examine(path)
    if found.unreadable:
        raise ValueError(found.unreadable)
    if not found.written:
        if not found.problems:
            return []
        if output is not None:
            return _repair_copy(found, output)
        try:
            return _repair_in_place(found)
        except BlockingIOError:
            pass  # A recorder has locked it meanwhile.
    raise ValueError(f"{path} is being written by a recorder; stop the recorder first")


def _repair_in_place(found: Examination) -> list[str]:
    path, pcap = found.path, _require_pcap(found)
    if found.needs_copy:
        reason = (
            f"is {' in '.join(reversed(pcap.wrapping))}"
            if pcap.wrapping
            else f"has {pcap.torn_bytes:,} bytes after the damage, which may hold packets"
        )
        raise ValueError(f"{path} {reason}; give --output to repair a copy ({found.torn})")
    require_no_links(path)
    done = []
    if found.torn:
        with path.open("r+b") as file, locked(file, fcntl.LOCK_EX):
            size = os.fstat(file.fileno()).st_size
            if size != pcap.data.size:
                raise ValueError(f"{path} is changing while it is repaired; try again")
            with logged(path, _log_entry(found)):
                os.ftruncate(file.fileno(), found.whole_bytes)
                os.fsync(file.fileno())
        done.append(f"cut from {size:,} to {found.whole_bytes:,} bytes: {found.torn}")
    if found.leftover is not None:
        with path.open("r+b") as file, locked(file, fcntl.LOCK_EX):
            # Frees space that the recorder had allocated after the end.
            os.ftruncate(file.fileno(), os.fstat(file.fileno()).st_size)
        found.leftover.unlink(missing_ok=True)
        done.append(f"{found.leftover.name}, which its recorder left, is removed")
    return done + _correct_metadata(found, path)


def _repair_copy(found: Examination, output: Path) -> list[str]:
    pcap = _require_pcap(found)
    require_no_links(output)
    # Of pcapng, `data` is the classic file, and `whole_bytes` is not an offset in it.
    size = int(pcap.offsets[-1] + pcap.lengths[-1]) if len(pcap) else _FILE_HEADER
    with output.open("xb") as file:
        try:
            for begin in range(0, size, _COPY_BYTES):
                file.write(pcap.data[begin : min(begin + _COPY_BYTES, size)].data)
            file.flush()
            pcap.verify()
        except BaseException:
            output.unlink()
            raise
    done = [f"{len(pcap):,} whole packets written to {output}"]
    if found.torn:
        append_log(output, _log_entry(found))
        done.append(f"left out: {found.torn}")
    return done + _correct_metadata(found, output)


def _require_pcap(found: Examination) -> PcapFile:
    if found.pcap is None:
        raise ValueError(found.unreadable)
    return found.pcap


def _log_entry(found: Examination) -> dict[str, Any]:
    pcap = _require_pcap(found)
    return {
        "file": str(found.path),
        "packets_kept": len(pcap),
        "cut_at_byte": found.whole_bytes,
        "cut_bytes": pcap.torn_bytes,
        "reason": found.torn,
    }


def _correct_metadata(found: Examination, target: Path) -> list[str]:
    pcap, cut = _require_pcap(found), (found.content or {}).get("torn_bytes", 0)
    if target == found.path and not found.metadata and not found.torn:
        return []
    torn_bytes = (cut if type(cut) is int else 0) + pcap.torn_bytes
    return correct_metadata(found, facts(pcap) | {"torn_bytes": torn_bytes}, target)
