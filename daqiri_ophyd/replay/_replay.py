"""Capture files as packets with their original gaps."""

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
    """Captures that cannot be put on the wire as asked."""


@dataclass(frozen=True, slots=True)
class _Survey:
    link_type: int
    packets: int
    first_ns: int
    last_ns: int


class Replay:
    """Packets of pcap files, due with their original gaps.

    Ethernet frames go to Ethernet ports as they are. Raw IP captures, which socket ports leave, go
    to socket ports as the UDP payload that they were received as. Files are read as they are sent,
    a chunk at a time.

    Parameters
    ----------
    files : iterable of path
        Classic pcap files, in order; gaps between files are kept as well.
    link_type : int
        Of the port to send on: 1 Ethernet, 101 sockets.
    speed : float
        Factor on time: 2.0 halves the gaps.
    max_gap_ns : int, optional
        Longest gap, ns of the original time; longer ones are cut to this.
    chunk_packets : int
        Packets a chunk.

    Raises
    ------
    ReplayError
        If there is no file, a file's link type does not fit the port, or speed or gap are not
        positive.
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
        """Time between the first and the last packet, ns; an upper limit if gaps are cut."""
        return max(0, round(self._original_ns / self._speed))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets of all files in order.

        Raises
        ------
        ReplayError
            If packets were cut when they were captured, or hold no UDP payload for a socket port.
        """
        before: int | None = None  # timestamp of the packet before
        elapsed = 0
        for file in self._files:
            with PcapFile(file) as pcap:
                self._require_whole(pcap, file)
                offsets, lengths = self._packets_of(pcap, file)
                for first in range(0, len(pcap), self._chunk_packets):
                    part = slice(first, first + self._chunk_packets)
                    stamps = pcap.timestamps[part]
                    gaps = np.diff(stamps, prepend=stamps[0] if before is None else before)
                    # Several queues, or a clock that was set, can leave stamps out of order.
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
                "sends nothing else."
            )
        return offsets, lengths

    def _survey(self, file: Path) -> _Survey:
        # Metadata beside the file spares reading all of it before the first packet leaves.
        if not file.is_file():
            raise FileNotFoundError(f"{file} cannot be replayed: there is no such file.")
        if file.suffix == ".raw":
            raise ReplayError(
                f"{file} cannot be replayed: raw files may lack what the packets began with. "
                "Record with format pcap what is to be sent again."
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
                "kind that it was captured on."
            )
        return survey

    @staticmethod
    def _require_whole(pcap: PcapFile, file: Path) -> None:
        cut = int(np.count_nonzero(pcap.lengths < pcap.wire_lengths))
        if cut:
            raise ReplayError(
                f"{cut} of {len(pcap)} packets in {file} were cut when they were captured, and "
                "cannot be sent as they were. Capture them with a larger snap length."
            )
