"""What tshark sees on a network interface while something is sent."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from networks import Network
from waiting import wait_for


@contextlib.contextmanager
def captured_live(network: Network, interface: str, count: int, file: Path) -> Iterator[None]:
    """Let tshark write the next `count` frames to a pcap file, and end."""
    if shutil.which("tshark") is None:
        pytest.skip("needs tshark")
    command = ["tshark", "-n", "-i", interface, "-c", str(count), "-F", "pcap", "-w", str(file)]
    started = partial(subprocess.Popen, command, stderr=subprocess.PIPE, text=True)
    with network.call(started) as tshark:
        try:
            # Reported before it happens.
            while "Capturing" not in tshark.stderr.readline():
                assert tshark.poll() is None
            wait_for(lambda: file.exists() and file.stat().st_size > 0)
            yield
            assert tshark.wait(60) == 0
        finally:
            tshark.kill()
