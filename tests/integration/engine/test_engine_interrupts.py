"""Ctrl-C at any moment ends a program immediately; the engine is closed and files are complete."""

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd.engine import PcapFile

Build = Callable[..., dict[str, Any]]
Python = Callable[[str], subprocess.Popen[str]]

EVERYTHING = """
    import itertools, numpy as np
    from daqiri_ophyd.engine import Engine

    packets = np.zeros((300, 100), np.uint8)
    for number in itertools.count():
        with Engine.open({config!r}) as engine:
            rx, tx = engine.ports[0].rx[0], engine.ports[-1].tx[0]
            with rx.record({folder!r}, f"run{{number}}", roll_packets=250) as recorder:
                for _ in range(5):
                    tx.send(packets, timeout=None)
                tx.wait_sent(None)
                recorder.wait(0.002)
            tx.send(packets, timeout=None)
            for burst in rx.bursts(0.002):
                burst.gather()
        if number == 1:
            print("begun", flush=True)
"""


def interrupt_once(child: subprocess.Popen[str], after: float) -> str:
    """Let the program start, interrupt it some time later, and return its error output."""
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    time.sleep(after)
    child.send_signal(signal.SIGINT)
    try:
        _, errors = child.communicate(timeout=30)
    finally:
        child.kill()
    return errors


@pytest.mark.parametrize("kind", ["loopback", "udp"])
def test_at_any_moment(
    kind: str, loopback: Build, udp: Build, python: Python, tmp_path: Path
) -> None:
    chance = random.Random(kind)
    # Few buffers, so that senders wait for them.
    config = loopback() if kind == "loopback" else udp()
    config["tx_meta_buffers"] = 2
    for attempt in range(6):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with python(EVERYTHING.format(config=config, folder=str(folder))) as child:
            errors = interrupt_once(child, chance.uniform(0, 0.1))
        assert child.returncode == -signal.SIGINT
        # Only the output of Python itself.
        assert errors.startswith("Traceback (most recent call last):\n"), errors
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
        files = sorted(folder.glob("*.pcap"))
        assert files
        for file in files:
            with PcapFile(file) as pcap:
                assert pcap.torn_bytes == 0
            assert file.with_name(file.name + ".json").exists()


@pytest.mark.parametrize(
    "call",
    [
        "tx.wait_sent()",
        "tx.send(np.zeros((64, 60), np.uint8), timeout=None)",
        "list(rx.bursts(None))",
        "recorder.stop(); rx.receive(None)",
        "threading.Event().wait()",
    ],
)
def test_while_packets_wait_for_their_time(
    loopback: Build, python: Python, tmp_path: Path, call: str
) -> None:
    script = f"""
        import numpy as np, threading, time
        from daqiri_ophyd.engine import Engine

        def announce():
            time.sleep(0.1)
            print("begun", flush=True)

        with Engine.open({loopback(tx_meta_buffers=2)!r}) as engine:
            rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
            far = np.full(128, engine.ports[0].now() + 3600 * 10**9)
            if "recorder" in {call!r}:
                recorder = rx.record({str(tmp_path)!r})
            tx.send(np.zeros((128, 60), np.uint8), launch_times=far)
            threading.Thread(target=announce).start()
            try:
                {call}
            except KeyboardInterrupt:
                pass
        counters = tx.counters()
        assert (counters.held, counters.sent) == (0, 0), counters
        assert counters.dropped["flushed"] == counters.submitted == 128, counters
    """
    with python(script) as child:
        assert interrupt_once(child, 0.0) == ""
    assert child.returncode == 0
