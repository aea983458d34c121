"""Receive queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from daqiri_ophyd import _native
from daqiri_ophyd._native import RxQueueConfig

from ._burst import Burst
from ._counters import RxCounters
from ._errors import NotReadyError
from ._native_path import native_path
from ._queue import Queue
from ._recorder import (
    Recorder,
    RecorderGroup,
    RecordMetadata,
    metadata_text,
    require_counts,
)

__all__ = ["RxQueue"]


class _Bursts:
    """Iterator over bursts as they arrive; unlike a generator, threads may share it."""

    __slots__ = ("_ended", "_queue", "_timeout")

    def __init__(self, queue: RxQueue, timeout: float | None) -> None:
        self._queue = queue
        self._timeout = timeout
        self._ended = False

    def __iter__(self) -> _Bursts:
        return self

    def __next__(self) -> Burst:
        burst = None
        if not self._ended:
            try:
                burst = self._queue.receive(self._timeout)
            except NotReadyError:
                if not self._queue.closed:
                    raise
        if burst is None:
            self._ended = True
            raise StopIteration
        return burst


class RxQueue(Queue[RxQueueConfig, _native.RxQueue]):
    """A receive queue of a port.

    Any thread may receive; each burst goes to one of them. While the queue is being recorded, only
    the recorder receives.

    Attributes
    ----------
    config : RxQueueConfig
        Its part of the configuration.
    """

    @property
    def ring_capacity(self) -> int:
        """Number of bursts that fit into the queue's ring."""
        return self._native.ring_capacity

    @property
    def max_packet_size(self) -> int:
        """Bytes of the longest packet that fits into the queue's buffers."""
        return self._native.max_packet_size

    @property
    def closed(self) -> bool:
        """Whether the queue receives no more packets; those that it holds can still be read."""
        return self._native.closed

    def receive(self, timeout: float | None = 0.0) -> Burst | None:
        """Return the next burst.

        The interpreter lock is released during the wait; Ctrl-C ends it.

        Parameters
        ----------
        timeout : float or None
            Longest wait, s. 0: do not wait. None: no limit.

        Returns
        -------
        Burst or None
            None if no burst arrived in time.

        Raises
        ------
        NotReadyError
            If the engine is closed and all bursts were received (also when it is closed during the
            wait), or while the queue is being recorded.
        InvalidParameterError
            If the timeout is negative.
        GenericFailureError
            If packets were lost because the queue's GPU no longer works.
        NoFreePacketBuffersError
            If packets were lost because a recorder was just stopped and the queue's regions on a
            GPU had no buffers for the packets that arrived meanwhile.
        """
        burst = self._native.receive(timeout)
        return None if burst is None else Burst(burst)

    def receive_from(self, connection_id: int, timeout: float | None = 0.0) -> Burst | None:
        """Return the next burst of one connection.

        Parameters
        ----------
        connection_id : int
            Connection id, as in `Burst.connection_id`.
        timeout : float or None
            Longest wait, s. 0: do not wait. None: no limit.

        Returns
        -------
        Burst or None
            None if no burst arrived in time.

        Raises
        ------
        NotReadyError, GenericFailureError, NoFreePacketBuffersError
            As for `receive`.
        InvalidParameterError
            If there is no such connection, or the timeout is negative. The id of a UDP peer is
            retired when 65,536 other peers have sent packets since; its next packet has a new id.
        """
        burst = self._native.receive_from(connection_id, timeout)
        return None if burst is None else Burst(burst)

    def bursts(self, timeout: float | None) -> Iterator[Burst]:
        """Yield bursts as they arrive.

        It ends when no burst arrives within the timeout, or when the engine is closed and all
        bursts were received. Waiting uses no CPU; several threads may share one iterator.

        Parameters
        ----------
        timeout : float or None
            Longest wait for a burst, s. None: no limit.

        Yields
        ------
        Burst
            Release or drop it before the engine runs out of buffers.

        Raises
        ------
        NotReadyError
            If the queue is being recorded.
        GenericFailureError, NoFreePacketBuffersError
            As for `receive`.
        """
        return _Bursts(self, timeout)

    def counters(self) -> RxCounters:
        """Return the counters, consistent with each other."""
        return RxCounters(**self._native.counters())

    def rates(self) -> tuple[float, float]:
        """Return packets and bytes received per second, over the last second.

        They cover a second to 1.1 s until now, less only in the engine's first second. They are 0
        for a closed engine.
        """
        return self._native.rates()

    def flush(self) -> None:
        """Discard all packets that have arrived so far, counted as ``flushed``.

        Frames of its reorder plans are discarded as well, including open ones, unless
        `ReorderPlan.frames` or a recorder takes them.

        Raises
        ------
        NotReadyError
            If the engine is closed.
        """
        self._native.flush()

    def record(
        self,
        directory: str | Path,
        prefix: str = "capture",
        *,
        first_number: int = 0,
        format: Literal["pcap", "raw"] = "pcap",
        nanosecond: bool = True,
        packet_data_offset: int = 0,
        writer: Literal["buffered", "direct", "auto"] = "buffered",
        on_error: Literal["stop", "resume"] = "stop",
        durable: bool = False,
        roll_packets: int = 0,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
        max_packets: int = 0,
        max_seconds: float = 0.0,
        start_flow: int | None = None,
        group: RecorderGroup | None = None,
        metadata: RecordMetadata | None = None,
    ) -> Recorder:
        """Record the queue to files, on a native thread.

        Files are named ``<prefix>_<number>.pcap``, with six digits. Each has a metadata file
        ``<prefix>_<number>.pcap.json``. With format ``raw`` the suffix is ``.raw``, and a file
        contains only the packets, back to back. Its index is ``<prefix>_<number>.raw.npy``: an
        array with a row for each packet, ``offset`` and ``length`` in the file, ``flow``, and
        ``timestamp`` in ns (`numpy.load` with ``mmap_mode="r"`` reads it at any time).

        Parameters
        ----------
        directory : str or Path
            An existing directory.
        prefix : str
            Beginning of the file names.
        first_number : int
            Number of the first file.
        format : {"pcap", "raw"}
            Classic pcap, or packets back to back with an index.
        nanosecond : bool
            pcap: resolution of time stamps, ns or else µs.
        packet_data_offset : int
            raw: bytes to skip at the beginning of each packet.
        writer : {"buffered", "direct", "auto"}
            ``buffered`` writes through the page cache, which accepts bursts at memory speed.
            ``direct`` bypasses the page cache: the sustained rate is higher, and up to one second
            of packets is not in the file yet. If the file system does not support it, ``direct``
            falls back to ``buffered``, with a warning in the log that has the cause. ``auto`` uses
            ``direct`` if the file system supports it.
        on_error : {"stop", "resume"}
            After an error (disk full, directory removed): count packets as lost until the
            recorder is stopped, or try to continue twice a second, in a new file unless the current
            one is empty. Until then the file stays the current one, and its metadata has the loss.
        durable : bool
            Complete a file only when it is on disk (``fdatasync``).
        roll_packets, roll_bytes : int
            Begin a new file after this many packets, or bytes of records (pcap: 16 bytes of header
            plus the packet); 0: no limit.
        roll_seconds : float
            Begin a new file after this time, s; 0: no limit.
        max_packets : int
            Stop after exactly this many packets; 0: no limit.
        max_seconds : float
            Stop after this time, s, with the data that has arrived; 0: no limit. The clock stops
            while the recorder is paused.
        start_flow : int, optional
            Begin with the first packet that has this flow id; earlier packets are left out
            (``before_start`` in the metadata file) and do not count towards limits.
        group : RecorderGroup, optional
            Group of recorders of other queues whose files belong together with those of this queue.
            The limits are then those of the group.
        metadata : mapping, optional
            Run and detector that files report, as for `Recorder.describe`.

        Returns
        -------
        Recorder
            Running; a context manager that stops it.

        Raises
        ------
        InvalidParameterError
            If the directory does not exist, the first file exists, a number is negative, a choice
            is not one of those above, or there is a limit or a start in addition to those of a
            group.
        NotReadyError
            If the queue is already being recorded, or the engine is closed.
        GenericFailureError
            If the first file cannot be written.
        """
        numbers = {
            "first_number": first_number,
            "packet_data_offset": packet_data_offset,
            "roll_packets": roll_packets,
            "roll_bytes": roll_bytes,
            "max_packets": max_packets,
        }
        require_counts(numbers | ({} if start_flow is None else {"start_flow": start_flow}))
        native = self._native.record(
            native_path(Path(directory).absolute()),
            prefix,
            format=format,
            nanosecond=nanosecond,
            writer=writer,
            on_error=on_error,
            durable=durable,
            roll_seconds=roll_seconds,
            max_seconds=max_seconds,
            start_flow=start_flow,
            group=group,
            metadata=metadata_text(metadata),
            **numbers,
        )
        return Recorder(native)

    def __repr__(self) -> str:
        return f"<RxQueue {self.name!r} of port {self._port_name!r}>"
