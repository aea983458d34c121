"""Outcome of a capture: progress, losses, cause of failure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from daqiri_ophyd.engine import Connection, RecorderSnapshot, RxQueue

from .._errors import CaptureError
from .._losses import PacketLossError, PortLossWatch, lost_since, queue_error

__all__ = ["Outcome", "absent_peer"]


@dataclass(eq=False)
class Outcome:
    """Decides whether a capture succeeds.

    Parameters
    ----------
    queues : mapping of str to RxQueue
        Queues that are recorded, by name in messages.
    packets : int
        Packets to capture; 0: no limit.
    before : sequence of dict
        Drops of each queue by reason at the start of the capture.
    flushed : int
        Packets that the queues had discarded on request before the capture.
    on_error, on_drop : str
        As the settings of `Capture`.
    files : int
        Files of a prepared capture; 0: the capture is not prepared.
    start : str
        Name of the flow whose first packet starts the capture; empty: it begins at once.
    deadtime : float
        Time that the source pauses between two files, s; 0: not known.
    before_engine : PortLossWatch, optional
        Losses of the port before the engine; default: they are not known.
    """

    queues: Mapping[str, RxQueue]
    packets: int
    before: Sequence[Mapping[str, int]]
    flushed: int
    on_error: str
    on_drop: str
    files: int = 0
    start: str = ""
    deadtime: float = 0.0
    before_engine: PortLossWatch | None = None
    _rows: int = field(default=0, init=False)
    _last_ns: int = field(default=-1, init=False)

    def progress_text(self, snapshot: RecorderSnapshot) -> str:
        """Return the progress as text."""
        wanted = f" of {self.packets}" if self.packets else ""
        text = f"{snapshot.packets}{wanted} packets"
        if self.files:
            text += f", {snapshot.files} of {self.files} files"
        if self.start and not snapshot.packets:
            text += (
                f"; waiting for the first packet of flow {self.start!r}, {snapshot.left_out} "
                "others were left out"
            )
        counters = [queue.counters() for queue in self.queues.values()]
        held = sum(counter.held for counter in counters)
        if held:
            text += f", {held} held in a burst that is not full (set timeout_us)"
        if self.before_engine is not None and (lost := self.before_engine.lost()):
            text += f", {lost} lost before the engine"
        flushed = sum(counter.dropped["flushed"] for counter in counters) - self.flushed
        if flushed and not snapshot.packets:
            text += (
                f"; {flushed} that arrived before it began were discarded (in a plan, list the "
                "capture before the transmit queue)"
            )
        return text

    def is_short(self, snapshot: RecorderSnapshot) -> bool:
        """Return whether the limit cannot be reached because packets were lost."""
        if not self.packets:
            return False
        lost = sum(sum(lost.values()) for _, lost in self._lost()) + snapshot.dropped
        return lost > 0 and snapshot.packets + lost >= self.packets

    def _lost(self) -> Iterator[tuple[str, dict[str, int]]]:
        for (name, queue), before in zip(self.queues.items(), self.before, strict=True):
            yield name, lost_since(queue.counters().dropped, before)

    def loss(self, *, last: bool = False) -> PacketLossError | None:
        """Return an error if packets were lost and `on_drop` is ``fail``.

        Parameters
        ----------
        last : bool
            Whether the capture has ended; see `PortLossWatch.lost`.
        """
        if self.on_drop != "fail":
            return None
        errors = (queue_error(name, lost) for name, lost in self._lost())
        error = next(filter(None, errors), None)
        if error is None and self.before_engine is not None:
            error = self.before_engine.error(last=last)
        return error

    def gap_error(self, row: Mapping[str, int]) -> CaptureError | None:
        """Return an error if a file begins sooner than the dead time after the previous file.

        Parameters
        ----------
        row : mapping of str to int
            Counters of the next file.
        """
        first, before = row["t_first_ns"], self._last_ns
        self._rows += 1
        if first < 0:
            return None  # an empty file
        self._last_ns = row["t_last_ns"]
        if not self.deadtime or before < 0 or first - before >= self.deadtime * 1e9:
            return None
        return CaptureError(
            f"file {self._rows} begins {(first - before) / 1e9:.9f} s after the last packet before "
            f"it; the dead time is {self.deadtime:g} s: it has packets of two exposures"
        )

    def missing(self, snapshot: RecorderSnapshot) -> CaptureError | None:
        """Return an error if a prepared capture ended by itself before all files were written."""
        if not self.files:
            return None
        if (snapshot.files, snapshot.packets) == (self.files, self.packets):
            return None
        return CaptureError(
            f"it ended with {self.progress_text(snapshot)}: the others were lost. A prepared "
            "capture has full files or fails"
        )

    def failure(self, snapshot: RecorderSnapshot) -> Exception | None:
        """Return why a capture that has ended failed; None if it succeeded."""
        if snapshot.failing or snapshot.unreported or (snapshot.error and self.on_error == "stop"):
            text = snapshot.error
            if snapshot.dropped:
                text += f"; {snapshot.dropped} packets were not written"
            if snapshot.unreported:
                text += f"; {snapshot.unreported} lost packets are in no row and no metadata"
            return CaptureError(text)
        if snapshot.dropped and self.on_drop == "fail":
            return PacketLossError(f"{snapshot.dropped} packets were not written: {snapshot.error}")
        return self.loss(last=True)


def absent_peer(connections: Sequence[Connection]) -> str:
    """Return why a port has no peer, as text; empty if it has one or needs none."""
    if not connections or any(connection.state == "connected" for connection in connections):
        return ""
    latest = connections[-1]
    words = {
        "listening": "no peer has connected",
        "connecting": f"{latest.peer} cannot be reached",
        "closed": f"peer {latest.peer} is gone",
    }
    return words[latest.state] + (f" ({latest.error})" if latest.error else "")
