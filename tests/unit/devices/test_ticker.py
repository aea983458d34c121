"""Periodic calls that fail."""

import threading

import pytest

from daqiri_ophyd.devices.parts._ticker import Ticker
from daqiri_ophyd.engine import EventPump


@pytest.fixture
def ticker():
    pump = EventPump("ticks")
    yield Ticker(pump, period=0.001)
    pump.close()


def test_the_owner_of_a_call_that_fails_is_told(ticker, caplog):
    failed, told, others = [], threading.Event(), threading.Event()

    def call():
        raise ValueError("the directory is gone")

    def tell(error):
        failed.append(error)
        told.set()

    ticker.add(call, tell)
    ticker.add(others.set)
    assert told.wait(60)
    others.clear()
    assert others.wait(60)  # the others go on
    ticker.remove(others.set)
    (error,) = failed
    assert str(error) == "the directory is gone"
    (record,) = caplog.records
    assert "failed; it is not called again" in record.getMessage()


def test_an_owner_that_fails_itself_stops_no_other_call(ticker, caplog):
    others = threading.Event()

    def fail(*_):
        raise ValueError("the directory is gone")

    ticker.add(fail, fail)
    ticker.add(others.set)
    for _ in range(2):
        assert others.wait(60)
        others.clear()
    ticker.remove(others.set)
    assert len(caplog.records) == 2
