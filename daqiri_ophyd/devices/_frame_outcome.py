"""Outcome of an acquisition of frames: progress, losses."""

from dataclasses import dataclass
from typing import Any

from daqiri_ophyd.engine import RecorderSnapshot, ReorderPlan

from ._losses import PacketLossError
from ._status import EngineStatus

__all__ = ["Acquisition"]


@dataclass(eq=False)
class Acquisition:
    """Frames of a reading, or of a fly scan.

    Parameters
    ----------
    wanted : int
        Frames; 0: no limit.
    flown : bool
        Whether they are of a fly scan.
    status : EngineStatus
        Its status.
    plan : ReorderPlan
        The engine's plan.
    before : RecorderSnapshot
        The recorder, and `lost_before`: the plan's lost frames, when it began.
    """

    wanted: int
    flown: bool
    status: EngineStatus
    plan: ReorderPlan
    before: RecorderSnapshot
    lost_before: int

    def lost(self, now: RecorderSnapshot) -> int:
        """Return how many frames were lost."""
        lost = self.plan.counters().lost - self.lost_before
        return now.dropped - self.before.dropped + lost

    def missing(self, now: RecorderSnapshot) -> int:
        """Return how many packets its frames lack."""
        return now.missing - self.before.missing

    def loss(self, detector: Any, now: RecorderSnapshot) -> PacketLossError | None:
        """Return an error if a detector's settings say that its losses are a failure."""
        if detector.on_drop.get() == "fail" and (lost := self.lost(now)):
            unwritten = now.dropped - self.before.dropped
            why = f"memory region of plan {self.plan.name!r} had no free buffer"
            if unwritten:
                why = now.error if unwritten == lost else f"{why}, or {now.error}"
            return PacketLossError(
                f"{lost} frames were lost: {why}; to continue in spite of losses set on_drop to "
                "'flag' or 'ignore'"
            )
        if detector.require_complete.get() and (missing := self.missing(now)):
            return PacketLossError(
                f"{missing} packets are missing in frames; to accept such frames set "
                f"{detector.require_complete.name} to False"
            )
        return None

    def report(self, now: RecorderSnapshot, start: str) -> str:
        """Report the progress, and return it as text; ``start``: the flow with which it begins."""
        frames = now.frames - self.before.frames
        of = f" of {self.wanted}" if self.wanted else ""
        text = f"{frames}{of} frames"
        if start and not frames:
            text += f"; waiting for the first packet of flow {start!r}"
        self.status.report(frames, self.wanted or None, "frames", text)
        return text

    def cause(self, now: RecorderSnapshot) -> str:
        """Return why nothing is written, or what the plan has seen, for the text of a timeout."""
        if now.failing:
            return now.error
        return f"plan {self.plan.name!r} had {self.plan.counters().packets} packets since it began"
