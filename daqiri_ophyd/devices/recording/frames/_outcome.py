"""Outcome of an acquisition of frames: progress, losses."""

from dataclasses import dataclass
from typing import Any

from daqiri_ophyd.engine import RecorderSnapshot, ReorderCounters, ReorderPlan

from ...parts._status import EngineStatus
from .._losses import PacketLossError, PortLossWatch

__all__ = ["Acquisition"]

_UNPLACED = ("late", "malformed")


@dataclass(eq=False)
class Acquisition:
    """Frames of a reading, or of a fly scan.

    Parameters
    ----------
    wanted : int
        Target number of frames; 0: no limit.
    flown : bool
        Whether it is a fly scan.
    status : EngineStatus
        Its status.
    plan : ReorderPlan
        The engine's plan.
    before : RecorderSnapshot
        Snapshot of the recorder when it began; `absent_before` has the plan's lost and skipped
        frames then.
    packets_before : ReorderCounters
        The plan's counters then.
    before_engine : PortLossWatch, optional
        Losses of the port before the engine since then; None: they are not known.
    """

    wanted: int
    flown: bool
    status: EngineStatus
    plan: ReorderPlan
    before: RecorderSnapshot
    absent_before: int
    packets_before: ReorderCounters
    before_engine: PortLossWatch | None = None

    def lost(self, now: RecorderSnapshot) -> int:
        """Return how many frames were lost or skipped."""
        absent = self.plan.counters().absent - self.absent_before
        return now.dropped - self.before.dropped + absent

    def missing(self, now: RecorderSnapshot) -> int:
        """Return the number of packets missing in its frames."""
        return now.missing - self.before.missing

    def lost_before_engine(self, *, last: bool = False) -> int:
        """Return how many packets the host lost before the engine; see `PortLossWatch.lost`."""
        return 0 if self.before_engine is None else self.before_engine.lost(last=last)

    def _why_before_engine(self, *, last: bool = False) -> str:
        return "" if self.before_engine is None else self.before_engine.text(last=last)

    def malformed(self) -> int:
        """Return how many packets came that belong to no frame.

        Late packets do not count: each is missing in a frame, of one that was skipped, a duplicate,
        or of numbers that began anew too soon.
        """
        return self.plan.counters().malformed - self.packets_before.malformed

    def unplaced(self) -> str:
        """Return which packets came and belong to no frame; empty: all belong to one."""
        now, before = self.plan.counters(), self.packets_before
        found = {name: getattr(now, name) - getattr(before, name) for name in _UNPLACED}
        return ", ".join(f"{count} {name}" for name, count in found.items() if count)

    def placed_none(self) -> bool:
        """Return whether packets came, and none belongs to a frame."""
        return self.plan.counters().placed == self.packets_before.placed and bool(self.unplaced())

    def loss(
        self, detector: Any, now: RecorderSnapshot, *, last: bool = False
    ) -> PacketLossError | None:
        """Return an error if its losses are a failure by a detector's settings.

        Packets that the host lost before the engine count if packets of frames are missing: they
        may belong to other programs.

        Parameters
        ----------
        detector : FrameDetector
            The detector.
        now : RecorderSnapshot
            Snapshot of the recorder.
        last : bool
            Whether the acquisition has ended.
        """
        missing = self.missing(now)
        before_engine = self._why_before_engine(last=last)
        as_well = f"; {before_engine}" if before_engine else ""
        if detector.on_drop.get() == "fail" and (lost := self.lost(now)):
            unwritten = now.dropped - self.before.dropped
            why = (
                f"no packet of them came, or memory region of plan {self.plan.name!r} had no free "
                "buffer"
            )
            if unwritten:
                why = now.error if unwritten == lost else f"{why}, or {now.error}"
            return PacketLossError(
                f"{lost} frames were lost: {why}{as_well}; to continue in spite of losses set "
                "on_drop to 'flag' or 'ignore'"
            )
        if detector.on_drop.get() == "fail" and (malformed := self.malformed()):
            return PacketLossError(
                f"{malformed} packets of plan {self.plan.name!r} belong to no frame (malformed): "
                "steer other packets to another queue, or set on_drop to 'flag' or 'ignore'"
            )
        if detector.require_complete.get() and missing:
            return PacketLossError(
                f"{missing} packets are missing in frames; to accept such frames set "
                f"{detector.require_complete.name} to False{as_well}"
            )
        if detector.on_drop.get() == "fail" and missing and before_engine:
            return PacketLossError(
                f"{missing} packets are missing in frames{as_well}; to continue in spite of losses "
                "set on_drop to 'flag' or 'ignore'"
            )
        return None

    def report(self, now: RecorderSnapshot, start: str) -> str:
        """Report the progress, and return it as text; ``start`` is its first flow."""
        frames = now.frames - self.before.frames
        of = f" of {self.wanted}" if self.wanted else ""
        text = f"{frames}{of} frames"
        if start and not frames:
            text += f"; waiting for the first packet of flow {start!r}"
        self.status.report(frames, self.wanted or None, "frames", text)
        return text

    def cause(self, now: RecorderSnapshot) -> str:
        """Return the error of the recorder, or the plan's packets, for the text of a timeout."""
        if now.failing:
            return now.error
        return f"plan {self.plan.name!r} had {self.plan.counters().packets} packets since it began"
