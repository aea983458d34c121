"""Packet source: captured packets with their original gaps."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import LINKTYPE_ETHERNET, LINKTYPE_RAW, Packets, PcapFile, ethernet
from daqiri_ophyd.ship import StoredObject, fetch_ahead

from ._capture_times import CaptureTimes
from ._pace import ReplayPace
from ._rewrite import Rewrite
from ._selection import Selection
from ._source import Chunk, ReplayError
from ._tcp import TcpStream, split

__all__ = ["Replay"]

_log = logging.getLogger(__name__)

_LINK_NAMES = {LINKTYPE_ETHERNET: "Ethernet frames", LINKTYPE_RAW: "raw IP packets"}
_CHUNK_BYTES = 8 << 20

_File: TypeAlias = Path | Packets | StoredObject


@dataclass(frozen=True, slots=True)
class _Head:
    """Contents of a file, from its metadata file or its record headers."""

    link_type: int
    packets: int
    first_ns: int
    last_ns: int
    recorded: bool  # written by a recorder, with a metadata file


@dataclass(frozen=True, slots=True)
class _Survey:
    """The part of a file that is sent in one loop."""

    file: _File
    first: int  # number of the file's first packet
    checked: bool  # all of its packets have been accepted
    packets: int
    bytes: int


class Replay:
    """Captured packets, or a part of them, with their original gaps.

    Ethernet frames are sent on Ethernet ports, unchanged unless `rewrite` is given. Raw IP
    captures, recorded on socket ports, are sent on socket ports: the payload of each datagram on
    UDP, the byte stream of one connection on TCP. Files are read while they are sent, one chunk at
    a time. A selection, or a TCP capture, is read through once before sending.

    If time stamps are out of order, as those of several queues can be, a packet is sent when the
    latest of the stamps until then was: the packets take as long as they did. A step back of more
    than a second is logged as a warning; the packet is sent at once, and those after it with their
    gaps from it.

    Parameters
    ----------
    files : iterable of path, Packets or StoredObject
        Pcap files, or selected packets of one, in order; gaps between files are kept, too. An
        object of a store is fetched while the file before it is sent.
    link_type : int
        Link type of the port to send on: 1 Ethernet, 101 sockets.
    speed : float
        Factor on time: 2.0 halves the gaps.
    max_gap_ns : int, optional
        Longest gap, ns of the original time; longer gaps are shortened to it.
    between_ns, packet_range, select
        Part to send; see `Selection`.
    loops : int
        Number of times to send it.
    loop_gap_ns : int, optional
        Gap from the last packet to the first of the next loop, ns of the original time. Default:
        the mean gap of the packets; 0 for a single packet.
    rewrite : dict, optional
        Addresses and ports to put into Ethernet frames; see `Rewrite`.
    segment_size : int, optional
        For a TCP port: longest packet, bytes, that its queue sends (`segment_size`). Longer records
        are sent in pieces.
    chunk_packets : int
        Packets per chunk.

    Raises
    ------
    ReplayError
        If there is no file, a file's link type does not match the port, no packet is selected, a
        packet cannot be sent on the port, or an option is not valid.
    FileNotFoundError
        If a file is missing.
    """

    def __init__(
        self,
        files: Iterable[str | os.PathLike[str] | Packets | StoredObject],
        *,
        link_type: int,
        speed: float = 1.0,
        max_gap_ns: int | None = None,
        between_ns: Sequence[int | None] | None = None,
        packet_range: Sequence[int | None] | None = None,
        select: Mapping[str, Any] | None = None,
        loops: int = 1,
        loop_gap_ns: int | None = None,
        rewrite: Mapping[str, Any] | None = None,
        segment_size: int | None = None,
        chunk_packets: int = 16_384,
    ) -> None:
        inputs = [f if isinstance(f, Packets | StoredObject) else Path(f) for f in files]
        if not inputs:
            raise ReplayError("There is no file to replay.")
        self._pace = ReplayPace(
            speed=speed, max_gap_ns=max_gap_ns, loops=loops, loop_gap_ns=loop_gap_ns
        )
        if rewrite and link_type != LINKTYPE_ETHERNET:
            raise ReplayError(
                "rewrite changes Ethernet frames; on a socket port, packets have the addresses of "
                "its configuration."
            )
        self._link_type = link_type
        self._selection = Selection(between_ns, packet_range, select)
        self._rewrite = Rewrite(rewrite) if rewrite else None
        self._segment_size = segment_size
        self._chunk_packets = chunk_packets
        self._start_ns = 0
        self._files = self._survey_all(inputs)
        self._once = sum(file.packets for file in self._files)
        self._bytes = sum(file.bytes for file in self._files) * loops
        self._reported: set[int] = set()  # where time stamps step back
        first = next((each.file for each in self._files if each.packets), None)
        if isinstance(first, StoredObject):
            first.fetch()  # before its packets are due

    @property
    def packets(self) -> int:
        """Number of packets to send in all loops."""
        return self._once * self._pace.loops

    @property
    def stream_bytes(self) -> int | None:
        """Bytes of the stream to send on a TCP port; None on other ports."""
        return None if self._segment_size is None else self._bytes

    @property
    def duration_ns(self) -> int:
        """Time between the first and the last packet, ns; an upper limit if gaps are shortened."""
        return self._pace.duration_ns(self._once, self._original_ns)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets of all files in order.

        Raises
        ------
        ReplayError
            If packets were truncated at capture, or the port cannot send them.
        """
        began = 0
        for _ in range(self._pace.loops):
            times = self._pace.times()
            number = 0
            for part, describe in self._parts():
                due, anew = times.of(part.timestamps)
                for at, step_ns in anew:
                    self._report(number + at, describe(at), step_ns)
                number += len(part)
                yield from self._chunks_of(part, self._pace.scaled(began + due), describe)
            began += times.elapsed_ns + self._pace.loop_gap(self._once, times.elapsed_ns)

    def _report(self, number: int, packet: str, step_ns: int) -> None:
        """Log once that time stamps step back."""
        if number in self._reported:
            return
        self._reported.add(number)
        _log.warning(
            "%s has a time stamp %.1f s before that of an earlier packet: a clock was set, or the "
            "files are not in order. It is sent at once, and those after it with their gaps from "
            "it.",
            packet,
            step_ns / 1e9,
        )

    def _chunks_of(
        self, part: Packets, times: NDArray[np.int64], describe: Callable[[int], str]
    ) -> Iterator[Chunk]:
        if self._rewrite is not None:
            step = max(1, _CHUNK_BYTES // max(1, int(part.lengths.max())))
            for first in range(0, len(part), step):
                some = part[first : first + step]
                rows = self._rewrite.rows(some)
                offsets = np.arange(len(rows), dtype=np.int64) * rows.shape[1]
                lengths = some.lengths.astype(np.int64)
                yield Chunk(rows.reshape(-1), offsets, lengths, times[first : first + step])
            return
        offsets, lengths = self._contents(part, describe)
        if self._segment_size is not None:
            offsets, lengths, times = split(offsets, lengths, times, self._segment_size)
        if len(offsets):
            yield Chunk(part.data, offsets, lengths, times, part.verify)

    def _contents(
        self, part: Packets, describe: Callable[[int], str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of the data that the port sends in the packets."""
        if self._link_type == LINKTYPE_ETHERNET:
            return np.ascontiguousarray(part.offsets), part.lengths.astype(np.int64)
        if self._segment_size is not None:
            columns = part.to_columns(["payload_offset", "payload_length"])
            return columns["payload_offset"], columns["payload_length"].astype(np.int64)
        offsets, lengths = ethernet.udp_payload(part)
        if np.any(lengths < 0):
            at = int(np.argmax(lengths < 0))
            raise ReplayError(
                f"{describe(at)} is not a UDP datagram; a UDP port sends only packets captured on "
                "a UDP port."
            )
        return offsets, lengths

    # --- Reading the files

    def _parts(self) -> Iterator[tuple[Packets, Callable[[int], str]]]:
        """Yield the packets to send in parts, with a function that names a packet of the part."""
        wanted = [survey for survey in self._files if survey.packets]
        for survey, following in zip_longest(wanted, wanted[1:]):
            # Fetched already, unless it is the first.
            opened = _open(survey.file)
            if following is not None:
                fetch_ahead(following.file)
            with opened as packets:
                if not survey.checked:
                    _require_whole(packets, survey.file)
                yield from self._selected(survey.file, packets, survey.first)

    def _selected(
        self, file: _File, packets: Packets, first: int
    ) -> Iterator[tuple[Packets, Callable[[int], str]]]:
        for at in range(0, len(packets), self._chunk_packets):
            part = packets[at : at + self._chunk_packets]
            if self._selection:
                part = self._selection.of(part, first + at, self._start_ns)
            if len(part):
                yield part, _describe(file, packets, part)

    def _survey_all(self, files: list[_File]) -> list[_Survey]:
        surveys: list[_Survey] = []
        times = CaptureTimes()
        stream = TcpStream()
        first = 0
        for file in files:
            head = _head(file)
            self._require_link_type(head.link_type, file)
            if first == 0:
                self._start_ns = head.first_ns
            surveys.append(self._survey(file, head, first, stream, times))
            first += head.packets
        if self._selection and not any(survey.packets for survey in surveys):
            names = str(_name(files[0])) + (f" and {len(files) - 1} more" if files[1:] else "")
            raise ReplayError(f"{self._selection}: none of the {first} packets of {names} match.")
        self._original_ns = times.elapsed_ns
        return surveys

    def _survey(
        self,
        file: _File,
        head: _Head,
        first: int,
        stream: TcpStream,
        times: CaptureTimes,
    ) -> _Survey:
        ends = head.first_ns, head.last_ns
        if self._selection.leaves_out(first, head.packets, *ends, self._start_ns):
            return _Survey(file, first, True, 0, 0)
        rules = (self._selection, self._rewrite, self._segment_size)
        if head.recorded and not any(rules):
            # The file is not read before its packets are sent.
            if head.packets:
                times.of(np.array(ends, np.int64))
            return _Survey(file, first, False, head.packets, 0)
        count = size = 0
        with _open(file) as packets:
            for part, describe in self._selected(file, packets, first):
                _require_whole(part, file)
                if self._segment_size is not None:
                    stream.check(part, describe)
                if self._rewrite is not None:
                    self._rewrite.check(part, describe)
                _, lengths = self._contents(part, describe)
                count += self._pieces(lengths)
                size += int(lengths.sum())
                times.of(part.timestamps)
        return _Survey(file, first, True, count, size)

    def _pieces(self, lengths: NDArray[np.int64]) -> int:
        return (
            int((-(-lengths // self._segment_size)).sum()) if self._segment_size else len(lengths)
        )

    def _require_link_type(self, found: int, file: _File) -> None:
        if found != self._link_type:
            kind = _LINK_NAMES.get(found, f"packets of link type {found}")
            wanted = _LINK_NAMES.get(self._link_type, f"link type {self._link_type}")
            raise ReplayError(
                f"{_name(file)} holds {kind}, and this port sends {wanted}. Replay it on a port of "
                "the same kind as it was captured on."
            )


def _open(file: _File) -> AbstractContextManager[Packets]:
    if isinstance(file, StoredObject):
        file = file.fetch()
    return PcapFile(file) if isinstance(file, Path) else nullcontext(file)


def _name(file: _File) -> _File | str:
    return (
        file
        if isinstance(file, Path | StoredObject)
        else getattr(file, "path", "a selection of packets")
    )


def _head(file: _File) -> _Head:
    if isinstance(file, Path | StoredObject):
        if isinstance(file, Path) and not file.is_file():
            raise FileNotFoundError(f"{file} cannot be replayed: there is no such file.")
        if file.suffix == ".raw":
            raise ReplayError(
                f"{file} cannot be replayed: in raw files the beginning of packets may be missing. "
                "Record with format pcap to replay."
            )
        if file.suffix == ".h5":
            raise ReplayError(
                f"{file} cannot be replayed: it has frames, without the headers of their packets. "
                "Replay a run with a capture of packets, or send the frames of a run with the plan "
                "replay."
            )
        sidecar = file.sidecar if isinstance(file, StoredObject) else read_sidecar(file)
        if sidecar is not None:
            ends = sidecar.t_first_ns, sidecar.t_last_ns
            return _Head(sidecar.link_type, sidecar.packets, *ends, True)
    with _open(file) as packets:
        stamps = packets.timestamps
        ends = (int(stamps[0]), int(stamps[-1])) if len(packets) else (0, 0)
        return _Head(packets.link_type, len(packets), *ends, False)


def _describe(file: _File, packets: Packets, part: Packets) -> Callable[[int], str]:
    def describe(index: int) -> str:
        number = np.searchsorted(packets.offsets, part.offsets[index])
        return f"Packet {number} of {_name(file)}"

    return describe


def _require_whole(packets: Packets, file: _File) -> None:
    cut = int(np.count_nonzero(packets.lengths < packets.wire_lengths))
    if cut:
        raise ReplayError(
            f"{cut} of {len(packets)} packets in {_name(file)} were cut when they were captured, "
            "so they cannot be replayed. Capture them with a larger snap length."
        )
