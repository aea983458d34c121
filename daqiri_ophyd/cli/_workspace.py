"""A RunEngine, a device and a catalog, for commands that run plans."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bluesky import RunEngine
from bluesky.utils import DuringTask, MsgGenerator, RunEngineInterrupted
from bluesky.utils import TransitionError as NotRunningError  # pyright: ignore[reportPrivateImportUsage]

from ..catalog import Catalog
from ..devices import Daq, make_daq
from ..documents import CaptureSequence
from ..engine import NetworkConfig
from ._signals import ended_by

# Between attempts to pause a RunEngine, s.
_RETRY_S = 0.02
# Period of checks for signals, s.
_LOOK_S = 0.2


@dataclass(frozen=True)
class Workspace:
    """RunEngine, device and catalog to run a plan and store its run."""

    engine: RunEngine
    daq: Daq
    catalog: Catalog

    def run(self, plan: MsgGenerator[Any]) -> str:
        """Run a plan that has one run; return its uid.

        Ctrl-C, SIGTERM and SIGHUP abort it, with files and run complete.
        """
        try:
            uids: Any = self.engine(plan)
        except RunEngineInterrupted:
            if self.engine.state != "idle":
                received = ended_by()
                self.engine.abort(
                    reason="interrupted from the keyboard"
                    if received is None
                    else f"ended by {received.name}"
                )
            raise KeyboardInterrupt from None
        return uids[-1]


class WaitForPlan(DuringTask):
    """Waits for the end of a plan, and checks for signals meanwhile.

    Python handles signals in this thread. A signal that arrives just before the wait, or in another
    thread, does not end the wait.
    """

    def block(self, blocking_event: threading.Event) -> None:
        """Return when the event is set."""
        while not blocking_event.wait(_LOOK_S):
            pass


class _PauseOnInterrupt:
    """The first Ctrl-C pauses at once; by default a RunEngine waits for a checkpoint first."""

    def __init__(self, engine: RunEngine) -> None:
        self._engine = engine
        self._before: Any = None
        self._left = threading.Event()

    def __enter__(self) -> None:
        self._left.clear()
        self._before = signal.signal(signal.SIGINT, self._pause)

    def __exit__(self, *_: object) -> None:
        self._left.set()
        signal.signal(signal.SIGINT, self._before)

    def _pause(self, *_: object) -> None:
        # In a thread: the request waits for the RunEngine, which may wait for this handler.
        threading.Thread(target=self._request, name="ctrl-c", daemon=True).start()

    def _request(self) -> None:
        # It may not be running yet, or may have paused or ended meanwhile.
        while not self._left.wait(_RETRY_S):
            with suppress(NotRunningError):
                return self._engine.request_pause(defer=False)


def captures_of(data: Path) -> Path:
    """
    Return the directory of captures in a data directory.

    Raises
    ------
    ValueError
        If documents cannot name it.
    """
    captures = data.resolve() / "captures"
    CaptureSequence("captures", captures)
    return captures


def open_catalog(data: Path, name: str | None = None) -> Catalog:
    """Open the catalog at an address or in a directory; None: that of the data directory."""
    data = data.resolve()
    captures = captures_of(data)
    captures.mkdir(parents=True, exist_ok=True)
    if name is not None and "://" in name:
        return Catalog.connect(name, readable=[captures], backup_directory=data / "backup")
    return Catalog.open(data / "catalog" if name is None else name, readable=[captures])


@contextmanager
def open_workspace(
    config: NetworkConfig | dict[str, Any], data: Path, catalog: str | None = None
) -> Iterator[Workspace]:
    """Open catalog, device and RunEngine; close them in reverse order."""
    with (
        open_catalog(data, catalog) as opened,
        make_daq(config, directory=captures_of(data)) as daq,
    ):
        engine = RunEngine(context_managers=[_PauseOnInterrupt], during_task=WaitForPlan())
        engine.subscribe(opened.writer())
        yield Workspace(engine, daq, opened)
