"""Waiting for conditions."""

import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from preloaded_processes import Preloaded


def eventually(condition: Callable[[], object], timeout: float = 30.0) -> bool:
    """Whether a condition holds within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def wait_for(condition: Callable[[], object], timeout: float = 60.0) -> None:
    """Wait until a condition holds; an error after `timeout` seconds."""
    assert eventually(condition, timeout), f"not within {timeout:g} s"


def wait_for_command(
    command: "subprocess.Popen[Any] | Preloaded", condition: Callable[[], object]
) -> None:
    """Wait until a condition holds, as long as a command runs.

    It needs seconds of a processor to begin, of which it gets a small share on a busy machine: the
    test's own limit ends the wait for one that hangs.
    """
    while not condition():
        if command.poll() is not None:
            _, said = command.communicate()
            pytest.fail(f"the command ended with {command.returncode}: {said}")
        time.sleep(0.1)
