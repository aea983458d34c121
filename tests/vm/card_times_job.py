"""In the guest: receive times of a network card, switched on and off by engines."""

import contextlib
import ctypes
import fcntl
import json
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import DaqiriError, Engine, NotReadyError, ethernet

Result = dict[str, Any]
SIOCSHWTSTAMP, SIOCGHWTSTAMP = 0x89B0, 0x89B1
FILTER_ALL, FILTER_PTP = 1, 12
TAI_NS = 37 * 10**9
# Keeps a clock 37 s ahead of the system's, as PTP does.
SYNCHRONIZE = """
import sys, time
while True:
    time.clock_settime_ns(int(sys.argv[1]), time.time_ns() + int(sys.argv[2]))
"""


def command(line: str) -> None:
    subprocess.run(line.split(), check=True)


def ask(name: str, request: int, *settings: int) -> tuple[int, ...]:
    """The flags, transmit type and receive filter of an interface."""
    config = ctypes.create_string_buffer(struct.pack("iii", *settings or (0, 0, 0)), 12)
    asked = struct.pack("16sP16x", name.encode(), ctypes.addressof(config))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, request, asked)
    return struct.unpack("iii", config.raw)


def configuration(name: str) -> Result:
    queue = {"name": "rx0", "id": 0, "cpu_core": "any", "batch_size": 1, "memory_regions": ["rx"]}
    rx = {"hardware_timestamps": True, "queues": [queue], "filter": "udp dst port 5000"}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "log_level": "warn",
        "memory_regions": [{"name": "rx", "kind": "host", "num_bufs": 512, "buf_size": 2048}],
        "interfaces": [{"name": "port0", "address": name, "rx": rx}],
    }


def opened(name: str) -> Engine:
    """An engine; the guest may lose its turn while the clock is set."""
    for _ in range(100):
        with contextlib.suppress(NotReadyError):
            return Engine.open(configuration(name))
    return Engine.open(configuration(name))


def refusal(name: str) -> str:
    try:
        Engine.open(configuration(name)).close()
    except DaqiriError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def unprivileged_refusal(name: str) -> str:
    """Of a process that may not change network interfaces."""
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        cap_net_admin, version_3 = 12, 0x20080522
        kept = ~(1 << cap_net_admin)
        header = (ctypes.c_uint32 * 2)(version_3, 0)
        data = (ctypes.c_uint32 * 6)()
        libc.capget(header, data)
        for i in range(3):
            data[i] &= kept
        libc.capset(header, data)
        while (text := refusal(name)).startswith("NotReadyError"):
            pass
        Path("/dev/shm/refusal").write_text(text)
        os._exit(0)
    os.waitpid(child, 0)
    return Path("/dev/shm/refusal").read_text()


def receive(name: str, other: str) -> Result:
    """Frames of another interface on the same cable, and the settings meanwhile."""
    made = ethernet.udp_frames(
        (20, 100),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )
    with opened(name) as engine:
        (queue,) = engine.ports[0].rx
        during = ask(name, SIOCGHWTSTAMP)
        begun = engine.ports[0].now()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((other, 0))
            for frame in made:
                wire.send(frame.tobytes())
        times: list[int] = []
        while len(times) < len(made):
            burst = queue.receive(20.0)
            assert burst is not None, queue.counters()
            with burst:
                times += burst.timestamps.tolist()
        time.sleep(0.1)
        ended = engine.ports[0].now()
    return {"during": during, "begun": begun, "ended": ended, "times": times}


def main() -> None:
    logging.basicConfig(level=logging.WARNING, filename="/dev/shm/log")
    for name in ("eth0", "eth1"):
        command(f"ip link set {name} up")
    while "LOWER_UP" not in subprocess.check_output(["ip", "link", "show", "eth0"], text=True):
        time.sleep(0.1)
    clock = os.open("/dev/ptp0", os.O_RDWR)
    clock_id = ~clock << 3 | 3
    results: Result = {"before": ask("eth0", SIOCGHWTSTAMP)}
    results["without"] = refusal("lo")
    time.clock_settime_ns(clock_id, time.time_ns() + TAI_NS + 300_000_000)
    results["apart"] = refusal("eth0")
    synchronize = [sys.executable, "-c", SYNCHRONIZE]
    arguments = [str(clock_id), str(TAI_NS)]
    with subprocess.Popen([*synchronize, *arguments], pass_fds=[clock]) as service:
        try:
            while abs(time.clock_gettime_ns(clock_id) - time.time_ns() - TAI_NS) > 10**8:
                time.sleep(0.01)
            results["unprivileged"] = unprivileged_refusal("eth0")
            results["off"] = receive("eth0", "eth1")
            results["after_off"] = ask("eth0", SIOCGHWTSTAMP)
            results["changed"] = []
            for setting in ((0, 1, FILTER_ALL), (0, 0, FILTER_PTP)):
                with opened("eth0"):
                    ask("eth0", SIOCSHWTSTAMP, *setting)
                results["changed"].append(ask("eth0", SIOCGHWTSTAMP))
            ask("eth0", SIOCSHWTSTAMP, 0, 1, FILTER_ALL)
            results["on"] = receive("eth0", "eth1")
            results["after_on"] = ask("eth0", SIOCGHWTSTAMP)
        finally:
            service.kill()
    results["log"] = re.sub(r"\s+", " ", Path("/dev/shm/log").read_text())
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
