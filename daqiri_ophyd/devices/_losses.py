"""Packets that a queue lost against anybody's intention."""

from collections.abc import Callable, Mapping

__all__ = ["LossWatch", "PacketLossError", "lost_by_reason"]

# What was asked for: a flushed queue, a port that drops all.
_INTENDED = frozenset({"filtered", "flushed"})


class PacketLossError(RuntimeError):
    """Packets were lost, and the plan wanted to fail then."""


def lost_by_reason(dropped: Mapping[str, int]) -> dict[str, int]:
    """Return the drops that nobody asked for, without zeros."""
    return {reason: count for reason, count in dropped.items() if count and reason not in _INTENDED}


class LossWatch:
    """Compares the drops of a queue with those at the beginning.

    Parameters
    ----------
    queue : str
        Name of the queue, for messages.
    dropped : callable
        Reads the drops of the queue by reason.
    """

    def __init__(self, queue: str, dropped: Callable[[], Mapping[str, int]]) -> None:
        self._queue = queue
        self._dropped = dropped
        self._before = dict(dropped())

    def lost(self) -> dict[str, int]:
        """Return what was lost since the beginning, by reason."""
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
            "to go on in spite of losses set on_drop to 'flag' or 'ignore'"
        )
