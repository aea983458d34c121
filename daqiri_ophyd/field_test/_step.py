"""Steps of a field test, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["StepFailedError", "StepResult", "StepSkippedError", "StepStatus"]


class StepStatus(StrEnum):
    """Result of a step."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


class StepFailedError(Exception):
    """A step found a fault.

    Parameters
    ----------
    text : str
        What was found.
    figures : mapping, optional
        What was measured until then.
    """

    def __init__(self, text: str, figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.figures = dict(figures or {})


class StepSkippedError(Exception):
    """A step cannot run.

    Parameters
    ----------
    reason : str
        Why not.
    again : bool
        Whether another run with the same configuration may do it.
    """

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of a step.

    Parameters
    ----------
    name, group : str
        Name of the step, such as ``rate 64 B, 1 queue``; its group, such as ``rate``.
    status : StepStatus
        Result.
    text : str
        One line: what was found, or why the step was skipped.
    figures : dict
        What was measured; contents depend on the group.
    again : bool
        Whether a later run into the same folder does the step.
    seconds : float
        How long it took.
    """

    name: str
    group: str
    status: StepStatus
    text: str
    figures: dict[str, Any] = field(default_factory=dict)
    again: bool = False
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the result for a report."""
        return asdict(self) | {"status": str(self.status)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StepResult:
        """Return the result of a report."""
        return cls(**{**values, "status": StepStatus(values["status"])})
