"""Transmit queues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daqiri_ophyd import _native
from daqiri_ophyd._native import TxQueueConfig

from ._counters import Lateness, TxCounters
from ._errors import (
    BY_STATUS,
    DaqiriError,
    InvalidParameterError,
    NoSpaceAvailableError,
    Status,
)
from ._queue import Queue

__all__ = ["TxQueue"]


class TxQueue(Queue[TxQueueConfig, _native.TxQueue]):
    """A transmit queue of a port.

    Attributes
    ----------
    config : TxQueueConfig
        Its part of the configuration.
    """

    @property
    def batch_size(self) -> int:
        """Largest number of packets in a burst."""
        return self.config.batch_size

    @property
    def max_packet_size(self) -> int:
        """Bytes of the longest packet that can be sent."""
        return self._native.max_packet_size

    def send(
        self,
        packets: NDArray[np.uint8] | Sequence[bytes | bytearray | memoryview | NDArray[np.uint8]],
        *,
        lengths: ArrayLike | None = None,
        offsets: ArrayLike | None = None,
        launch_times: ArrayLike | None = None,
        connection_id: int = 0,
        timeout: float | None = 5.0,
        within: float | None = None,
    ) -> int:
        """Submit packets for transmission.

        They are copied into the engine's buffers, with the interpreter lock released, and sent from
        there; `wait_sent` waits until they are sent. If any packet is not valid, none is submitted.
        Ctrl-C ends the wait for buffers; the counters then have the number of submitted packets.

        Parameters
        ----------
        packets : ndarray of uint8 or sequence of bytes-like
            Shape (n, width): one packet per row. Shape (size,): packets begin at `offsets`, as in
            `PcapFile.data`. Otherwise a list with one bytes object or uint8 array per packet.
        lengths : array_like of int, shape (n,), optional
            Bytes of each packet. Rows are cut to it; required with `offsets`.
        offsets : array_like of int, shape (n,), optional
            Offset of each packet in a 1-D array.
        launch_times : array_like of int, shape (n,), optional
            Time to send each packet, ns on the port's clock (`Port.now`). 0 or a time in the past:
            at once. Packets keep their order.
        connection_id : int
            Destination, as in `Burst.connection_id`; 0: a client's server, or the peer from which a
            server received last.
        timeout : float or None
            Longest time without a free buffer, s, including waits for launch times. None: no
            limit.
        within : float or None
            Return after this time, s, with the packets for which buffers were free, for a
            thread that must do other work meanwhile. None: no limit.

        Returns
        -------
        int
            Packets submitted: all of them, unless ``within`` ended the call.

        Raises
        ------
        InvalidParameterError
            If a shape or type is not accepted, a packet is outside the data or does not fit into a
            buffer, or a time is negative.
        ConnectFailureError
            If packets have no destination: a server has no peer yet, or the connection is closed or
            unknown. Packets of a TCP client wait instead while its server cannot be reached.
        NoSpaceAvailableError
            If no buffer was free in time.
        NotReadyError
            If the engine is closed.

        Of the last three, ``submitted`` is the number of packets that were accepted before.
        """
        times = _integers("launch_times", launch_times)
        if isinstance(packets, np.ndarray):
            sizes, starts = _integers("lengths", lengths), _integers("offsets", offsets)
            count = _count_packets(packets, sizes, starts)
            submitted, status, reason = self._native.send_array(
                _rows_of_bytes(packets),
                offsets=starts,
                lengths=sizes,
                launch_times=times,
                connection_id=connection_id,
                timeout=timeout,
                within=within,
            )
        else:
            if isinstance(packets, (bytes, bytearray, memoryview, str)):
                raise InvalidParameterError(
                    f"packets is {type(packets)}; accepted is a list of packets: send([packet])"
                )
            if lengths is not None or offsets is not None:
                raise InvalidParameterError(
                    "lengths and offsets require an array; packets of a list have their own lengths"
                )
            count = len(packets)
            submitted, status, reason = self._native.send_list(
                packets,
                launch_times=times,
                connection_id=connection_id,
                timeout=timeout,
                within=within,
            )
        if status == Status.SUCCESS:
            return submitted
        # Created in another function: an error that its own frame refers to would keep the engine
        # until a garbage collection.
        raise self._error(submitted, reason, status, count, timeout)

    def _error(
        self, submitted: int, reason: str, status: int, count: int, timeout: float | None
    ) -> DaqiriError:
        error = (
            BY_STATUS[status](reason)
            if reason
            else NoSpaceAvailableError(self._timeout_message(submitted, count, status, timeout))
        )
        error.submitted = submitted
        return error

    def _timeout_message(
        self, submitted: int, count: int, status: int, timeout: float | None
    ) -> str:
        missing, fix = {
            Status.NO_FREE_BURST_BUFFERS: ("burst", "raise tx_meta_buffers"),
            Status.NO_FREE_PACKET_BUFFERS: (
                "packet buffer",
                f"raise num_bufs of {' and '.join(self.config.memory_regions)}",
            ),
        }.get(Status(status), ("place in the queue", "raise tx_meta_buffers"))
        waited = f" for {timeout:g} s" if timeout else ""
        return (
            f"transmit queue {self.name!r} accepted {submitted} of {count} packets, then had no "
            f"free {missing}{waited} ({self.counters().held} packets are waiting to leave); "
            f"raise timeout, send earlier launch times first, or {fix}{self._native.held_up_by}"
        )

    def wait_sent(self, timeout: float | None = None) -> bool:
        """Wait until all submitted packets were sent or dropped.

        Parameters
        ----------
        timeout : float or None
            Longest wait, s. None: no limit.

        Returns
        -------
        bool
            False if some packets are still waiting.

        Raises
        ------
        InvalidParameterError
            If the timeout is negative.
        """
        return self._native.wait_sent(timeout)

    def flush(self) -> int:
        """Drop all packets that were submitted and have not left, counted as ``flushed``.

        Any thread may call it, also while others send. It waits until no packet submitted earlier
        is held, for 25 ms at most if a peer is slow. Packets that the kernel keeps until their
        launch time (``accurate_send``) are still sent.

        A TCP stream contains whole packets only: a packet that has partly left is finished. If the
        peer does not accept it, and earlier packets that the kernel still holds, within 25 ms, the
        connection is reset, and data in transit in either direction is lost. A client reconnects;
        the peer of a server has to reconnect itself.

        Returns
        -------
        int
            Packets dropped.

        Raises
        ------
        NotReadyError
            If the engine is closed.
        """
        return self._native.flush()

    def counters(self) -> TxCounters:
        """Return the counters, consistent with each other."""
        return TxCounters(**self._native.counters())

    def rates(self) -> tuple[float, float]:
        """Return packets and bytes sent per second, over the last second.

        They cover a second to 1.1 s until now, less only in the engine's first second. They are 0
        for a closed engine.
        """
        return self._native.rates()

    def lateness(self) -> Lateness:
        """Return the lateness of packets: time from launch time to launch."""
        return Lateness(*self._native.lateness())

    def reset_lateness(self) -> None:
        """Reset the lateness; this takes effect in the transmit worker's next pass."""
        self._native.reset_lateness()

    def __repr__(self) -> str:
        return f"<TxQueue {self.name!r} of port {self._port_name!r}>"


