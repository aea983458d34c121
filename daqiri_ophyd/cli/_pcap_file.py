"""Checking and repairing a pcap file and its metadata file."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..documents import Sidecar, SidecarError, read_sidecar, sidecar_path
from ..engine import DaqiriError, PcapFile

_COPY_BYTES = 16 << 20
_RECORD_HEADER = 16
# Longest packet for tcpdump and this engine.
_LONGEST = 262_144


@dataclass
class Examination:
    """
    Result of checking a pcap file.

    Parameters
    ----------
    path
        The file.
    pcap
        Its packets; None if it cannot be read.
    whole_bytes
        Offset of the end of the last complete record.
    sidecar
        Its metadata file, if there is a valid one.
    unreadable
        Why it cannot be read; empty: it can.
    torn
        What follows the last complete record; empty: nothing.
    cut_is_safe
        Whether the bytes behind it cannot contain a complete packet.
    metadata
        Problems of the metadata file, one sentence each.
    leftover
        Hidden file that a killed recorder left beside it; None: there is none.
    written
        Whether a recorder is writing the file.
    """

    path: Path
    pcap: PcapFile | None = None
    whole_bytes: int = 0
    sidecar: Sidecar | None = None
    unreadable: str = ""
    torn: str = ""
    cut_is_safe: bool = True
    metadata: list[str] = field(default_factory=list)
    leftover: Path | None = None
    written: bool = False

    @property
    def problems(self) -> list[str]:
        """All problems, one sentence each."""
        killed = ""
        if self.leftover is not None:
            name = self.leftover.name
            killed = f"its recorder was killed, so what it lost is not known: {name} is left"
        return [text for text in (self.unreadable, self.torn, *self.metadata, killed) if text]

    @property
    def needs_copy(self) -> bool:
        """Whether it is not repaired in place, but with ``--output``."""
        wrapped = self.pcap is not None and bool(self.pcap.wrapping)
        return bool(self.torn) and (wrapped or not self.cut_is_safe)

    @property
    def code(self) -> int:
        """Exit code: 0 sound, 1 can be repaired, 2 cannot be read."""
        return 2 if self.unreadable else 1 if self.problems else 0


def examine(path: Path) -> Examination:
    """Check a file and its metadata file."""
    part = _part_path(path)
    # The recorder lets go of the file first: what is locked then is being completed.
    found = Examination(path, written=_is_locked(part) or _is_locked(path))
    try:
        pcap = found.pcap = PcapFile(path, allow_damage=True)
        found.whole_bytes = pcap.data.size - pcap.torn_bytes
        if not found.written:
            found.torn = _tail(pcap, found)
            _compare_metadata(found, pcap)
            found.leftover = part if part.is_file() and not part.is_symlink() else None
        pcap.verify()
    except DaqiriError as error:
        found.unreadable = str(error)
    return found


def _part_path(path: Path) -> Path:
    """Return where a recorder keeps the metadata of a file that is not complete."""
    sidecar = sidecar_path(path)
    return sidecar.with_name(f".{sidecar.name}.part")


def _is_locked(path: Path) -> bool:
    try:
        # A named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file, _locked(file, fcntl.LOCK_SH):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False  # reported when the file is read


@contextmanager
def _locked(file: BinaryIO, kind: int) -> Iterator[None]:
    """Hold the lock that a recorder holds while writing. Raises BlockingIOError."""
    fcntl.flock(file, kind | fcntl.LOCK_NB)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _tail(pcap: PcapFile, found: Examination) -> str:
    if not pcap.torn_bytes:
        return ""
    count, begin = pcap.torn_bytes, found.whole_bytes
    if pcap.damage:
        found.cut_is_safe = False
        return f"{pcap.damage}; the {count:,} bytes from there on were not read"
    if not any(
        pcap.data[i : i + _COPY_BYTES].any() for i in range(begin, begin + count, _COPY_BYTES)
    ):
        return f"{count:,} bytes of zeros from byte {begin} on, as a crash leaves them"
    found.cut_is_safe = count <= _RECORD_HEADER + _LONGEST
    return f"the record at byte {begin} is torn: only {count:,} bytes of it are there"


def _compare_metadata(found: Examination, pcap: PcapFile) -> None:
    try:
        sidecar = found.sidecar = read_sidecar(found.path)
    except (SidecarError, OSError) as error:
        found.metadata.append(str(error))
        return
    if sidecar is None:
        return
    for key, value in facts(pcap).items():
        said = getattr(sidecar, key)
        # A file in µs has a coarser time than its metadata.
        coarse = key.startswith("t_") and not pcap.nanosecond and said >= 0
        if (said // 1000 * 1000 if coarse else said) != value:
            name = sidecar_path(found.path).name
            found.metadata.append(f"{name} says {key} {said}, the file has {value}")


def facts(pcap: PcapFile) -> dict[str, Any]:
    """Return the values that are in the file and in its metadata."""
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
        Where to write a repaired copy, as classic pcap; None: in place.

    Returns
    -------
    list of str
        What was done; empty: the file is sound and was not changed.

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
            pass  # A recorder has locked it in the meantime.
    raise ValueError(f"{path} is being written by a recorder; stop the recorder first")


def _repair_in_place(found: Examination) -> list[str]:
    path, pcap = found.path, _require_pcap(found)
    if found.needs_copy:
        reason = (
            f"is {' in '.join(reversed(pcap.wrapping))}"
            if pcap.wrapping
            else f"has {pcap.torn_bytes:,} bytes behind the damage, which may hold packets"
        )
        raise ValueError(f"{path} {reason}; give --output to repair a copy ({found.torn})")
    _require_no_links(path)
    done = []
    if found.torn:
        with path.open("r+b") as file, _locked(file, fcntl.LOCK_EX):
            size = os.fstat(file.fileno()).st_size
            if size != pcap.data.size:
                raise ValueError(f"{path} is changing while it is repaired; try again")
            _log_repair(path, found)
            os.ftruncate(file.fileno(), found.whole_bytes)
            os.fsync(file.fileno())
        done.append(f"cut from {size:,} to {found.whole_bytes:,} bytes: {found.torn}")
    if found.leftover is not None:
        with path.open("r+b") as file, _locked(file, fcntl.LOCK_EX):
            # Frees what the recorder had allocated behind the end.
            os.ftruncate(file.fileno(), os.fstat(file.fileno()).st_size)
        found.leftover.unlink(missing_ok=True)
        done.append(f"{found.leftover.name}, which its recorder left, is removed")
    return done + _correct_metadata(found, path)


def _repair_copy(found: Examination, output: Path) -> list[str]:
    pcap = _require_pcap(found)
    _require_no_links(output)
    with output.open("xb") as file:
        try:
            for begin in range(0, found.whole_bytes, _COPY_BYTES):
                file.write(pcap.data[begin : min(begin + _COPY_BYTES, found.whole_bytes)].data)
            file.flush()
            pcap.verify()
        except BaseException:
            output.unlink()
            raise
    done = [f"{len(pcap):,} whole packets written to {output}"]
    if found.torn:
        _log_repair(output, found)
        done.append(f"left out: {found.torn}")
    return done + _correct_metadata(found, output)


def _require_pcap(found: Examination) -> PcapFile:
    if found.pcap is None:
        raise ValueError(found.unreadable)
    return found.pcap


def _log_path(path: Path) -> Path:
    return path.with_name(path.name + ".repair.jsonl")


def _require_no_links(path: Path) -> None:
    """Raise ValueError if a file that a repair writes beside ``path`` is a link already."""
    for beside in (_part_path(path), _log_path(path)):
        if beside.is_symlink():
            raise ValueError(f"{beside} is a link, which is not written through; remove it first")


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _log_repair(path: Path, found: Examination) -> None:
    """Append a record of the cut to ``<name>.repair.jsonl``; one JSON object per line."""
    entry = {
        "time_ns": time.time_ns(),
        "file": str(found.path),
        "packets_kept": len(_require_pcap(found)),
        "cut_at_byte": found.whole_bytes,
        "cut_bytes": _require_pcap(found).torn_bytes,
        "reason": found.torn,
    }
    # Whoever may write in the folder could have put a link there since it was looked for.
    with open(_log_path(path), "a", opener=_no_link) as file:
        file.write(json.dumps(entry) + "\n")


def _correct_metadata(found: Examination, target: Path) -> list[str]:
    """Write the file's values to the metadata file of ``target``; other keys are kept."""
    pcap, source = _require_pcap(found), sidecar_path(found.path)
    to = sidecar_path(target)
    if found.sidecar is None:
        if not found.metadata:
            return []
        aside = to.with_name(to.name + ".unusable")
        if to == source:
            source.replace(aside)
        else:
            with open(aside, "xb", opener=_no_link) as file:
                file.write(source.read_bytes())
        return [f"the invalid metadata file is now {aside.name}; losses are not known"]
    content = json.loads(source.read_bytes())
    corrected = content | facts(pcap)
    torn = content.get("torn_bytes", 0)
    corrected["torn_bytes"] = (torn if type(torn) is int else 0) + pcap.torn_bytes
    if to == source and not found.metadata and not found.torn:
        return []
    part = _part_path(target)
    with open(part, "x", opener=_no_link) as file:
        file.write(json.dumps(corrected, indent=2) + "\n")
    part.replace(to)
    return [
        f"{to.name} corrected: {'; '.join(found.metadata)}"
        if found.metadata
        else f"{to.name} says how much was cut"
    ]
