"""Outcome of a capture: progress, losses, reason of failure."""

from collections.abc import Mapping, Sequence

from daqiri_ophyd.engine import Connection, RecorderSnapshot, RxQueue

from ._losses import LossWatch, PacketLossError

__all__ = ["CaptureError", "CaptureStoppedError", "Outcome", "absent_peer"]


class CaptureError(RuntimeError):
    """A capture failed or could not start."""


class CaptureStoppedError(CaptureError):
    """A capture was stopped before its end."""


class Outcome:
    """Decides whether a capture that begins now succeeds.

    Parameters
    ----------
    queues : mapping of str to RxQueue
        Queues that are recorded, by their names in messages.
    packets : int
        Packets to capture; 0: no limit.
    flushed : int
        Packets that the queues had discarded on request before the capture.
    on_error, on_drop : str
        As the settings of `Capture`.
    """

    def __init__(
        self,
        queues: Mapping[str, RxQueue],
        packets: int,
        *,
        flushed: int,
        on_error: str,
        on_drop: str,
    ) -> None:
        self._queues = queues
        self._flushed = flushed
        self._wanted = packets
        self._on_error = on_error
        self._on_drop = on_drop
        self._losses = [
            LossWatch(name, lambda queue=queue: queue.counters().dropped)
            for name, queue in queues.items()
        ]

    def progress_text(self, snapshot: RecorderSnapshot) -> str:
        """Return the progress as text."""
        wanted = f" of {self._wanted}" if self._wanted else ""
        text = f"{snapshot.packets}{wanted} packets"
        counters = [queue.counters() for queue in self._queues.values()]
        held = sum(counter.held for counter in counters)
        if held:
            text += f", {held} held in a burst that is not full (set timeout_us)"
        flushed = sum(counter.dropped["flushed"] for counter in counters) - self._flushed
        if flushed and not snapshot.packets:
            text += (
                f"; {flushed} that arrived before it began were discarded (in a plan, list the "
                "capture before the transmit queue)"
            )
        return text

    def is_short(self, snapshot: RecorderSnapshot) -> bool:
        """Return whether the limit cannot be reached because packets were lost."""
        if not self._wanted:
            return False
        lost = sum(sum(watch.lost().values()) for watch in self._losses) + snapshot.dropped
        return lost > 0 and snapshot.packets + lost >= self._wanted

    def loss(self) -> PacketLossError | None:
        """Return an error if a queue lost packets and `on_drop` is ``fail``."""
        if self._on_drop != "fail":
            return None
        return next((error for watch in self._losses if (error := watch.error())), None)

    def failure(self, snapshot: RecorderSnapshot) -> Exception | None:
        """Return why a capture that has ended failed; None if it succeeded."""
        if snapshot.failing or snapshot.unreported or (snapshot.error and self._on_error == "stop"):
            text = snapshot.error
            if snapshot.dropped:
                text += f"; {snapshot.dropped} packets were not written"
            if snapshot.unreported:
                text += f"; {snapshot.unreported} lost packets are in no row and no metadata"
            return CaptureError(text)
        if snapshot.dropped and self._on_drop == "fail":
            return PacketLossError(f"{snapshot.dropped} packets were not written: {snapshot.error}")
        return self.loss()


def absent_peer(connections: Sequence[Connection]) -> str:
    """Return in words that a port has no peer; empty if it has one, or needs none."""
    if not connections or any(connection.state == "connected" for connection in connections):
        return ""
    latest = connections[-1]
    words = {
        "listening": "no peer has come",
        "connecting": f"{latest.peer} cannot be reached",
        "closed": f"peer {latest.peer} is gone",
    }
    return words[latest.state] + (f" ({latest.error})" if latest.error else "")
