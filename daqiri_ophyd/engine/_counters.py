"""Counters of queues, flows and reorder plans, and the lateness of packets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native
from daqiri_ophyd._native import NetworkConfig

__all__ = [
    "LATENESS_EDGES",
    "FlowCounters",
    "Lateness",
    "ReorderCounters",
    "RxCounters",
    "TxCounters",
    "counters_dtype",
]


def _lateness_edges() -> NDArray[np.int64]:
    # Up to 73 minutes, and one bin for longer times.
    bounds = [(4 + step) << octave for octave in range(2, 40) for step in range(4)]
    return np.array([0, *bounds, 1 << 42, np.iinfo(np.int64).max], np.int64)


LATENESS_EDGES = _lateness_edges()
"""Bins of `Lateness.binned`: shape (n + 1,), ns; four per octave from 16 ns to 73 minutes."""
LATENESS_EDGES.flags.writeable = False


def counters_dtype(config: NetworkConfig) -> np.dtype[np.void]:
    """Return the type of `Engine.counters`, whose fields have the names of the configuration.

    Parameters
    ----------
    config : NetworkConfig
        Configuration of the engine.
    """
    port_names, rx_names, tx_names, flow_names, plan_names, reasons = _native.counter_names()

    def numbers(names: list[str]) -> np.dtype[np.void]:
        return np.dtype([(name, np.uint64) for name in names])

    def queues(side: str, names: list[str]) -> np.dtype[np.void]:
        queue = np.dtype([(n, np.uint64) for n in names] + [("dropped", numbers(reasons))])
        ports = [(i.name, getattr(i, side).queues) for i in config.interfaces]
        return np.dtype(
            [(port, [(q.name, queue) for q in found]) for port, found in ports if found]
        )

    times = [(name, np.uint64) for name in ("time_ns", "steady_ns")]

    def parts(kind: str, names: list[str]) -> list[Any]:
        ports = [(i.name, getattr(i.rx, kind)) for i in config.interfaces]
        return [(p, [(part.name, numbers(names)) for part in found]) for p, found in ports if found]

    ports = np.dtype([(i.name, numbers(port_names)) for i in config.interfaces])
    rx, tx = queues("rx", rx_names), queues("tx", tx_names)
    flows, plans = parts("flows", flow_names), parts("reorder_configs", plan_names)
    return np.dtype(
        [
            *times,
            ("ports", ports),
            ("rx", rx),
            ("tx", tx),
            ("flows", flows),
            ("reorder", plans),
            ("plans", [(plan.name, numbers(plan_names)) for plan in config.reorder_configs]),
        ]
    )


def _values_of(row: NDArray[np.void], kind: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, from the part of a queue in `Engine.counters`."""
    values = {f.name: row[f.name].item() for f in fields(kind) if f.name != "dropped"}
    dropped = row["dropped"]
    reasons = dropped.dtype.names or ()
    return values | {"dropped": dict(zip(reasons, dropped.item(), strict=True))}


@dataclass(frozen=True, slots=True)
class RxCounters:
    """Counters of a receive queue, at one moment.

    ``received == delivered + held + dropped_total`` holds at any moment.

    Parameters
    ----------
    received, received_bytes : int
        Packets that arrived, and their bytes.
    delivered : int
        Packets that the application or a recorder took.
    held : int
        Packets in the queue: in the ring or in a burst that is not full yet.
    bursts : int
        Bursts put into the queue's ring.
    truncated : int
        Packets that were cut to the size of their buffer and delivered.
    ring_high_water : int
        Largest number of bursts that were in the ring at once.
    dropped : dict of str to int
        Packets that were dropped, by reason.
    """

    received: int
    received_bytes: int
    delivered: int
    held: int
    bursts: int
    truncated: int
    ring_high_water: int
    dropped: Mapping[str, int]

    @classmethod
    def of_row(cls, row: NDArray[np.void]) -> Self:
        """Return the counters of a queue in `Engine.counters`.

        Parameters
        ----------
        row : ndarray, shape ()
            Such as ``engine.counters["rx"]["port0"]["rx_q0"]``.
        """
        return cls(**_values_of(row, cls))

    @property
    def dropped_total(self) -> int:
        """Packets that were dropped for any reason."""
        return sum(self.dropped.values())


