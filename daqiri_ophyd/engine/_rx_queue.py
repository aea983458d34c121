"""Receive queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from daqiri_ophyd import _native
from daqiri_ophyd._native import RxQueueConfig

from ._burst import Burst
from ._counters import RxCounters
from ._errors import InvalidParameterError, NotReadyError
from ._queue import Queue
from ._recorder import Recorder

__all__ = ["RxQueue"]


class _Bursts:
    """Bursts of a queue as they arrive; a generator could not be shared by threads."""

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

    Any thread may receive; a burst goes to one of them. While a recorder has the queue, nobody
    else does.

    Attributes
    ----------
    config : RxQueueConfig
        Its part of the configuration.
    """

    @property
    def ring_capacity(self) -> int:
        """Bursts that can wait in the queue."""
        return self._native.ring_capacity

    @property
    def max_packet_size(self) -> int:
        """Bytes of the longest packet that fits."""
        return self._native.max_packet_size

    @property
    def closed(self) -> bool:
        """Whether nothing more arrives; what the queue holds can still be received."""
        return self._native.closed

    def receive(self, timeout: float | None = 0.0) -> Burst | None:
        """Return the next burst.

        Other threads of Python run while it waits; Ctrl-C ends the wait.

        Parameters
        ----------
        timeout : float or None
            Longest wait, s. 0: do not wait. None: no limit.

        Returns
        -------
        Burst or None
            None if nothing came in time.

        Raises
        ------
        NotReadyError
            If the engine is closed and all bursts were received (also when it is closed during the
            wait), or while the queue is being recorded.
        InvalidParameterError
            If the timeout is negative.
        """
        burst = self._native.receive(timeout)
        return None if burst is None else Burst(burst)

    def receive_from(self, connection_id: int, timeout: float | None = 0.0) -> Burst | None:
        """Return the next burst of one connection.

        Parameters
        ----------
        connection_id : int
            As `Burst.connection_id` has it.
        timeout : float or None
            Longest wait, s. 0: do not wait. None: no limit.

        Returns
        -------
        Burst or None
            None if nothing came in time.

        Raises
        ------
        NotReadyError
            As `receive`.
        InvalidParameterError
            If there is no such connection (any more: a UDP peer that 1023 others displaced has its
            next packet under another id), or the timeout is negative.
        """
        burst = self._native.receive_from(connection_id, timeout)
        return None if burst is None else Burst(burst)

    def bursts(self, timeout: float | None) -> Iterator[Burst]:
        """Yield bursts as they arrive.

        It ends when nothing has arrived for a while, or when the engine is closed and all bursts
        were received. Waiting costs nothing; several threads may share one iterator.

        Parameters
        ----------
        timeout : float or None
            Longest wait for a burst, s. None: no limit.

        Yields
        ------
        Burst
            To be released, or dropped, before the engine runs out of buffers.

        Raises
        ------
        NotReadyError
            While the queue is being recorded.
        """
        return _Bursts(self, timeout)

    def counters(self) -> RxCounters:
        """Return what became of the packets so far; consistent in itself."""
        return RxCounters(*self._native.counters())

    def flush(self) -> None:
        """Drop all packets that arrived up to now, counted as ``flushed``.

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
    ) -> Recorder:
        """Record the queue to files, on a thread that knows nothing of Python.

        Files are ``<prefix>_<number>.pcap`` with six digits, each with its metadata beside it in
        ``<prefix>_<number>.pcap.json``; or ``.raw`` in place of ``.pcap``, with the packets back
        to back and nothing else. ``<prefix>_<number>.raw.npy`` is the index then: an array with a
        row for each packet, ``offset`` and ``length`` in the file, ``flow``, ``timestamp`` in ns
        (`numpy.load` with ``mmap_mode="r"`` reads it at any moment).

        Parameters
        ----------
        directory : str or Path
            An existing directory.
        prefix : str
            Beginning of the file names.
        first_number : int
            Number of the first file. Later ones leave out a number that another file has.
        format : {"pcap", "raw"}
            Classic pcap, or packets back to back with an index.
        nanosecond : bool
            pcap: resolution of time stamps: ns, else µs.
        packet_data_offset : int
            raw: bytes that are left out at the beginning of each packet.
        writer : {"buffered", "direct", "auto"}
            Through the page cache, which takes bursts at the speed of memory; or past it, which
            takes more in the long run and holds back up to a second of packets; or the latter
            where the file system allows it. ``direct`` where they do not is
            ``buffered``, with a warning in the log that says why.
        on_error : {"stop", "resume"}
            After an error (disk full, directory gone): count what comes as lost until the
            recorder is stopped, or try to go on twice a second, in a new file if there is anything
            in the old one. Until then the file stays the current one: its metadata tell the loss.
        durable : bool
            A file is complete only once the disk has it (``fdatasync``).
        roll_packets, roll_bytes : int
            Begin a new file after so many packets, or bytes of records (pcap: 16 bytes of header
            and the packet, each); 0: no limit.
        roll_seconds : float
            Begin a new file after so many seconds; 0: no limit.
        max_packets : int
            Stop after exactly so many packets; 0: no limit.

        Returns
        -------
        Recorder
            Running; a context manager that stops it.

        Raises
        ------
        InvalidParameterError
            If the directory does not exist, the first file does, a number is negative, or a word is
            none of those above.
        NotReadyError
            If the queue is being recorded already, or the engine is closed.
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
        for name, value in numbers.items():
            if value < 0:
                raise InvalidParameterError(f"{name} is {value}; accepted is 0 or more")
        native = self._native.record(
            str(Path(directory).absolute()),
            prefix,
            format=format,
            nanosecond=nanosecond,
            writer=writer,
            on_error=on_error,
            durable=durable,
            roll_seconds=roll_seconds,
            **numbers,
        )
        return Recorder(native)

    def __repr__(self) -> str:
        return f"<RxQueue {self.name!r} of port {self._port_name!r}>"
