"""Packets that a host lost before an engine could receive them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["PortCounters"]

_REASONS = ("card", "backlog", "errors", "dropped")


@dataclass(frozen=True, slots=True)
class PortCounters:
    """What the host lost of a port's packets before the engine, since the engine was opened.

    They are increases of the kernel's statistics of the port's network interface, of the whole
    interface: other programs may share it. These packets reached no queue and are in no counter of
    a queue. All are 0 on ports without a receive queue, and on engine ``loopback``.

    Parameters
    ----------
    lost_before_engine : int
        Packets that were certainly lost: `lost_card`, `lost_backlog` and `lost_errors`; on engine
        ``packet`` with ``receive_path: af_packet`` also the part of `lost_dropped` that cannot have
        been received. 0 on TCP ports, whose peers send lost packets again.
    lost_card : int
        The ring or the memory of the network card was full.
    lost_backlog : int
        The kernel's queue of a core was full (``net.core.netdev_max_backlog``).
    lost_errors : int
        Damaged frames, and frames of a wrong length.
    lost_dropped : int
        Others that the kernel or the driver dropped. They include frames that no other program
        receives: those of switches where the engine does not take every frame of the interface,
        and else those with a VLAN tag and a protocol unknown to the kernel.
    """

    lost_before_engine: int
    lost_card: int
    lost_backlog: int
    lost_errors: int
    lost_dropped: int

    @classmethod
    def of_row(cls, row: NDArray[np.void]) -> Self:
        """Return the counters of a port in `Engine.counters`.

        Parameters
        ----------
        row : ndarray, shape ()
            Such as ``engine.counters["ports"]["port0"]``.
        """
        return cls(*row.item())

    @property
    def by_reason(self) -> dict[str, int]:
        """Packets by reason: ``card``, ``backlog``, ``errors``, ``dropped``."""
        values = asdict(self)
        return {reason: values[f"lost_{reason}"] for reason in _REASONS}

    def since(self, before: PortCounters) -> PortCounters:
        """Return the increases since earlier counters of the same port."""
        old: dict[str, Any] = asdict(before)
        return PortCounters(**{name: value - old[name] for name, value in asdict(self).items()})
