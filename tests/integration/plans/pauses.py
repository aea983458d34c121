"""Pauses of a plan at a condition."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bluesky import RunEngine
from bluesky.utils import RunEngineInterrupted
from waiting import wait_for

from daqiri_ophyd.devices import TxQueue


@contextmanager
def paused_when(
    run_engine: RunEngine, condition: Callable[[], Any], *sending: TxQueue, defer: bool = False
) -> Iterator[None]:
    """Require that the plan run inside pauses when a condition holds.

    `sending` pause at once, as the plan lets them do: else a busy machine pauses after their last
    packet, when there may be nothing left to pause.
    """

    ended = threading.Event()

    def watch() -> None:
        wait_for(lambda: ended.is_set() or condition())
        if ended.is_set():
            return
        for queue in sending:
            queue.pause_sending()
        run_engine.request_pause(defer=defer)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(RunEngineInterrupted):
            yield
    finally:
        ended.set()
        watcher.join()
    assert run_engine.state == "paused"
