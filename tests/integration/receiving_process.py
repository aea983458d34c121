"""A process whose engine receives numbered packets, and which can be stopped."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from networks import Network
from waiting import wait_for, wait_for_command

from daqiri_ophyd.engine import PortCounters, ethernet

__all__ = ["ReceivingProcess", "numbered_frames", "receiving"]

HEADERS, COPIES = 42, 119
# Each payload has its number many times. Frames that are not received may be dropped, others not.
SCRIPT = """
import dataclasses, json, logging, sys
from daqiri_ophyd.engine import Engine
logging.basicConfig(level=logging.INFO)
config = json.loads(sys.argv[1])
headers = 0 if config["stream_type"] == "socket" else int(sys.argv[2])
with Engine.open(config) as engine:
    port = engine.ports[0]
    print("open", flush=True)
    numbers, torn = set(), 0
    for _ in sys.stdin:
        for queue in port.rx:
            while (burst := queue.receive(0)) is not None:
                with burst:
                    copies = burst.gather()[:, headers:].copy().view(">u8")
                    torn += int((copies != copies[:, :1]).sum())
                    numbers.update(copies[:, 0].tolist())
        counters = [queue.counters() for queue in port.rx]
        received = sum(each.received for each in counters)
        dropped = {reason: sum(each.dropped[reason] for each in counters)
                   for reason in counters[0].dropped}
        lost = dataclasses.asdict(port.counters())
        print(json.dumps([received, dropped, lost, len(numbers), torn]), flush=True)
"""


def numbered_frames(
    numbers: range, source_port: int, src_ip: str = "192.0.2.1", dst_ip: str = "192.0.2.2"
) -> list[bytes]:
    """UDP frames to port 5000 whose payloads have their numbers, many times."""
    payloads = np.repeat(np.array(numbers, ">u8")[:, None], COPIES, axis=1).view(np.uint8)
    made = ethernet.udp_frames(
        payloads,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip=src_ip,
        dst_ip=dst_ip,
        src_port=source_port,
        dst_port=5000,
    )
    return [frame.tobytes() for frame in made]


class ReceivingProcess:
    """A process with an engine, which counts and frees packets when it is asked."""

    def __init__(self, network: Network, config: dict[str, Any]) -> None:
        command = [sys.executable, "-c", SCRIPT, json.dumps(config), f"{HEADERS}"]
        pipe = subprocess.PIPE
        start = partial(subprocess.Popen, command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.process: subprocess.Popen[str] = network.call(start)
        self.different = 0
        self.lost = PortCounters(0, 0, 0, 0, 0)
        wait_for_command(self.process, lambda: self._line() == "open")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def counters(self) -> tuple[int, dict[str, int]]:
        """Packets that were received, and dropped by reason.

        Afterwards `different` is the number of different ones that were delivered, and `lost` what
        the port has lost.
        """
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        received, dropped, lost, self.different, torn = json.loads(self._line())
        assert torn == 0
        self.lost = PortCounters(**lost)
        return received, {reason: n for reason, n in dropped.items() if n}

    def check_frames(self) -> None:
        """Check that each packet that was not dropped was delivered, once."""

        def delivered() -> bool:
            received, dropped = self.counters()
            return self.different == received - sum(dropped.values())

        wait_for(delivered)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")

    def proceed(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> str:
        """Close the engine; what it logged."""
        _, logged = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, logged
        return logged


@contextlib.contextmanager
def receiving(network: Network, config: dict[str, Any]) -> Iterator[ReceivingProcess]:
    receiver = ReceivingProcess(network, config)
    with receiver.process:
        try:
            yield receiver
        finally:
            receiver.process.kill()