@dataclass(frozen=True, slots=True)
class TxCounters:
    """Counters of a transmit queue, at one moment.

    ``submitted == sent + held + dropped_total`` holds at any moment.

    Parameters
    ----------
    submitted : int
        Packets that the queue accepted.
    sent, sent_bytes : int
        Packets that were sent, and their bytes.
    held : int
        Packets that were submitted and neither sent nor dropped yet.
    bursts : int
        Bursts that were sent completely.
    late : int
        Packets whose launch time had passed when they were submitted.
    dropped : dict of str to int
        Packets that were dropped, by reason.
    """

    submitted: int
    sent: int
    sent_bytes: int
    held: int
    bursts: int
    late: int
    dropped: Mapping[str, int]

    @classmethod
    def of_row(cls, row: NDArray[np.void]) -> Self:
        """Return the counters of a queue in `Engine.counters`.

        Parameters
        ----------
        row : ndarray, shape ()
            Such as ``engine.counters["tx"]["port0"]["tx_q0"]``.
        """
        return cls(**_values_of(row, cls))

    @property
    def dropped_total(self) -> int:
        """Packets that were dropped for any reason."""
        return sum(self.dropped.values())


@dataclass(frozen=True, slots=True)
class FlowCounters:
    """Counters of a receive flow, at one moment.

    They count every packet that the flow matched, whether it was delivered, is held, or was dropped
    (no buffer, flushed, longer than a buffer). They do not count packets that the kernel dropped,
    which no flow could match. On TCP, a flow matches connections, and its packets are the data read
    from them.

    When no packets of a port are in transit, ``packets`` of all flows plus the packets that matched
    no flow are ``received`` of all queues, and ``bytes`` are ``received_bytes``. A reader that
    reads queues first and flows second never finds fewer packets in the flows than their queues
    have received.

    Parameters
    ----------
    packets, bytes : int
        Packets that the flow has matched since the engine was opened, and their bytes, counted as
        by the queue.
    """

    packets: int
    bytes: int

    @classmethod
    def of_row(cls, row: NDArray[np.void]) -> Self:
        """Return the counters of a flow in `Engine.counters`.

        Parameters
        ----------
        row : ndarray, shape ()
            Such as ``engine.counters["flows"]["port0"]["flow0"]``.
        """
        return cls(*row.item())


@dataclass(frozen=True, slots=True)
class ReorderCounters:
    """Counters of a reorder plan, at one moment.

    ``packets == placed + duplicate + late + early + malformed + left_out + no_buffer`` holds at any
    moment.
    The counters of the queues count these packets as ``delivered``.

    Parameters
    ----------
    packets : int
        Packets of the plan's flows.
    placed : int
        Packets that became part of a frame.
    duplicate : int
        Packets whose position in the frame was already filled.
    late : int
        Packets whose frame was already closed.
    early : int
        Packets from before an acquisition: they arrived before it began, or belong to a frame that
        had begun.
    malformed : int
        Packets that are too short for their fields, have a position beyond the frame, or differ in
        length from the other packets of their frame.
    left_out : int
        Packets that do not fulfil the plan's conditions.
    no_buffer : int
        Packets of frames for which no buffer was free.
    complete, incomplete : int
        Frames that were delivered, with all packets and with missing packets.
    missing : int
        Packets missing in incomplete frames; with ``batch_byte_offset``: elements.
    lost : int
        Frames that were not delivered: no buffer was free, or they were flushed.
    skipped : int
        Numbers before a delivered frame of which no packet came.
    untaken : int
        Complete and incomplete frames that no receiver read: freed for a newer frame, or discarded
        because a recorder began with the frames from then on.
    restarts : int
        Number of times that the batch numbers began anew after a pause.
    """

    packets: int
    placed: int
    duplicate: int
    late: int
    early: int
    malformed: int
    left_out: int
    no_buffer: int
    complete: int
    incomplete: int
    missing: int
    lost: int
    skipped: int
    untaken: int
    restarts: int

    @property
    def absent(self) -> int:
        """Frames that did not come: lost or skipped."""
        return self.lost + self.skipped

    @classmethod
    def of_row(cls, row: NDArray[np.void]) -> Self:
        """Return the counters of a plan in `Engine.counters`.

        Parameters
        ----------
        row : ndarray, shape ()
            Such as ``engine.counters["reorder"]["port0"]["plan0"]``.
        """
        return cls(*row.item())


