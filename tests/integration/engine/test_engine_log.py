"""Lines of the engine in the log of Python."""

import itertools
import logging
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from daqiri_ophyd.engine import Engine


class Lines(logging.Handler):
    """Keeps records and tells when one came."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.came.set()


@pytest.fixture
def lines() -> Any:
    logger, handler = logging.getLogger("daqiri_ophyd.engine"), Lines()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


_numbers = itertools.count(1)


def remarkable(udp: Callable[..., Any]) -> Any:
    """A configuration with a key that has no effect, which the engine logs: each time another."""
    config = udp()
    config["log_level"] = "warn"
    config["interfaces"][1]["socket_config"]["min_ipg_ns"] = next(_numbers)
    return config


def test_lines_become_records(udp: Callable[..., Any], lines: Lines) -> None:
    with Engine.open(remarkable(udp)):
        assert lines.came.wait(10.0)
    (record, *_) = lines.records
    assert record.levelno == logging.WARNING
    assert record.name == "daqiri_ophyd.engine"
    assert "min_ipg_ns" in record.getMessage()


def test_the_level_is_the_configurations(udp: Callable[..., Any], lines: Lines) -> None:
    with Engine.open(remarkable(udp) | {"log_level": "off"}):
        assert not lines.came.wait(0.2)


def test_lines_reach_stderr_without_a_handler(
    udp: Callable[..., Any], python: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = python(
        f"""
        from daqiri_ophyd.engine import Engine
        Engine.open({remarkable(udp)!r}).close()
        """
    )
    _, text = process.communicate(timeout=50)
    assert process.returncode == 0, text
    assert text.count("min_ipg_ns") == 1


def test_a_forked_child_logs_for_itself(udp: Callable[..., Any], lines: Lines) -> None:
    with Engine.open(remarkable(udp)):
        assert lines.came.wait(10.0)
        child = os.fork()
        if child == 0:
            lines.came.clear()
            with Engine.open(remarkable(udp)):
                os._exit(0 if lines.came.wait(10.0) else 1)
        assert os.waitpid(child, 0)[1] == 0
