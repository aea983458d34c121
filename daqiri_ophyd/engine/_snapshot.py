"""Snapshots of engines."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass, fields
from typing import Any

from ._counters import FlowCounters, ReorderCounters, RxCounters, TxCounters
from ._port_counters import PortCounters

__all__ = [
    "LATENESS_BOUNDS_NS",
    "EngineSnapshot",
    "FlowState",
    "PortState",
    "QueueLevels",
    "RegionState",
    "ReorderState",
    "RxQueueState",
    "TxQueueState",
]

LATENESS_BOUNDS_NS = tuple(1 << exponent for exponent in range(10, 34, 2))
"""Upper bounds of `TxQueueState.lateness_counts`, ns: from 1.024 µs to 4.3 s."""

_WORDS = {int: "an integer", str: "a text", dict: "an object", list: "a list"}


@dataclass(frozen=True, slots=True)
class QueueLevels:
    """Fill level of the ring of a queue, and of the pool of its bursts.

    Parameters
    ----------
    ring, ring_capacity : int
        Bursts in the ring, and its capacity.
    bursts_free, bursts_total : int
        Free bursts in the pool, and its size. The transmit queues of an engine share one pool.
    """

    ring: int
    ring_capacity: int
    bursts_free: int
    bursts_total: int


@dataclass(frozen=True, slots=True)
class PortState:
    """A port at one moment.

    Parameters
    ----------
    port : str
        Name.
    counters : PortCounters
        What the host lost before the engine; at most a second old.
    """

    port: str
    counters: PortCounters


@dataclass(frozen=True, slots=True)
class RxQueueState:
    """A receive queue at one moment.

    Parameters
    ----------
    port, queue : str
        Names.
    id : int
        Id of the queue in the configuration.
    counters : RxCounters
        Counters of its packets.
    levels : QueueLevels
        Ring and pool.
    receive_path : str
        Path of the packets on engine ``packet``: ``af_packet``, ``af_xdp native`` or ``af_xdp
        generic``, with ``, zero copy`` and ``, detached`` if that applies. On engine ``dpdk``, for
        queues with several memory regions: ``split by the device`` or ``split by the engine``.
        Empty for others. If packets are for a memory region of ``kind: device``, it ends in
        ``staged to GPU 0``, where they are copied, or ``into GPU 0``, where a network card writes
        them.
    """

    port: str
    queue: str
    id: int
    counters: RxCounters
    levels: QueueLevels
    receive_path: str


@dataclass(frozen=True, slots=True)
class TxQueueState:
    """A transmit queue at one moment.

    Parameters
    ----------
    port, queue : str
        Names.
    id : int
        Id of the queue in the configuration.
    counters : TxCounters
        Counters of its packets.
    levels : QueueLevels
        Ring and pool.
    lateness_p50, lateness_p99, lateness_p999, lateness_max : int
        Quantiles of `Lateness`, ns.
    lateness_counts : tuple of int
        Packets whose lateness was below each of `LATENESS_BOUNDS_NS`, then all that had a launch
        time.
    launch_times : str
        Mechanism that keeps launch times: ``worker``, or with ``accurate_send`` the queueing
        discipline and the network interface (``fq on eth0``), or the device of DPDK
        (``device 0000:05:00.0``).
    """

    port: str
    queue: str
    id: int
    counters: TxCounters
    levels: QueueLevels
    lateness_p50: int
    lateness_p99: int
    lateness_p999: int
    lateness_max: int
    lateness_counts: tuple[int, ...]
    launch_times: str


@dataclass(frozen=True, slots=True)
class FlowState:
    """A receive flow at one moment.

    Parameters
    ----------
    port, flow : str
        Names.
    counters : FlowCounters
        Counters of its packets.
    """

    port: str
    flow: str
    counters: FlowCounters


@dataclass(frozen=True, slots=True)
class ReorderState:
    """A reorder plan at one moment.

    Parameters
    ----------
    port, plan : str
        Names; the port is empty if the plan has flows of several.
    counters : ReorderCounters
        Counters of its packets and frames.
    """

    port: str
    plan: str
    counters: ReorderCounters


@dataclass(frozen=True, slots=True)
class RegionState:
    """A memory region at one moment.

    Parameters
    ----------
    name : str
        Name.
    free, buffers : int
        Free buffers and their total number.
    buf_size : int
        Bytes of a buffer.
    """

    name: str
    free: int
    buffers: int
    buf_size: int


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """An engine at one moment. The counters of each queue and each flow are consistent.

    Parameters
    ----------
    engine : str
        Value of `Engine.name`.
    pid : int
        Id of the process that runs it.
    opened_ns : int
        Time of opening, ns since the epoch. Together with `pid` it identifies an engine.
    time_ns, steady_ns : int
        Time of the snapshot, ns: since the epoch, and on CLOCK_MONOTONIC.
    ports : tuple of PortState
        Ports, in the order of the configuration.
    rx : tuple of RxQueueState
        Receive queues of all ports, in the order of the configuration.
    tx : tuple of TxQueueState
        Transmit queues of all ports, in the order of the configuration.
    flows : tuple of FlowState
        Receive flows of each port, in the order of the configuration; read after the queues. They
        are followed by flows that were added at run time, and by the sum of the counters of all
        removed flows, as ``(removed)``.
    reorder : tuple of ReorderState
        Reorder plans of all ports, in the order of the configuration, then those with flows of
        several ports.
    regions : tuple of RegionState
        Memory regions.
    """

    engine: str
    pid: int
    opened_ns: int
    time_ns: int
    steady_ns: int
    ports: tuple[PortState, ...]
    rx: tuple[RxQueueState, ...]
    tx: tuple[TxQueueState, ...]
    flows: tuple[FlowState, ...]
    reorder: tuple[ReorderState, ...]
    regions: tuple[RegionState, ...]

    @classmethod
    def from_json(cls, text: str | bytes) -> EngineSnapshot:
        """Return the snapshot that an engine reports as JSON.

        Raises
        ------
        ValueError
            If the text is not a snapshot.
        """
        try:
            values = json.loads(text)
            return cls(
                **_numbers_and_names(cls, values),
                ports=tuple(_counted(PortState, PortCounters, v) for v in _list(values, "ports")),
                rx=tuple(_queue(RxQueueState, RxCounters, v) for v in _list(values, "rx")),
                tx=tuple(
                    _queue(TxQueueState, TxCounters, v, lateness_counts=_lateness_counts(v))
                    for v in _list(values, "tx")
                ),
                flows=tuple(_counted(FlowState, FlowCounters, v) for v in _list(values, "flows")),
                reorder=tuple(
                    _counted(ReorderState, ReorderCounters, v) for v in _list(values, "reorder")
                ),
                regions=tuple(
                    RegionState(**_numbers_and_names(RegionState, v))
                    for v in _list(values, "regions")
                ),
            )
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a snapshot of an engine of this version: {error}") from error


_KINDS = {"int": int, "str": str}


def _numbers_and_names(kind: Any, values: Any) -> dict[str, Any]:
    """Return the numbers and strings that a dataclass needs; ignore unknown keys."""
    wanted = {f.name: _KINDS[str(f.type)] for f in fields(kind) if str(f.type) in _KINDS}
    for name, of in wanted.items():
        _require(values, name, of)
    return {name: values[name] for name in wanted}


def _counted(kind: Any, counters: Any, values: Any) -> Any:
    return kind(
        **_numbers_and_names(kind, values),
        counters=counters(**_numbers_and_names(counters, values)),
    )


def _queue(kind: Any, counters: Any, values: Any, **more: Any) -> Any:
    dropped = _require(values, "dropped", dict)
    for reason in dropped:
        _require(dropped, reason, int)
    return kind(
        **_numbers_and_names(kind, values),
        counters=counters(**_numbers_and_names(counters, values), dropped=dropped),
        levels=QueueLevels(**_numbers_and_names(QueueLevels, values)),
        **more,
    )


def _lateness_counts(values: Any) -> tuple[int, ...]:
    counts = _list(values, "lateness_counts")
    wanted = len(LATENESS_BOUNDS_NS) + 1
    if len(counts) != wanted or any(type(count) is not int for count in counts):
        raise ValueError(
            f"lateness_counts is {reprlib.repr(counts)}, expected a list of {wanted} integers"
        )
    return tuple(counts)


def _list(values: Any, name: str) -> list[Any]:
    return _require(values, name, list)


def _require(values: Any, name: str, of: type) -> Any:
    if not isinstance(values, dict):
        raise ValueError(f"there is a {type(values).__name__} where an object is expected")
    if name not in values:
        raise ValueError(f"{name} is missing")
    # bool is an int in Python, but not in JSON.
    if type(values[name]) is not of:
        raise ValueError(f"{name} is {reprlib.repr(values[name])}, expected {_WORDS[of]}")
    return values[name]
