"""Waiting for conditions."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], timeout: float = 30.0) -> bool:
    """Whether a condition holds within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def wait_for(condition: Callable[[], object], timeout: float = 20.0) -> None:
    """Wait until a condition holds; an error after `timeout` seconds."""
    assert eventually(condition, timeout), f"not within {timeout:g} s"
