"""In the guest: two network cards on one wire, which engine ``dpdk`` takes from the kernel."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from guest_cards import SUITE, bind, cards, reserve_hugepages
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, check_config

Bytes = NDArray[np.uint8]
FRAMES = 2000
BURSTS = 600


def configuration(sender: str, receiver: str) -> dict[str, Any]:
    """Two receive queues, with a thread each, for UDP ports 5001 and 5002."""

    def queue(number: int, region: str) -> dict[str, Any]:
        core = ("0", "any")[number] if region == "rx" else "any"
        name = f"{region}{number}"
        timeout = {"timeout_us": 1000} if region == "rx" else {}
        return {
            **timeout,
            **{"name": name, "id": number, "cpu_core": core, "batch_size": 64},
            "memory_regions": [region],
        }

    flows = [
        {
            **{"name": f"flow{number}", "id": number + 1, "match": {"udp_dst": 5001 + number}},
            "action": {"type": "queue", "id": number},
        }
        for number in (0, 1)
    ]
    return {
        "version": 1,
        "stream_type": "raw",
        "engine": "dpdk",
        "master_core": 1,
        "log_level": "warn",
        "memory_regions": [
            {"name": name, "kind": "host", "num_bufs": count, "buf_size": 2048}
            for name, count in (("rx", 12288), ("tx", 1024))
        ],
        "interfaces": [
            {"name": "sender", "address": sender, "tx": {"queues": [queue(0, "tx")]}},
            {
                "name": "receiver",
                "address": receiver,
                "rx": {
                    "queues": [queue(0, "rx"), queue(1, "rx")],
                    "flows": flows,
                    "flow_isolation": True,
                },
            },
        ],
    }


def frames(count: int) -> Bytes:
    """UDP datagrams to two ports in turn, each with its number."""
    made = np.zeros((count, 142), np.uint8)
    made[:, 0:6] = (2, 0, 0, 0, 0, 2)
    made[:, 6:12] = (2, 0, 0, 0, 0, 1)
    made[:, 12:15] = (8, 0, 0x45)
    made[:, 16:18] = (0, 128)
    made[:, 22:24] = (64, 17)
    made[:, 26:34] = (10, 0, 0, 1, 10, 0, 0, 2)
    made[:, 34:36] = (19, 136)
    made[0::2, 36:38] = (5001 >> 8, 5001 & 255)
    made[1::2, 36:38] = (5002 >> 8, 5002 & 255)
    made[:, 38:40] = (0, 108)
    made[:, 42:46] = np.arange(count, dtype=">u4").view(np.uint8).reshape(-1, 4)
    return made


def wait_for_link(engine: Engine) -> None:
    end = time.monotonic() + 60
    while not all(port.link().state == "up" for port in engine.ports):
        assert time.monotonic() < end, [port.link() for port in engine.ports]
        time.sleep(0.05)


def exchange(config: dict[str, Any]) -> dict[str, Any]:
    """Send frames from one card to the other."""
    sent = frames(FRAMES)
    numbers: list[list[int]] = []
    with Engine.open(config) as engine:
        sender, receiver = engine.ports
        wait_for_link(engine)
        taken: list[list[Bytes]] = [[], []]
        for part in np.split(sent, 20):
            assert sender.tx[0].send(part, timeout=30) == len(part)
            for queue, parts in zip(receiver.rx, taken, strict=True):
                missing = len(part) // 2
                while missing > 0:
                    burst = queue.receive(timeout=30)
                    assert burst is not None, (queue.counters(), receiver.counters())
                    assert (burst.flow_ids == queue.id + 1).all()
                    missing -= len(burst)
                    parts.append(burst.gather())
        # More bursts than exist: the driver tells what it has sent only when it needs room.
        for number in range(BURSTS):
            assert sender.tx[0].send(sent[:1], timeout=30) == 1
            burst = receiver.rx[0].receive(timeout=30)
            assert burst is not None and len(burst) == 1, number
            burst.release()
        for queue, parts in zip(receiver.rx, taken, strict=True):
            assert np.array_equal(np.concatenate(parts), sent[queue.id :: 2])
            numbers.append([queue.counters().received, queue.counters().dropped_total])
        return {
            "queues": numbers,
            "mac": sender.mac_address,
            "speed": receiver.link().speed,
            "lost": receiver.counters().lost_before_engine,
        }


def refusal(config: dict[str, Any]) -> str:
    try:
        Engine.open(config).close()
    except Exception as error:
        return str(error)
    return "opened"


def main() -> None:
    sender, receiver = cards()
    config = configuration(sender, receiver)
    result: dict[str, Any] = {}
    result["by the kernel"] = refusal(config)
    result["checked"] = [str(each) for each in check_config(config).warnings]
    for card in (sender, receiver):
        bind(card, "vfio-pci")
    result["absent"] = refusal(configuration("0000:7f:00.0", receiver))
    # Processes of their own: each starts DPDK as the host is then.
    for name, pages in (("without hugepages", 0), ("with hugepages", 200)):
        reserve_hugepages(pages)
        told = subprocess.run(
            [sys.executable, __file__, "exchange"], capture_output=True, text=True, timeout=200
        )
        result[name] = json.loads(told.stdout) if told.returncode == 0 else told.stderr
    suite = [SUITE, "-#", "[#test_engine_suite]", "-c", "dpdk, devices"]
    told = subprocess.run(
        suite,
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"DAQIRI_TEST_DPDK": f"{sender} {receiver}"},
    )
    result["suite"] = told.stdout[-3000:]
    Path(sys.argv[1]).write_text(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1] == "exchange":
        sys.stdout.write(json.dumps(exchange(configuration(*cards()))))
    else:
        main()
