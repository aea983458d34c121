"""Wait for the end of a plan in the main thread."""

import sys
import threading

from bluesky.utils import DefaultDuringTask

__all__ = ["WaitForPlan"]

# Period of checks for signals, s.
_LOOK_S = 0.2


class WaitForPlan(DefaultDuringTask):
    """Waits for the end of a plan, and checks for signals meanwhile; Ctrl-C is never missed.

    Python handles signals in the main thread. A signal that arrives just before its wait for a
    plan, or in another thread, does not end that wait: without this, one Ctrl-C in some hundreds
    has no effect until the next. With a Qt backend of matplotlib, it is bluesky's own task, which
    runs the windows and is woken by signals.

    Examples
    --------
    >>> RE = RunEngine(during_task=WaitForPlan())
    """

    def block(self, blocking_event: threading.Event) -> None:
        """Return when the event is set."""
        drawn = sys.modules.get("matplotlib")
        if drawn is not None and "qt" in drawn.get_backend().lower():
            super().block(blocking_event)
            return
        while not blocking_event.wait(_LOOK_S):
            pass
