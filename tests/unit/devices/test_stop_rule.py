import threading

import pytest

from daqiri_ophyd.devices._stop_rule import StopRule


def test_limits():
    assert not StopRule().finite
    assert StopRule(packets=1).finite
    assert StopRule(seconds=0.1).finite


def test_time_ends_it():
    ended = threading.Event()
    StopRule(seconds=0.01).arm(ended.set)
    assert ended.wait(5)


def test_time_stands_still_while_held():
    ended = threading.Event()
    rule = StopRule(seconds=0.1)
    rule.arm(ended.set)
    rule.pause()
    rule.pause()
    assert not ended.wait(0.3)
    rule.resume()
    rule.resume()
    assert ended.wait(5)


def test_nothing_happens_without_a_time_or_after_cancel():
    ended = threading.Event()
    rule = StopRule(packets=5)
    rule.arm(ended.set)
    rule.pause()
    rule.resume()
    timed = StopRule(seconds=0.05)
    timed.arm(ended.set)
    timed.cancel()
    assert not ended.wait(0.2)


def test_an_end_can_be_set():
    ended = threading.Event()
    rule = StopRule()
    with pytest.raises(RuntimeError, match=r"arm\(\)"):
        rule.end_in(0.1)
    rule.arm(ended.set)
    rule.end_in(0.01)
    assert ended.wait(5)
