"""Outcome of a capture: progress, losses, cause of failure."""

from collections.abc import Mapping, Sequence

from daqiri_ophyd.engine import Connection, RecorderSnapshot, RxQueue

from .._errors import CaptureError
from .._losses import LossWatch, PacketLossError, PortLossWatch

__all__ = ["Outcome", "absent_peer"]


class Outcome:
    """Decides whether a capture succeeds.

    Parameters
    ----------
    queues : mapping of str to RxQueue
        Queues that are recorded, by name in messages.
    packets : int
        Packets to capture; 0: no limit.
    flushed : int
        Packets that the queues had discarded on request before the capture.
    before : sequence of dict, optional
        Drops of each queue by reason at the start of the capture. Default: those at this moment.
    files : int
        Files of a prepared capture; 0: the capture is not prepared.
    start : str
        Name of the flow whose first packet starts the capture; empty: it begins at once.
    deadtime : float
        Time that the source pauses between two files, s; 0: not known.
    on_error, on_drop : str
        As the settings of `Capture`.
    before_engine : PortLossWatch, optional
        Losses of the port before the engine; default: they are not known.
    """

    def __init__(
        self,
        queues: Mapping[str, RxQueue],
        packets: int,
        *,
        flushed: int,
        on_error: str,
        on_drop: str,
        files: int = 0,
        start: str = "",
        deadtime: float = 0.0,
        before: Sequence[Mapping[str, int]] | None = None,
        before_engine: PortLossWatch | None = None,
    ) -> None:
        self._before_engine = before_engine
        self._deadtime = deadtime
        self._rows = 0
        self._last_ns = -1
        self._files = files
        self._start = start
        self._queues = queues
        self._flushed = flushed
        self._wanted = packets
        self._on_error = on_error
        self._on_drop = on_drop
        starts = [None] * len(queues) if before is None else before
        self._losses = [
            LossWatch(name, lambda queue=queue: queue.counters().dropped, start)
            for (name, queue), start in zip(queues.items(), starts, strict=True)
        ]

    def progress_text(self, snapshot: RecorderSnapshot) -> str:
        """Return the progress as text."""
        wanted = f" of {self._wanted}" if self._wanted else ""
        text = f"{snapshot.packets}{wanted} packets"
        if self._files:
            text += f", {snapshot.files} of {self._files} files"
        if self._start and not snapshot.packets:
            text += (
                f"; waiting for the first packet of flow {self._start!r}, {snapshot.left_out} "
                "others were left out"
            )
        counters = [queue.counters() for queue in self._queues.values()]
        held = sum(counter.held for counter in counters)
        if held:
            text += f", {held} held in a burst that is not full (set timeout_us)"
        if self._before_engine is not None and (lost := self._before_engine.lost()):
            text += f", {lost} lost before the engine"
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

    def loss(self, *, last: bool = False) -> PacketLossError | None:
        """Return an error if packets were lost and `on_drop` is ``fail``.

        Parameters
        ----------
        last : bool
            Whether the capture has ended; see `PortLossWatch.lost`.
        """
        if self._on_drop != "fail":
            return None
        error = next((error for watch in self._losses if (error := watch.error())), None)
        if error is None and self._before_engine is not None:
            error = self._before_engine.error(last=last)
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
        if not self._deadtime or before < 0 or first - before >= self._deadtime * 1e9:
            return None
        return CaptureError(
            f"file {self._rows} begins {(first - before) / 1e9:.9f} s after the last packet before "
            f"it; the dead time is {self._deadtime:g} s: it has packets of two exposures"
        )

    def missing(self, snapshot: RecorderSnapshot) -> CaptureError | None:
        """Return an error if a prepared capture ended by itself before all files were written."""
        if not self._files:
            return None
        if (snapshot.files, snapshot.packets) == (self._files, self._wanted):
            return None
        return CaptureError(
            f"it ended with {self.progress_text(snapshot)}: the others were lost. A prepared "
            "capture has full files or fails"
        )

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
