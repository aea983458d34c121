"""Scans whose terminal is closed or stopped, and whose subscribers are slow or raise."""

import contextlib
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from daqiri_ophyd import plans, profiles

from .conftest import packets as count_packets

PROGRAM = """
import json, os, signal, sys, threading

from bluesky import RunEngine
from bluesky.utils import ProgressBarManager

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.devices import make_daq

signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup, disown
out, into = (int(number) for number in sys.argv[2:])
daq = make_daq(profiles.path("loopback"), directory=sys.argv[1])
RE = RunEngine({}, context_managers=[])
RE.waiting_hook = ProgressBarManager()
reasons = []
RE.subscribe(lambda name, doc: reasons.append((doc["exit_status"], doc["reason"])), "stop")
capture, tx = daq.port0.capture, daq.port0.tx.tx_q0
capture.packets.subscribe(lambda value, **_: os.write(out, f"rows {value}\\n".encode()))
daq.open()
os.write(out, b"ready\\n")
os.read(into, 1)
packets = {"count": 1000, "size": 64, "rate": 500}
try:
    RE(plans.capture(capture, 1000, tx=tx, packets=packets, timeout=1.0))
except BaseException as error:
    os.write(out, f"raised {error!r}\\n".encode())
os.write(out, f"ended {json.dumps(reasons)}\\n".encode())
daq.close()
os._exit(0)
"""


class Session:
    """A process whose terminal is a pseudo-terminal of the test."""

    def __init__(self, *arguments: object, environment: dict[str, str] | None = None) -> None:
        self.terminal, ends = pty.openpty()
        self._out, out = os.pipe()
        into, self._into = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments), str(out), str(into)],
            stdin=ends,
            stdout=ends,
            stderr=ends,
            pass_fds=[out, into],
            env=environment,
            start_new_session=True,
        )
        for number in (ends, out, into):
            os.close(number)
        self._lines = os.fdopen(self._out)
        self._shown = bytearray()

    def line(self) -> str:
        """Return the next line of the report, which is not written to the terminal."""
        return self._lines.readline().strip()

    def go(self) -> None:
        """Let the process begin its scan."""
        os.write(self._into, b"g")

    def shown(self) -> bytes:
        """Read what the process has written to the terminal."""
        self._shown += os.read(self.terminal, 4096)
        return bytes(self._shown)

    def hang_up(self) -> None:
        """Close the terminal."""
        os.close(self.terminal)
        self.terminal = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._lines.close()
        os.close(self._into)
        if self.terminal >= 0:
            os.close(self.terminal)


@pytest.fixture
def session():
    with contextlib.ExitStack() as stack:

        def start(*arguments, **options):
            started = Session(*arguments, **options)
            stack.callback(started.close)
            return started

        yield start


@pytest.fixture
def program(tmp_path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_scan_ends_although_its_terminal_is_closed(session, program, captures):
    scan = session(program, captures)
    assert scan.line() == "ready"
    scan.hang_up()
    scan.go()
    assert scan.line() == "rows 1000"
    assert scan.line() == 'ended [["success", ""]]'
    assert count_packets(sorted(captures.rglob("*.pcap"))) == 1000


def test_a_capture_goes_on_while_its_terminal_is_stopped(session, program, captures):
    scan = session(program, captures)
    assert scan.line() == "ready"
    scan.go()
    while b"packets/s" not in scan.shown():  # the progress bar
        pass
    os.write(scan.terminal, b"\x13")  # Ctrl-S
    assert scan.line() == "rows 1000"
    os.write(scan.terminal, b"\x11")  # Ctrl-Q
    reader = threading.Thread(target=drain, args=[scan.terminal], daemon=True)
    reader.start()
    assert scan.line() == 'ended [["success", ""]]'
    assert count_packets(sorted(captures.rglob("*.pcap"))) == 1000
    scan.process.wait()
    reader.join()


def drain(terminal: int) -> None:
    with contextlib.suppress(OSError):  # the process has ended
        while os.read(terminal, 4096):
            pass


COLLECTION = """
import json, os, signal, sys
from pathlib import Path

signal.signal(signal.SIGHUP, signal.SIG_IGN)
out, into = (int(number) for number in sys.argv[2:])
for script in sorted(Path(sys.argv[1]).glob("[0-9][0-9]-*.py")):
    exec(compile(script.read_text(), script, "exec"))
reasons = []
RE.subscribe(lambda name, doc: reasons.append((doc["exit_status"], doc["reason"])), "stop")
os.write(out, b"ready\\n")
os.read(into, 1)
capture_of_port, tx = daq.port0.capture, daq.port0.tx.tx_q0
packets = {"count": 300, "size": 64, "rate": 500}
try:
    RE(capture_scan(capture_of_port, motor1, 0, 1, 4, tx=tx, packets=packets))
except BaseException as error:
    os.write(out, f"raised {error!r}\\n".encode())
os.write(out, f"ended {json.dumps(reasons)}\\n".encode())
daq.close()
os._exit(0)
"""


def test_a_scan_of_the_startup_collection_ends_although_its_terminal_is_closed(
    session, tmp_path, captures
):
    program = tmp_path / "program.py"
    program.write_text(COLLECTION)
    scan = session(
        program,
        Path(profiles.__path__[0]) / "startup",
        environment=os.environ | {"DAQIRI_DATA": str(tmp_path)},
    )
    assert scan.line() == "ready"
    scan.go()
    while b"packets/s" not in scan.shown():  # progress bars and the table are in use
        pass
    scan.hang_up()
    assert scan.line() == 'ended [["success", ""]]'
    assert count_packets(sorted(captures.rglob("*.pcap"))) == 1200


@pytest.mark.parametrize("harm", ["raises", "hangs"])
def test_a_scan_ends_although_a_watcher_fails(profile, run_engine, documents, harm):
    daq, capture, tx = profile("loopback")
    released, called = threading.Event(), threading.Event()

    def watch(**_):
        called.set()
        if harm == "raises":
            raise OSError(5, "Input/output error")
        assert released.wait(60)

    def hook(statuses):
        for status in statuses or ():
            if hasattr(status, "watch"):
                status.watch(watch)

    run_engine.waiting_hook = hook
    packets = {"count": 300, "size": 64, "rate": 1000}
    run_engine(plans.capture(capture, 300, tx=tx, packets=packets, timeout=2.0))
    assert called.wait(60)
    assert documents.stop["exit_status"] == "success"
    assert [row[capture.packets.name] for row in documents.rows()] == [300]
    released.set()


def test_a_slow_subscriber_delays_a_scan_and_loses_nothing(profile, run_engine, documents):
    daq, capture, tx = profile("loopback")
    run_engine.subscribe(lambda *_: time.sleep(1.0))
    packets = {"count": 200, "size": 64, "rate": 1000}
    run_engine(plans.capture(capture, 200, tx=tx, packets=packets, timeout=0.5))
    assert documents.stop["exit_status"] == "success"
    assert count_packets(documents.files()) == 200


def test_a_subscriber_that_raises_ends_the_run_as_bluesky_defines(
    profile, run_engine, documents, captures
):
    daq, capture, tx = profile("loopback")

    def fail(name, doc):
        raise ValueError("no such database")

    run_engine.subscribe(fail, "event_page")
    packets = {"count": 200, "size": 64, "rate": 1000}
    with pytest.raises(ValueError, match="no such database"):
        run_engine(plans.capture(capture, 200, tx=tx, packets=packets))
    assert documents.stop["exit_status"] == "fail"
    assert count_packets(sorted(captures.rglob("*.pcap"))) == 200
