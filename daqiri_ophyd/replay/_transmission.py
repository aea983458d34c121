"""Sends a packet source through a transmit queue."""

import contextlib
import os
import threading
import time
from dataclasses import dataclass

import numpy as np

from daqiri_ophyd.engine import NoSpaceAvailableError, NotReadyError, Port, TxQueue

from ._source import Chunk, PacketSource

__all__ = ["Transmission", "TransmissionError", "TransmissionProgress"]

# Packets are submitted this long before they are due: short enough for a prompt stop, long enough
# that a delay in Python does not delay the packets.
_HORIZON_NS = 250_000_000
_SLICE_PACKETS = 4096
_POLL_S = 0.05
# How long the thread waits for space, or for packets to leave, before it checks for a stop.
_WAIT_S = 0.01


class TransmissionError(RuntimeError):
    """A transmission failed."""


@dataclass(frozen=True, slots=True)
class TransmissionProgress:
    """Progress of a transmission.

    Parameters
    ----------
    submitted : int
        Packets submitted to the transmit queue.
    dropped : int
        Packets that the queue held when the transmission was stopped or failed, and dropped.
    packets : int
        Packets in total.
    running : bool
        Whether the transmission is running.
    first_launch_ns : int
        Time when the first packet was due on the port's clock, ns; 0 before the start.
    error : Exception or None
        Cause of a failure.
    """

    submitted: int
    dropped: int
    packets: int
    running: bool
    first_launch_ns: int
    error: Exception | None


class Transmission:
    """Sends a packet source through a queue, each packet at its time, on a separate thread.

    The thread only submits chunks; the engine does pacing and launch. During a pause no further
    packets are submitted; afterwards the remaining gaps are kept. A transmission that is stopped or
    fails leaves no packets in the queue: packets that have not left are dropped (`TxQueue.flush`).

    Parameters
    ----------
    port : Port
        Port of the queue; times are on its clock.
    queue : TxQueue
        Queue to send through.
    source : PacketSource
        Packets to send, with their times.
    start_delay : float
        Time from now to the first packet, s.
    timeout : float
        Longest time without space in the queue, s.
    """

    def __init__(
        self,
        port: Port,
        queue: TxQueue,
        source: PacketSource,
        *,
        start_delay: float = 0.1,
        timeout: float = 10.0,
    ) -> None:
        self._port = port
        self._queue = queue
        self._source = source
        self._start_delay_ns = round(start_delay * 1e9)
        self._timeout = timeout
        self._stopping = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._handing_over = threading.Lock()
        self._submitted = 0
        self._dropped = 0
        self._first_launch_ns = 0
        self._shift_ns = 0
        self._error: Exception | None = None
        self._ended = False
        # Not Thread.join: after Ctrl-C it treats the thread as ended (CPython 3.11).
        self._thread_done = threading.Event()
        self._event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        threading.Thread(target=self._run, name="daqiri-transmit", daemon=True).start()

    def fileno(self) -> int:
        """Return an eventfd that becomes readable when the transmission ends."""
        return self._event_fd

    def progress(self) -> TransmissionProgress:
        """Return the progress."""
        return TransmissionProgress(
            self._submitted,
            self._dropped,
            self._source.packets,
            not self._ended,
            self._first_launch_ns,
            self._error,
        )

    def pause(self) -> None:
        """Submit no further packets; submitted packets are still sent.

        It returns within about 10 ms; after that, no packet is submitted.
        """
        self._going.clear()
        with self._handing_over:
            pass

    def resume(self) -> None:
        """Continue with the remaining gaps."""
        self._going.set()

    def stop(self) -> None:
        """Submit no further packets, drop those that have not left, and end. Idempotent."""
        self._stopping.set()
        self._going.set()
        self._thread_done.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return False after ``timeout`` (s)."""
        return self._thread_done.wait(timeout)

    def close(self) -> None:
        """Stop and close the descriptor. Idempotent."""
        self.stop()
        if self._event_fd >= 0:
            os.close(self._event_fd)
            self._event_fd = -1

    def _run(self) -> None:
        try:
            self._first_launch_ns = self._port.now() + self._start_delay_ns
            for chunk in self._source.chunks():
                self._send(chunk)
                if self._stopping.is_set():
                    break
            self._drain()
        except Exception as error:
            self._error = error
        finally:
            try:
                if self._stopping.is_set() or self._error is not None:
                    self._flush()
            except Exception as error:
                self._error = self._error or error
            finally:
                self._ended = True
                os.eventfd_write(self._event_fd, 1)
                self._thread_done.set()

    def _send(self, chunk: Chunk) -> None:
        position = 0
        progressed = time.monotonic()
        while position < len(chunk):
            if self._wait_while_paused():
                progressed = time.monotonic()
            if self._stopping.is_set():
                return
            stop = self._due(chunk, position)
            if stop == position:
                self._stopping.wait(_POLL_S)
                progressed = time.monotonic()
                continue
            stuck = time.monotonic() - progressed > self._timeout
            with self._handing_over:
                if not self._going.is_set():
                    continue
                submitted = self._submit(chunk, slice(position, stop), last=stuck)
            if submitted:
                progressed = time.monotonic()
            position += submitted

    def _due(self, chunk: Chunk, position: int) -> int:
        """Return the index after the last packet to submit now."""
        limit = min(len(chunk), position + _SLICE_PACKETS)
        elapsed = self._port.now() - self._first_launch_ns - self._shift_ns
        if chunk.times is None:
            return limit if elapsed >= 0 else position
        horizon = elapsed + _HORIZON_NS
        due = int(np.searchsorted(chunk.times[position:limit], horizon, side="right"))
        return position + due

    def _submit(self, chunk: Chunk, part: slice, *, last: bool) -> int:
        """Submit the packets that fit within a moment; fail if none fit on the last try."""
        launch_times = None
        if chunk.times is not None:
            launch_times = chunk.times[part] + (self._first_launch_ns + self._shift_ns)
        try:
            submitted = self._queue.send(
                chunk.data,
                offsets=chunk.offsets[part],
                lengths=chunk.lengths[part],
                launch_times=launch_times,
                timeout=0.0 if last else None,
                within=_WAIT_S,
            )
        except NoSpaceAvailableError as error:
            submitted = error.submitted
            if not submitted:
                raise TransmissionError(
                    f"{self._submitted} of {self._source.packets} packets were submitted, then "
                    f"none for {self._timeout:g} s: {error}"
                ) from error
        self._submitted += submitted
        if chunk.verify is not None:
            chunk.verify()
        return submitted

    def _wait_while_paused(self) -> bool:
        if self._going.is_set():
            return False
        began = time.monotonic_ns()
        self._going.wait()
        self._shift_ns += time.monotonic_ns() - began
        return True

    def _flush(self) -> None:
        with contextlib.suppress(NotReadyError):  # a closed engine has dropped the packets
            self._dropped = self._queue.flush()

    def _drain(self) -> None:
        """Wait until the submitted packets have been sent."""
        limit = self._timeout + (_HORIZON_NS + self._start_delay_ns) / 1e9
        end = time.monotonic() + limit
        while not self._stopping.is_set() and not self._queue.wait_sent(_WAIT_S):
            if self._wait_while_paused():
                end = time.monotonic() + limit
            if self._stopping.is_set() or time.monotonic() < end:
                continue
            held = self._queue.counters().held
            raise TransmissionError(
                f"transmit queue {self._queue.name!r} still holds {held} packets {limit:g} s after "
                "the last was submitted"
            )
