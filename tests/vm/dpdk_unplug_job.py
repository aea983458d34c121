"""In the guest: network cards are unplugged while engine ``dpdk`` receives and sends with them."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from guest_cards import BUS, bind, cards, reserve_hugepages
from guest_monitor import monitor
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine

FRAMES = 50
TIMEOUT = 60


def configuration(devices: list[str]) -> dict[str, Any]:
    """Each card sends, and receives with two queues, on a core each."""

    def queue(number: int, region: str, core: str = "any") -> dict[str, Any]:
        timeout = {"timeout_us": 1000} if region == "rx" else {}
        return {
            **timeout,
            **{"name": f"{region}{number}", "id": number, "cpu_core": core, "batch_size": 50},
            "memory_regions": [region],
        }

    return {
        "version": 1,
        "stream_type": "raw",
        "engine": "dpdk",
        "master_core": 1,
        "log_level": "warn",
        "memory_regions": [
            {"name": name, "kind": "host", "num_bufs": 8192, "buf_size": 2048}
            for name in ("rx", "tx")
        ],
        "interfaces": [
            {
                "name": name,
                "address": device,
                "tx": {"queues": [queue(0, "tx")]},
                "rx": {"queues": [queue(0, "rx"), queue(1, "rx", "0")]},
            }
            for name, device in zip(("first", "second"), devices, strict=True)
        ],
    }


def frames() -> NDArray[np.uint8]:
    made = np.zeros((FRAMES, 128), np.uint8)
    made[:, 0:12] = (2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8)
    made[:, 12:14] = (0x88, 0xB5)
    return made


def eventually(condition: Callable[[], bool], seconds: float = TIMEOUT) -> float:
    """Return how long it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(condition)
        time.sleep(0.01)
    return time.monotonic() - begun


def exchange(engine: Engine) -> None:
    """Send from each card to the other."""
    eventually(lambda: all(port.link().state == "up" for port in engine.ports))
    for sender, receiver in (engine.ports, engine.ports[::-1]):
        assert sender.tx[0].send(frames(), timeout=10) == FRAMES
        missing = FRAMES
        end = time.monotonic() + TIMEOUT
        while missing > 0:
            assert time.monotonic() < end, [queue.counters() for queue in receiver.rx]
            missing -= take(receiver)


def take(port: Any) -> int:
    """Receive what a port has, and give it back; return the number of packets."""
    count = 0
    for queue in port.rx:
        burst = queue.receive(timeout=0.001)
        if burst is not None:
            count += len(burst)
            burst.release()
    return count


def talk(engine: Engine, stop: threading.Event, failed: list[BaseException]) -> None:
    """Send from each card to the other, without end."""
    try:
        while not stop.is_set():
            for port in engine.ports:
                port.tx[0].send(frames(), timeout=10)
                take(port)
    except BaseException as error:
        failed.append(error)


def poller_seconds() -> float:
    """CPU time of the threads that receive."""
    ticks = 0
    for thread in Path("/proc/self/task").iterdir():
        name, fields = (thread / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
        if name.startswith("daqiri-rx"):
            ticks += sum(map(int, fields.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def take_away(number: int, device: str) -> None:
    """One card is unplugged, the other is removed by an administrator."""
    if number == 1:
        said = monitor("device_del", id="card2")
        assert "return" in said, said
    else:
        (BUS / "devices" / device / "remove").write_text("1")


def unplug(engine: Engine, number: int, devices: list[str]) -> dict[str, Any]:
    """Take a card away while both send and receive."""
    port = engine.ports[number]
    stop = threading.Event()
    failed: list[BaseException] = []
    traffic = threading.Thread(target=talk, args=(engine, stop, failed))
    traffic.start()
    try:
        sent = port.tx[0].counters().sent
        eventually(lambda: port.tx[0].counters().sent > sent + 4 * FRAMES)
        take_away(number, devices[number])
        removed = eventually(lambda: port.link().state == "removed")
        # The kernel waits until the engine has given it back.
        eventually(lambda: not (BUS / "devices" / devices[number]).exists())
        # Sending goes on, and is refused.
        refused = port.tx[0].counters().dropped["send_error"]
        eventually(lambda: port.tx[0].counters().dropped["send_error"] > refused + 4 * FRAMES)
    finally:
        stop.set()
        traffic.join()
    link = port.link()
    sent = port.tx[0].counters().sent
    assert port.tx[0].send(frames(), timeout=10) == FRAMES
    return {
        "failed": [repr(each) for each in failed],
        "removed after": removed,
        "link": [link.state, link.speed, link.mtu],
        "nothing waits": port.tx[0].wait_sent(10),
        "sent since": port.tx[0].counters().sent - sent,
    }


def unplug_both(devices: list[str], lines: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with Engine.open(configuration(devices)) as engine:
        exchange(engine)
        first, second = engine.ports
        # The application keeps packets while their card goes.
        assert first.tx[0].send(frames(), timeout=10) == FRAMES
        kept = second.rx[0].receive(timeout=10)
        assert kept is not None
        result["second"] = unplug(engine, 1, devices)
        result["kept"] = bool((kept.gather() == frames()[: len(kept)]).all())
        kept.release()
        # The other port is as before.
        errors = first.tx[0].counters().dropped_total
        assert first.tx[0].send(frames(), timeout=10) == FRAMES
        assert first.tx[0].wait_sent(10)
        result["other"] = [first.link().state, first.tx[0].counters().dropped_total - errors]
        result["lost"] = [second.counters().lost_card, second.counters().lost_before_engine]
        result["first"] = unplug(engine, 0, devices)
        begun = poller_seconds()
        time.sleep(2)
        result["poller seconds"] = poller_seconds() - begun
        queues = [queue for port in engine.ports for queue in (*port.rx, *port.tx)]
        closing = time.monotonic()
    result["closed after"] = time.monotonic() - closing
    result["held"] = sum(queue.counters().held for queue in queues)
    eventually(lambda: sum("was removed" in line for line in lines) == 2)
    result["log"] = [line for line in lines if "interface '" in line]
    return result


def plug_in(devices: list[str]) -> None:
    """Both cards are there again, where they were."""
    (BUS / "rescan").write_text("1")

    def plugged() -> bool:
        return "return" in monitor(
            "device_add",
            driver=os.environ["CARD"],
            romfile="",
            id="again",
            bus="root2",
            netdev="wire2",
        )

    # Until QEMU has taken the old one out.
    eventually(plugged)
    for device in devices:
        eventually((BUS / "devices" / device).exists)
        bind(device, "vfio-pci")


def main() -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.getMessage()}")

    logging.getLogger("daqiri_ophyd").addHandler(Lines())
    found = cards()
    for card in found:
        bind(card, "vfio-pci")
    reserve_hugepages(200)
    result = unplug_both(found, lines)
    plug_in(found)
    with Engine.open(configuration(found)) as engine:
        exchange(engine)
    result["again"] = "exchanged"
    Path(sys.argv[1]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
