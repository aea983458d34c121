"""The RunEngine that runs a plan with a device."""

import asyncio
from collections.abc import Mapping
from typing import Any
from weakref import WeakMethod, WeakSet

from bluesky.run_engine import RunEngine

__all__ = ["FollowedRuns", "calling_run_engine", "calling_task"]


def calling_task() -> "asyncio.Task[Any] | None":
    """Return the task that calls, such as that of a plan; None in a script."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


def calling_run_engine() -> RunEngine | None:
    """Return the RunEngine whose plan calls a device; None outside of a plan."""
    task = calling_task()
    # Bluesky has no other way to it: the task runs a method of the RunEngine.
    frame = None if task is None else getattr(task.get_coro(), "cr_frame", None)
    owner = None if frame is None else frame.f_locals.get("self")
    return owner if isinstance(owner, RunEngine) else None


class FollowedRuns:
    """Runs of the RunEngines that use a device: which are open, and whether one has failed."""

    def __init__(self) -> None:
        self._followed: WeakSet[RunEngine] = WeakSet()
        self.open: dict[str, Mapping[str, Any]] = {}
        """Start documents of open runs, by uid."""
        self.latest: Mapping[str, Any] | None = None
        """Start document of the latest run."""
        self._latest_ended = ""  # its uid, if it has
        self.failed: set[str] = set()
        """Runs that have not ended with success, by uid."""

    def follow(self, run_engine: RunEngine | None) -> None:
        """Take the documents of a RunEngine from now on, once."""
        if run_engine is None or run_engine in self._followed:
            return
        self._followed.add(run_engine)
        method = WeakMethod(self.take)

        def take(name: str, doc: Mapping[str, Any]) -> None:
            call = method()
            if call is not None:
                call(name, doc)

        run_engine.subscribe(take)

    @property
    def latest_uid(self) -> str | None:
        """The uid of the latest run."""
        return None if self.latest is None else self.latest["uid"]

    @property
    def current(self) -> Mapping[str, Any] | None:
        """Start document of the run in progress; None if there is none, or several are."""
        if self.open:
            return next(iter(self.open.values())) if len(self.open) == 1 else None
        # It may have been opened before its RunEngine was followed.
        return None if self.latest_uid == self._latest_ended else self.latest

    def take(self, name: str, doc: Mapping[str, Any]) -> None:
        """Take a document."""
        if name == "start":
            self.open[doc["uid"]] = self.latest = doc
        elif name == "stop":
            self.open.pop(doc["run_start"], None)
            if doc["run_start"] == self.latest_uid:
                self._latest_ended = doc["run_start"]
            if doc["exit_status"] != "success":
                self.failed.add(doc["run_start"])
