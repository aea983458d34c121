"""Interrupts of plans."""

import threading
from collections.abc import Callable

from bluesky import RunEngine
from bluesky import plan_stubs as bps
from bluesky.suspenders import SuspendBoolHigh
from bluesky.utils import MsgGenerator
from ophyd import Signal
from run_documents import until
from waiting import wait_for

STATUS = {"abort": "abort", "stop": "success", "halt": "abort"}
"""Exit status of a run that is ended so."""


class Beam:
    """A suspender's signal; it is high for as long as it takes to suspend the plan."""

    def __init__(self, run_engine: RunEngine) -> None:
        self._signal = Signal(name="beam_is_off", value=0)
        self._suspended = threading.Event()
        self.then: Callable[[], object] = lambda: None
        run_engine.install_suspender(SuspendBoolHigh(self._signal, pre_plan=self._note))
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _note(self) -> MsgGenerator[None]:
        yield from bps.null()
        self._suspended.set()

    def _watch(self) -> None:
        wait_for(self._suspended.is_set)
        self._signal.put(0)
        self.then()

    def go_off(self) -> None:
        self._signal.put(1)

    def off(self) -> MsgGenerator[None]:
        """Switch it off, and let the plan be suspended here."""
        self._signal.put(1)
        yield from until(self._suspended.is_set)

    def end(self) -> None:
        self._suspended.set()
        self._watcher.join()
