"""Snapshots of engines: of this process and of others."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._counters import RxCounters, TxCounters

__all__ = [
    "EngineSnapshot",
    "QueueLevels",
    "RegionState",
    "RxQueueState",
    "TxQueueState",
    "running_engines",
]

_log = logging.getLogger(__name__)
_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class QueueLevels:
    """Fill level of a queue's ring, and of the pool that its bursts come from.

    Parameters
    ----------
    ring, ring_capacity : int
        Bursts in the ring, and how many fit.
    bursts_free, bursts_total : int
        Bursts in the pool. The transmit queues of an engine share one.
    """

    ring: int
    ring_capacity: int
    bursts_free: int
    bursts_total: int


@dataclass(frozen=True, slots=True)
class RxQueueState:
    """A receive queue at one moment.

    Parameters
    ----------
    port, queue : str
        Names.
    counters : RxCounters
        Counters of its packets.
    levels : QueueLevels
        Ring and pool.
    """

    port: str
    queue: str
    counters: RxCounters
    levels: QueueLevels


@dataclass(frozen=True, slots=True)
class TxQueueState:
    """A transmit queue at one moment.

    Parameters
    ----------
    port, queue : str
        Names.
    counters : TxCounters
        Counters of its packets.
    levels : QueueLevels
        Ring and pool.
    lateness_p50, lateness_p99, lateness_p999, lateness_max : int
        Quantiles of `Lateness`, ns.
    launch_times : str
        Who keeps launch times: ``worker``, or with ``accurate_send`` the queueing discipline and
        the network interface (``fq on eth0``).
    """

    port: str
    queue: str
    counters: TxCounters
    levels: QueueLevels
    lateness_p50: int
    lateness_p99: int
    lateness_p999: int
    lateness_max: int
    launch_times: str


@dataclass(frozen=True, slots=True)
class RegionState:
    """A memory region at one moment.

    Parameters
    ----------
    name : str
        Name.
    free, buffers : int
        Free buffers, and total.
    buf_size : int
        Bytes of a buffer.
    """

    name: str
    free: int
    buffers: int
    buf_size: int


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """An engine at one moment. The counters of each queue are consistent in themselves.

    Parameters
    ----------
    engine : str
        As `Engine.name`.
    pid : int
        Id of the process that runs it.
    opened_ns : int
        When it was opened, ns since the epoch. Together with `pid` it identifies an engine.
    time_ns, steady_ns : int
        When the snapshot was taken, ns: since the epoch, and on CLOCK_MONOTONIC.
    rx : tuple of RxQueueState
        Receive queues of all ports, in the order of the configuration.
    tx : tuple of TxQueueState
        Transmit queues of all ports, in the order of the configuration.
    regions : tuple of RegionState
        Memory regions.
    """

    engine: str
    pid: int
    opened_ns: int
    time_ns: int
    steady_ns: int
    rx: tuple[RxQueueState, ...]
    tx: tuple[TxQueueState, ...]
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
                engine=values["engine"],
                pid=values["pid"],
                opened_ns=values["opened_ns"],
                time_ns=values["time_ns"],
                steady_ns=values["steady_ns"],
                rx=tuple(_take(RxQueueState, RxCounters, state) for state in values["rx"]),
                tx=tuple(_take(TxQueueState, TxCounters, state) for state in values["tx"]),
                regions=tuple(RegionState(**region) for region in values["regions"]),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a snapshot of an engine: {error!r} is missing.") from error


def _take(kind: Any, counters: Any, values: Mapping[str, Any]) -> Any:
    def part(cls: Any) -> dict[str, Any]:
        return {name: values[name] for name in cls.__dataclass_fields__ if name in values}

    return kind(
        **part(kind), counters=counters(**part(counters)), levels=QueueLevels(**part(QueueLevels))
    )


def running_engines() -> list[EngineSnapshot]:
    """Ask all engines of this user, in any process, for a snapshot.

    Each engine listens on a Unix socket in ``$XDG_RUNTIME_DIR/daqiri`` (without that variable:
    ``/tmp/daqiri-<uid>``). Sockets of processes that were killed are removed.

    Returns
    -------
    list of EngineSnapshot
        Sorted by process, then by the order in which they were opened.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    directory = (
        Path(runtime) / "daqiri" if runtime.startswith("/") else Path(f"/tmp/daqiri-{os.geteuid()}")
    )
    if not directory.is_dir() or directory.stat().st_uid != os.geteuid():
        return []
    numbered = []
    for path in directory.iterdir():
        pid, _, number = path.name.partition(".")
        if pid.isdecimal() and number.isdecimal():
            numbered.append((int(pid), int(number), path))
    answers = (_ask(path) for _, _, path in sorted(numbered))
    return [answer for answer in answers if answer is not None]


def _ask(path: Path) -> EngineSnapshot | None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_TIMEOUT_S)
        text = b""
        try:
            client.connect(str(path))
            while part := client.recv(1 << 16):
                text += part
        except ConnectionRefusedError:
            _log.info("The process of engine %s was killed; its socket is removed.", path.name)
            path.unlink(missing_ok=True)
            return None
        except OSError as error:
            # The engine was closed in the meantime, or is too busy to answer.
            _log.info("Engine %s does not answer: %s.", path.name, error)
            return None
    return EngineSnapshot.from_json(text) if text.endswith(b"\n") else None
