"""Packets that a queue lost, other than on request, or its host before the engine."""

from collections.abc import Mapping

from daqiri_ophyd.engine import Port, PortCounters, ReorderPlan

__all__ = ["PacketLossError", "PortLossWatch", "lost_since", "queue_error"]

# Drops on request: a flushed queue, no matching flow under flow_isolation, drop_all_traffic.
_INTENDED = frozenset({"filtered", "flushed"})
_CONTINUE = "to continue in spite of losses set on_drop to 'flag' or 'ignore'"
_REMEDIES = {
    "card": "the ring or memory of the network card was full (a larger ring: ethtool -G; another "
    "core for its interrupts)",
    "backlog": "the kernel's queue of a core was full (a larger net.core.netdev_max_backlog; "
    "another core for the interrupts or RPS)",
    "errors": "frames arrived damaged, or longer than the MTU (cable, optics, MTU)",
    "dropped": "the kernel or the driver dropped them (ethtool -S names the counters)",
}
# Age of the kernel's statistics while a recording goes on, s: a driver may take ms for them.
_AGE = 1.0


class PacketLossError(RuntimeError):
    """Packets were lost, and `on_drop` is ``fail``."""


def lost_since(dropped: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return a queue's drops since then by reason, without zeros and those on request."""
    lost = {reason: count - before[reason] for reason, count in dropped.items()}
    return {reason: count for reason, count in lost.items() if count and reason not in _INTENDED}


def queue_error(queue: str, lost: Mapping[str, int]) -> PacketLossError | None:
    """Return an error that names queue, reasons and counts, or None if nothing was lost."""
    if not lost:
        return None
    reasons = ", ".join(f"{count} {reason}" for reason, count in lost.items())
    return PacketLossError(
        f"queue {queue} dropped {sum(lost.values())} packets ({reasons}); {_CONTINUE}"
    )


class PortLossWatch:
    """Counts the packets that the host has lost before the engine since a moment.

    Parameters
    ----------
    port : Port or ReorderPlan
        The port, or a plan with flows of several.
    before : PortCounters, optional
        Counters to count from. Default: those at this moment.
    """

    def __init__(self, port: Port | ReorderPlan, before: PortCounters | None = None) -> None:
        self._port = port
        self._before = self._read(0.0) if before is None else before

    def lost(self, *, last: bool = False) -> int:
        """Return the packets lost since then.

        Parameters
        ----------
        last : bool
            Whether to read the kernel's statistics now; otherwise they may be a second old.
        """
        return self._since(last).lost_before_engine

    def text(self, *, last: bool = False) -> str:
        """Return what was lost, why, and what to do; empty: nothing. `last` as for `lost`."""
        since = self._since(last)
        lost = since.lost_before_engine
        if not lost:
            return ""
        reasons = "; ".join(
            f"{count} {reason}: {_REMEDIES[reason]}"
            for reason, count in since.by_reason.items()
            if count
        )
        where = f"interface of port {self._port.name}"
        if isinstance(self._port, ReorderPlan):
            where = f"interfaces of reorder plan {self._port.name}"
        return (
            f"the network {where} lost {lost} packets before the engine, of all that arrived there "
            f"({reasons})"
        )

    def error(self, *, last: bool = False) -> PacketLossError | None:
        """Return an error with the text of `text`, or None if nothing was lost."""
        text = self.text(last=last)
        return PacketLossError(f"{text}; {_CONTINUE}") if text else None

    def _since(self, last: bool) -> PortCounters:
        return self._read(0.0 if last else _AGE).since(self._before)

    def _read(self, max_age: float) -> PortCounters:
        if isinstance(self._port, ReorderPlan):
            return self._port.port_counters(max_age)
        return self._port.counters(max_age)
