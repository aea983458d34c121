"""Outcome of a capture: progress, losses, reason of failure."""

from daqiri_ophyd.engine import RecorderSnapshot, RxQueue

from ._losses import LossWatch, PacketLossError

__all__ = ["CaptureError", "CaptureStoppedError", "Outcome"]


class CaptureError(RuntimeError):
    """A capture failed or could not start."""


class CaptureStoppedError(CaptureError):
    """A capture was stopped before its end."""


class Outcome:
    """Decides whether a capture that begins now succeeds.

    Parameters
    ----------
    queue : RxQueue
        Queue that is recorded.
    name : str
        Name of the queue, for messages.
    packets : int
        Packets to capture; 0: no limit.
    flushed : int
        Packets that the queue had discarded on request before the capture.
    on_error, on_drop : str
        As the settings of `Capture`.
    """

    def __init__(
        self,
        queue: RxQueue,
        name: str,
        packets: int,
        *,
        flushed: int,
        on_error: str,
        on_drop: str,
    ) -> None:
        self._queue = queue
        self._flushed = flushed
        self._wanted = packets
        self._on_error = on_error
        self._on_drop = on_drop
        self._losses = LossWatch(name, lambda: queue.counters().dropped)

    def progress_text(self, snapshot: RecorderSnapshot) -> str:
        """Return the progress as text."""
        wanted = f" of {self._wanted}" if self._wanted else ""
        text = f"{snapshot.packets}{wanted} packets"
        counters = self._queue.counters()
        if counters.held:
            text += f", {counters.held} held in a burst that is not full (set timeout_us)"
        flushed = counters.dropped["flushed"] - self._flushed
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
        lost = sum(self._losses.lost().values()) + snapshot.dropped
        return lost > 0 and snapshot.packets + lost >= self._wanted

    def loss(self) -> PacketLossError | None:
        """Return an error if the queue lost packets and `on_drop` is ``fail``."""
        return self._losses.error() if self._on_drop == "fail" else None

    def failure(self, snapshot: RecorderSnapshot) -> Exception | None:
        """Return why a capture that has ended failed; None if it succeeded."""
        if snapshot.failing or (snapshot.error and self._on_error == "stop"):
            return CaptureError(snapshot.error)
        if snapshot.dropped and self._on_drop == "fail":
            return PacketLossError(f"{snapshot.dropped} packets were not written: {snapshot.error}")
        return self.loss()