class Lateness:
    """Time from the launch times of packets to their launch, ns.

    Buckets are at most 1/32 of the value wide, which is the precision of quantiles.

    Parameters
    ----------
    maximum : int
        Largest value, ns.
    edges : ndarray of int64, shape (n + 1,)
        Bucket ``i`` holds values from ``edges[i]`` to ``edges[i + 1] - 1``, ns.
    counts : ndarray of int64, shape (n,)
        Packets in each bucket.
    """

    __slots__ = ("_counts", "_edges", "maximum")

    def __init__(self, maximum: int, edges: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self.maximum = maximum
        self._edges = edges
        self._counts = counts

    @property
    def count(self) -> int:
        """Packets with a launch time that were sent."""
        return int(self._counts.sum())

    def quantile(self, q: float) -> int:
        """Return the lateness that a fraction of the packets did not exceed.

        Parameters
        ----------
        q : float
            From 0 to 1.

        Returns
        -------
        int
            Upper end of the quantile's bucket, ns, at most `maximum`; 0 if nothing was counted.

        Raises
        ------
        ValueError
            If `q` is not from 0 to 1.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q is {q}; accepted is 0 to 1.")
        if not self.count:
            return 0
        rank = max(1, int(np.ceil(q * self.count)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(int(self._edges[bucket + 1]) - 1, self.maximum)

    @property
    def p50(self) -> int:
        """Median, ns."""
        return self.quantile(0.5)

    @property
    def p90(self) -> int:
        """90th percentile, ns."""
        return self.quantile(0.9)

    @property
    def p99(self) -> int:
        """99th percentile, ns."""
        return self.quantile(0.99)

    @property
    def p999(self) -> int:
        """99.9th percentile, ns."""
        return self.quantile(0.999)

    def histogram(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the buckets.

        Returns
        -------
        edges : ndarray of int64, shape (n + 1,)
            Bucket ``i`` holds values from ``edges[i]`` to ``edges[i + 1] - 1``, ns.
        counts : ndarray of int64, shape (n,)
            Packets in each bucket.
        """
        return self._edges, self._counts

    def binned(self) -> NDArray[np.int64]:
        """Return the counts in fixed bins, which are the same for every queue at any time.

        Returns
        -------
        ndarray of int64, shape (len(LATENESS_EDGES) - 1,)
            Packets whose lateness is from ``LATENESS_EDGES[i]`` to ``LATENESS_EDGES[i + 1] - 1``.
        """
        binned = np.zeros(len(LATENESS_EDGES) - 1, np.int64)
        # Every bucket is inside one bin.
        bins = np.searchsorted(LATENESS_EDGES, self._edges[:-1], side="right") - 1
        np.add.at(binned, bins, self._counts)
        return binned

    def __repr__(self) -> str:
        return (
            f"Lateness(count={self.count}, p50={self.p50}, p90={self.p90}, p99={self.p99}, "
            f"p999={self.p999}, maximum={self.maximum})"
        )
