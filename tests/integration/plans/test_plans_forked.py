"""Devices in a process that is forked while their engine is being opened."""

import os
import signal
import threading

import pytest

from daqiri_ophyd.devices.daq import _engine_owner
from daqiri_ophyd.devices.parts._ticker import default_ticker
from daqiri_ophyd.engine import Engine


class Gate:
    """Opens engines of this process only when permitted, and reports requests."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.asked, self.allowed = threading.Event(), threading.Event()

    def open(self, configuration):
        if os.getpid() == self._process:
            self.asked.set()
            assert self.allowed.wait(60)
        return Engine.open(configuration)

    close = staticmethod(Engine.close)


def use(daq) -> bool:
    """Open the engine, send, and tick, in a child that has no threads of its parent."""
    signal.alarm(30)  # ends a child that waits for a lock
    assert not daq.is_open
    ticked = threading.Event()
    default_ticker().add(ticked.set)
    with daq:
        queue = daq.tx_queue("port0", "out")
        assert queue.send([bytes(60)] * 3) == 3 and queue.wait_sent(10)
    return not daq.is_open and ticked.wait(60)


@pytest.mark.usefixtures("fixed_flows")  # a change opens an engine
@pytest.mark.parametrize("changes", [False, True])
def test_a_forked_child_opens_an_engine_of_its_own(make, monkeypatch, changes):
    daq, gate = make(), Gate()
    default_ticker().add(lambda: None)
    if changes:
        daq.open()
    monkeypatch.setattr(_engine_owner, "Engine", gate)
    if changes:
        done = daq.begin_change({"port0": {"images": {"udp_dst": 6000}}})
        opening = None
    else:
        opening = threading.Thread(target=daq.open)
        opening.start()
    assert gate.asked.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if use(daq) else 2
        finally:
            os._exit(code)
    gate.allowed.set()
    if opening is None:
        done.result(60)
    else:
        opening.join(60)
    assert daq.is_open
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
