"""Packet source: capture files with their original gaps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import LINKTYPE_ETHERNET, LINKTYPE_RAW, PcapFile, frames

from ._source import Chunk

__all__ = ["Replay", "ReplayError"]

_LINK_NAMES = {LINKTYPE_ETHERNET: "Ethernet frames", LINKTYPE_RAW: "raw IP packets"}


class ReplayError(ValueError):
    """Captures that cannot be replayed as requested."""


@dataclass(frozen=True, slots=True)
class _Survey:
    link_type: int
    packets: int
    first_ns: int
    last_ns: int


class Replay:
    """Packets of pcap files, with their original gaps.

    Ethernet frames are sent unchanged on Ethernet ports. Raw IP captures, made on socket ports, are
    sent on socket ports as the UDP payload that was received. Files are read while they are sent,
    one chunk at a time.

    Parameters
    ----------
    files : iterable of path
        Classic pcap files, in order; gaps between files are kept too.
    link_type : int
        Link type of the port to send on: 1 Ethernet, 101 sockets.
    speed : float
        Factor on time: 2.0 halves the gaps.
    max_gap_ns : int, optional
        Longest gap, ns of the original time; longer gaps are shortened to it.
    chunk_packets : int
        Packets per chunk.

    Raises
    ------
    ReplayError
        If there is no file, a file's link type does not match the port, the speed is not positive,
        or the gap is negative.
    FileNotFoundError
        If a file is missing.
    """

    def __init__(
        self,
        files: Iterable[str | Path],
        *,
        link_type: int,
        speed: float = 1.0,
        max_gap_ns: int | None = None,
        chunk_packets: int = 16_384,
    ) -> None:
        self._files = [Path(file) for file in files]
        if not self._files:
            raise ReplayError("There is no file to replay.")
        if not 0.0 < speed < float("inf"):
            raise ReplayError(f"speed is {speed}; accepted is a positive factor.")
        if max_gap_ns is not None and max_gap_ns < 0:
            raise ReplayError(f"max_gap_ns is {max_gap_ns}; accepted is 0 or more.")
        self._link_type = link_type
        self._speed = speed
        self._max_gap_ns = max_gap_ns
        self._chunk_packets = chunk_packets
        surveys = [self._survey(file) for file in self._files]
        self._packets = sum(survey.packets for survey in surveys)
        filled = [survey for survey in surveys if survey.packets]
        self._original_ns = filled[-1].last_ns - filled[0].first_ns if filled else 0

    @property
    def files(self) -> list[Path]:
        """The files, in order."""
        return list(self._files)

    @property
    def packets(self) -> int:
        """Number of packets."""
        return self._packets

    @property
    def duration_ns(self) -> int:
        """Time between the first and the last packet, ns; an upper limit if gaps are shortened."""
        return max(0, round(self._original_ns / self._speed))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets of all files in order.

        Raises
        ------
        ReplayError
            If packets were truncated at capture, or have no UDP payload for a socket port.
        """
        before: int | None = None  # timestamp of the previous packet
        elapsed = 0
        for file in self._files:
            with PcapFile(file) as pcap:
                self._require_whole(pcap, file)
                offsets, lengths = self._packets_of(pcap, file)
                for first in range(0, len(pcap), self._chunk_packets):
                    part = slice(first, first + self._chunk_packets)
                    stamps = pcap.timestamps[part]
                    gaps = np.diff(stamps, prepend=stamps[0] if before is None else before)
                    # With several queues, or a clock that was set, stamps may be out of order.
                    np.clip(gaps, 0, self._max_gap_ns, out=gaps)
                    times = elapsed + np.cumsum(gaps)
                    before, elapsed = int(stamps[-1]), int(times[-1])
                    yield Chunk(
                        pcap.data, offsets[part], lengths[part], self._scaled(times), pcap.verify
                    )

    def _scaled(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._speed == 1.0:
            return times
        return np.rint(times / self._speed).astype(np.int64)

    def _packets_of(
        self, pcap: PcapFile, file: Path
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._link_type == LINKTYPE_ETHERNET:
            return pcap.offsets, pcap.lengths.astype(np.int64)
        offsets, lengths = frames.udp_payload(pcap)
        if np.any(lengths < 0):
            raise ReplayError(
                f"Packet {int(np.argmax(lengths < 0))} of {file} is no UDP datagram; a socket port "
                "sends only UDP payloads."
            )
        return offsets, lengths

    def _survey(self, file: Path) -> _Survey:
        # With a metadata file, the pcap file is not read before the first packet is sent.
        if not file.is_file():
            raise FileNotFoundError(f"{file} cannot be replayed: there is no such file.")
        if file.suffix == ".raw":
            raise ReplayError(
                f"{file} cannot be replayed: in raw files the beginning of packets may be missing. "
                "Record with format pcap to replay."
            )
        sidecar = read_sidecar(file)
        if sidecar is not None:
            survey = _Survey(
                sidecar.link_type, sidecar.packets, sidecar.t_first_ns, sidecar.t_last_ns
            )
        else:
            with PcapFile(file) as pcap:
                stamps = pcap.timestamps
                ends = (int(stamps[0]), int(stamps[-1])) if len(pcap) else (0, 0)
                survey = _Survey(pcap.link_type, len(pcap), *ends)
        if survey.link_type != self._link_type:
            kind = _LINK_NAMES.get(survey.link_type, f"packets of link type {survey.link_type}")
            wanted = _LINK_NAMES.get(self._link_type, f"link type {self._link_type}")
            raise ReplayError(
                f"{file} holds {kind}, and this port sends {wanted}. Replay it on a port of the "
                "same kind as it was captured on."
            )
        return survey

    @staticmethod
    def _require_whole(pcap: PcapFile, file: Path) -> None:
        cut = int(np.count_nonzero(pcap.lengths < pcap.wire_lengths))
        if cut:
            raise ReplayError(
                f"{cut} of {len(pcap)} packets in {file} were cut when they were captured, so "
                "they cannot be replayed. Capture them with a larger snap length."
            )
