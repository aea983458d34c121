"""Limits of a recording."""

import threading
import time
from collections.abc import Callable

__all__ = ["StopRule"]


class StopRule:
    """Stops a recording after a number of packets or a time, whichever comes first.

    The recorder counts the packets. The time is kept here; its clock stops while the recording is
    paused.

    Parameters
    ----------
    packets : int
        Number of packets; 0: no limit.
    seconds : float
        Time, s; 0: no limit.
    """

    def __init__(self, packets: int = 0, seconds: float = 0.0) -> None:
        self.packets = packets
        self.seconds = seconds
        self._remaining = seconds
        self._since = 0.0
        self._stop: Callable[[], object] | None = None
        self._timer: threading.Timer | None = None

    @property
    def finite(self) -> bool:
        """Whether there is any limit."""
        return self.packets > 0 or self.seconds > 0

    def arm(self, stop: Callable[[], object]) -> None:
        """Start the clock; ``stop`` is called on a thread of its own when the time is over."""
        self._stop = stop
        if self.seconds > 0:
            self._start()

    def end_in(self, seconds: float) -> None:
        """Set the remaining time, s."""
        self.cancel()
        self._remaining = seconds
        self._start()

    def pause(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self.cancel()
            self._remaining = max(0.0, self._remaining - (time.monotonic() - self._since))

    def resume(self) -> None:
        """Start the clock again."""
        if self._timer is None and self._since and self._stop is not None:
            self._start()

    def cancel(self) -> None:
        """Cancel the time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        if self._stop is None:
            raise RuntimeError("arm() the stop rule before starting its clock.")
        self._since = time.monotonic()
        self._timer = threading.Timer(self._remaining, self._stop)
        self._timer.daemon = True
        self._timer.start()
