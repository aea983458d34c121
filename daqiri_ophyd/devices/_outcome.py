"""What becomes of a capture: how far it is, what it lost, why it failed."""

from daqiri_ophyd.engine import RecorderSnapshot, RxQueue

from ._losses import LossWatch, PacketLossError

__all__ = ["CaptureError", "CaptureStoppedError", "Outcome"]


class CaptureError(RuntimeError):
    """A capture that could not be carried out."""


class CaptureStoppedError(CaptureError):
    """A capture that was stopped before its end."""


class Outcome:
    """Judges a capture from its beginning on.

    Parameters
    ----------
    queue : RxQueue
        What is recorded.
    name : str
        Name of the queue, for messages.
    packets : int
        Packets that are wanted; 0: as many as come.
    on_error, on_drop : str
        As the settings of `Capture`.
    """

    def __init__(
        self, queue: RxQueue, name: str, packets: int, *, on_error: str, on_drop: str
    ) -> None:
        self._queue = queue
        self._wanted = packets
        self._on_error = on_error
        self._on_drop = on_drop
        self._losses = LossWatch(name, lambda: queue.counters().dropped)

    def story(self, snapshot: RecorderSnapshot) -> str:
        """Return how far it is, in words."""
        wanted = f" of {self._wanted}" if self._wanted else ""
        story = f"{snapshot.packets}{wanted} packets"
        held = self._queue.counters().held
        if held:
            story += f", {held} held in a burst that is not full (set timeout_us)"
        return story

    def is_short(self, snapshot: RecorderSnapshot) -> bool:
        """Return whether packets that are still wanted are among those that were lost."""
        if not self._wanted:
            return False
        lost = sum(self._losses.lost().values()) + snapshot.dropped
        return lost > 0 and snapshot.packets + lost >= self._wanted

    def loss(self) -> PacketLossError | None:
        """Return an error if the queue lost packets and that is a fault."""
        return self._losses.error() if self._on_drop == "fail" else None

    def fault(self, snapshot: RecorderSnapshot) -> Exception | None:
        """Return why a capture that has ended failed, None if it did not."""
        if snapshot.failing or (snapshot.error and self._on_error == "stop"):
            return CaptureError(snapshot.error)
        if snapshot.dropped and self._on_drop == "fail":
            return PacketLossError(f"{snapshot.dropped} packets were not written: {snapshot.error}")
        return self.loss()
