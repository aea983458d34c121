"""Packets that a queue lost, other than on request."""

from collections.abc import Callable, Mapping

__all__ = ["LossWatch", "PacketLossError", "lost_by_reason"]

# Drops on request: a flushed queue, no matching flow under flow_isolation, drop_all_traffic.
_INTENDED = frozenset({"filtered", "flushed"})


class PacketLossError(RuntimeError):
    """Packets were lost, and `on_drop` is ``fail``."""


def lost_by_reason(dropped: Mapping[str, int]) -> dict[str, int]:
    """Return the drops that were not on request, without zeros."""
    return {reason: count for reason, count in dropped.items() if count and reason not in _INTENDED}


class LossWatch:
    """Counts the packets that a queue has lost since a moment.

    Parameters
    ----------
    queue : str
        Name of the queue, for messages.
    dropped : callable
        Reads the drops of the queue by reason.
    before : mapping, optional
        Drops to count from. Default: those at this moment.
    """

    def __init__(
        self,
        queue: str,
        dropped: Callable[[], Mapping[str, int]],
        before: Mapping[str, int] | None = None,
    ) -> None:
        self._queue = queue
        self._dropped = dropped
        self._before = dict(dropped() if before is None else before)

    def lost(self) -> dict[str, int]:
        """Return the packets lost since then, by reason."""
        return lost_by_reason(
            {reason: count - self._before[reason] for reason, count in self._dropped().items()}
        )

    def error(self) -> PacketLossError | None:
        """Return an error that names queue, reasons and counts, or None if nothing was lost."""
        lost = self.lost()
        if not lost:
            return None
        reasons = ", ".join(f"{count} {reason}" for reason, count in lost.items())
        return PacketLossError(
            f"queue {self._queue} dropped {sum(lost.values())} packets ({reasons}); "
            "to continue in spite of losses set on_drop to 'flag' or 'ignore'"
        )
