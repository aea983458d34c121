"""Requests of plans to an engine that take time: done on threads, one after the other."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Changes", "FlowTable", "Names", "Request", "Requests"]

Names = Mapping[str, Iterable[str]]
"""Names of flows by port."""
Changes = Mapping[str, Mapping[str, Mapping[Any, Any] | None]]
"""Keys of flows by port and flow; see `daqiri_ophyd.devices.Daq.change_flows`."""
FlowTable = Mapping[str, Sequence[Mapping[str, Any]]]
"""Flows of ports, as configured."""


@dataclass(frozen=True, eq=False)
class Request:
    """A change of flows, an open engine, or both; `done` has the error if it failed.

    The `restored` flows are set to those of `table`.
    """

    changes: Changes = field(default_factory=dict)
    table: FlowTable = field(default_factory=dict)
    restored: Names = field(default_factory=dict)
    opened: bool = False
    done: Future[None] = field(default_factory=Future)


class Requests:
    """Open requests. Requests that arrive together are done together.

    Parameters
    ----------
    lock : RLock
        Held while requests are done.
    serve : callable
        ``serve(take)`` does the requests, and returns whether flows have changed. ``take`` returns
        the waiting requests; called again, it includes those that have arrived meanwhile.
    follow : callable
        Called without the lock when flows have changed, before requests are `done`: subscribers may
        change flows, and wait for that change.
    """

    def __init__(
        self,
        lock: Any,
        serve: Callable[[Callable[[], list[Request]]], bool],
        follow: Callable[[], None],
    ) -> None:
        self.adding = threading.Lock()  # held to read `waiting` and to add to it
        self.waiting: list[Request] = []
        self._lock = lock
        self._serve = serve
        self._follow = follow
        self._serving = False

    def add(self, request: Request) -> Request:
        """Add a request, and return it; `begin` or `settle` does it."""
        with self.adding:
            self.waiting.append(request)
        return request

    def settle(self) -> None:
        """Do the waiting requests, or wait until another thread has done them."""
        while True:
            with self._lock:
                # Serving calls devices, which may call this method.
                if self._serving or not self.waiting:
                    return
                self._serving = True
                try:
                    done, changed, error = self._serve_waiting()
                finally:
                    self._serving = False
            try:
                if changed:
                    self._follow()
            finally:
                for request in done:
                    if error is None:
                        request.done.set_result(None)
                    else:
                        request.done.set_exception(error)
            if not isinstance(error, Exception | None):
                raise error  # Ctrl-C, also if all requests came from other threads

    def begin(self) -> None:
        """Do the waiting requests on a thread."""
        # Not a daemon, which could open an engine while the process ends.
        threading.Thread(target=self.settle, name="daqiri-opening").start()

    def _serve_waiting(self) -> tuple[list[Request], bool, BaseException | None]:
        """Return the requests that are done, whether flows have changed, and the error."""
        taken: list[Request] = []

        def take() -> list[Request]:
            with self.adding:
                taken[:] = self.waiting
            return taken

        changed, error = False, None
        try:
            changed = self._serve(take)
        except BaseException as raised:  # noqa: BLE001 - those who wait raise it
            error = raised
        with self.adding:
            done = taken or list(self.waiting)
            del self.waiting[: len(done)]
        return done, changed, error