def _integers(name: str, values: ArrayLike | None) -> NDArray[np.int64] | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidParameterError(f"{name} has shape {array.shape}; accepted is (n,)")
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidParameterError(f"{name} is {array.dtype}; accepted are integers")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise InvalidParameterError(f"{name} holds {array.max()}; accepted is up to 2**63 - 1")
    return np.ascontiguousarray(array, np.int64)


def _count_packets(
    packets: NDArray[np.uint8],
    lengths: NDArray[np.int64] | None,
    offsets: NDArray[np.int64] | None,
) -> int:
    if packets.dtype != np.uint8:
        raise InvalidParameterError(
            f"packets is {packets.dtype}; accepted is uint8 (packets.view(np.uint8) has the bytes)"
        )
    if packets.ndim == 2:
        if offsets is not None:
            raise InvalidParameterError(
                "offsets require a 1-D array; the rows of a 2-D array are the packets"
            )
        return len(packets)
    if packets.ndim != 1:
        raise InvalidParameterError(
            f"packets has shape {packets.shape}; accepted are (n, width), and (size,) with offsets"
        )
    if offsets is None or lengths is None:
        raise InvalidParameterError(
            "packets is 1-D and needs offsets and lengths; one packet is packets[np.newaxis]"
        )
    return len(offsets)


def _rows_of_bytes(packets: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the array with contiguous bytes in its last axis; a copy if necessary."""
    if packets.shape[-1] > 1 and packets.strides[-1] != 1:
        return np.ascontiguousarray(packets)
    return packets
