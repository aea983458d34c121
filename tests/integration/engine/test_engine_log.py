"""Lines of the engine in the log of Python."""

import itertools
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd.engine import Engine


class Lines(logging.Handler):
    """Keeps records and notifies when one arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.came.set()

    def find(self, text: str) -> Any:
        """Wait for a record with this text."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for record in list(self.records):
                if text in record.getMessage():
                    return record
            time.sleep(0.01)
        raise AssertionError(f"{text!r} is not among {[r.getMessage() for r in self.records]}")


@pytest.fixture
def lines() -> Any:
    logger, handler = logging.getLogger("daqiri_ophyd.engine"), Lines()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


_numbers = itertools.count(1)


def remarkable(udp: Callable[..., Any]) -> Any:
    """A configuration with an unused key, which the engine logs; a different key each time."""
    config = udp()
    config["log_level"] = "warn"
    config["interfaces"][1]["socket_config"]["min_ipg_ns"] = next(_numbers)
    return config


def test_lines_become_records(udp: Callable[..., Any], lines: Lines) -> None:
    with Engine.open(remarkable(udp)):
        record = lines.find("min_ipg_ns")  # without privileges there are other lines, too
    assert record.levelno == logging.WARNING
    assert record.name == "daqiri_ophyd.engine"


def test_records_say_what_they_are_about(udp: Callable[..., Any], lines: Lines) -> None:
    config = remarkable(udp) | {"log_level": "warn"}
    with Engine.open(config) as engine:
        server, client = engine.ports
        # No packet leaves 127.0.0.1 for there.
        server.tx[0].send([b"to nobody"], connection_id=engine.connect("192.0.2.1", 9))
        server.tx[0].wait_sent(5.0)
        wanted = {"min_ipg_ns": (client.name, ""), "cannot be sent": (server.name, "tx0")}
        for text, origin in wanted.items():
            record = lines.find(text)
            assert (record.interface, record.queue) == origin
            assert logging.Formatter("%(interface)s/%(queue)s").format(record)


def test_a_recording_that_fails_says_of_which_queue(
    udp: Callable[..., Any], lines: Lines, tmp_path: Path
) -> None:
    config = udp()
    config["log_level"] = "warn"
    with Engine.open(config) as engine:
        rx = engine.ports[0].rx[0]
        folder = tmp_path / "gone"
        folder.mkdir()
        with rx.record(folder, roll_packets=1):
            shutil.rmtree(folder)
            engine.ports[1].tx[0].send([b"one", b"two", b"three"])
            record = lines.find("recording of queue")
            assert (record.interface, record.queue) == (engine.ports[0].name, rx.name)


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
    _, text = process.communicate(timeout=200)
    assert process.returncode == 0, text
    assert text.count("min_ipg_ns") == 1


def test_a_forked_child_logs_for_itself(udp: Callable[..., Any], lines: Lines) -> None:
    with Engine.open(remarkable(udp)):
        assert lines.came.wait(60)
        child = os.fork()
        if child == 0:
            lines.came.clear()
            with Engine.open(remarkable(udp)):
                os._exit(0 if lines.came.wait(60) else 1)
        assert os.waitpid(child, 0)[1] == 0
