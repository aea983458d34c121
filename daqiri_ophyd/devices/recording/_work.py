"""What one trigger or one kickoff began."""

import time
from dataclasses import dataclass, field
from typing import Any

from ..parts._status import EngineStatus
from ._recording import Recording

__all__ = ["Work"]


@dataclass(eq=False)
class Work:
    """A reading, or a fly scan: replaced whole by the next trigger or kickoff.

    Parameters
    ----------
    status : EngineStatus
        Its status.
    flown : bool
        Whether it is a fly scan.
    outcome : Outcome or Acquisition
        Decides whether it succeeds.
    run : str, optional
        The latest run when it began; None: it is not known.
    recording : Recording, optional
        Its recorders, unless readings share those of the device.
    """

    status: EngineStatus
    flown: bool
    outcome: Any
    run: str | None = None
    recording: Recording | None = None
    running: bool = True
    held: bool = False  # paused
    completing: bool = False  # a plan waits for the status, which reports a failure
    told: bool = False  # a plan was told of a failure otherwise
    short: bool = False  # packets were lost, so that it cannot reach its limit
    failure: Exception | None = None
    begun: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> bool:
        """Whether it has failed, and no plan was told."""
        return self.failure is not None and not self.completing and not self.told

    @property
    def is_excused(self) -> bool:
        """Whether its rows may stay in no document: paused, or a plan knows that it has failed."""
        return self.held or self.is_known_to_fail

    @property
    def is_known_to_fail(self) -> bool:
        """Whether a plan knows that it has failed."""
        return self.told or (self.completing and self.status.failed)

    def hold(self) -> bool:
        """Note a pause; return False if it was paused already, or has ended."""
        if not self.running or self.held:
            return False
        self.held = True
        self.status.pause_timeout()
        return True

    def release(self) -> bool:
        """Note the end of a pause; return False if it was not paused, or has ended."""
        held, self.held = self.held, False
        if not self.running or not held:
            return False
        if self.completing:
            self.status.resume_timeout()
        return True

    def fail(self, error: Exception) -> None:
        """Fail, unless it has ended or failed already."""
        self.failure = self.failure or error
        self.status.fail(error)
