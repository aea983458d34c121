"""Flushing a transmit queue: submitted packets that were not sent are dropped."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import Engine, NotReadyError, Port, RxQueue

Loopback = Callable[..., dict[str, Any]]
Frames = Callable[..., np.ndarray]
HOUR_NS = 3600 * 10**9


def wait_until_full(queue: RxQueue, buffers: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if queue.counters().held == buffers:
            return
        time.sleep(0.01)
    pytest.fail("all was sent")


def receive(port: Port, count: int) -> np.ndarray:
    found = []
    for burst in port.rx[0].bursts(timeout=10.0):
        with burst:
            found.append(burst.gather().reshape(len(burst), -1))
        if sum(map(len, found)) >= count:
            break
    return np.concatenate(found)


def test_a_flush_drops_what_is_to_leave_later(loopback: Loopback, made_frames: Frames) -> None:
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        queue = port.tx[0]
        assert queue.flush() == 0
        packets = made_frames(300)
        queue.send(packets, launch_times=np.full(300, port.now() + HOUR_NS))
        assert queue.counters().held == 300

        assert queue.flush() == 300

        counters = queue.counters()
        assert (counters.submitted, counters.sent, counters.held) == (300, 0, 0)
        assert counters.dropped["flushed"] == counters.dropped_total == 300
        assert engine.counters is not None
        assert queue.wait_sent(0.0)
        queue.send(packets)
        assert np.array_equal(receive(port, 300), packets)
    with pytest.raises(NotReadyError):
        queue.flush()


def test_a_flush_drops_what_a_full_receiver_holds_back(
    loopback: Loopback, made_frames: Frames
) -> None:
    regions = [
        {"name": name, "kind": "host", "num_bufs": 512, "buf_size": 2048}
        for name in ("rx_buffers", "tx_buffers")
    ]
    with Engine.open(loopback(regions=regions)) as engine:
        port = engine.ports[0]
        queue = port.tx[0]
        packets = made_frames(1000)
        assert queue.send(packets, timeout=None, within=0.2) == 1000
        wait_until_full(port.rx[0], 512)
        before = queue.counters()

        assert queue.flush() == before.held

        assert queue.counters().held == 0
        assert np.array_equal(receive(port, before.sent), packets[: before.sent])
        queue.send(packets[:100])
        assert np.array_equal(receive(port, 100), packets[:100])


def test_a_sender_sees_other_things_within_the_time_it_says(
    loopback: Loopback, made_frames: Frames
) -> None:
    with Engine.open(loopback(tx_meta_buffers=4)) as engine:
        port = engine.ports[0]
        queue = port.tx[0]
        packets, far = made_frames(1000), np.full(1000, port.now() + HOUR_NS)
        assert queue.send(packets, launch_times=far, timeout=None, within=0.05) == 4 * 64
        assert queue.send(packets, launch_times=far, timeout=None, within=0.0) == 0
        assert queue.send(list(packets), launch_times=far, timeout=None, within=0.05) == 0
        assert queue.flush() == 4 * 64
        assert queue.send(packets[:100], within=5.0) == 100


@pytest.mark.parametrize("transport", ["udp", "tcp_pair"])
def test_flushes_while_others_send(transport: str, request, made_frames: Frames) -> None:
    """Each packet is sent or dropped, and counted once; those that arrive are whole."""
    with Engine.open(request.getfixturevalue(transport)(tx={"batch_size": 16})) as engine:
        queue = engine.port("sender").tx[0]
        going = threading.Event()
        going.set()
        packets = np.arange(64, dtype=np.uint8)[:, np.newaxis].repeat(500, axis=1)

        def send() -> None:
            while going.is_set():
                queue.send(packets, timeout=20.0)

        def read() -> None:
            while going.is_set() or queue.counters().held:
                for burst in engine.port("receiver").rx[0].bursts(timeout=0.2):
                    burst.release()

        threads = [threading.Thread(target=target) for target in (send, send, read)]
        for thread in threads:
            thread.start()
        dropped = 0
        deadline = time.monotonic() + 60
        while (dropped < 500 or queue.counters().sent < 500) and time.monotonic() < deadline:
            dropped += queue.flush()
            counters = queue.counters()
            assert counters.submitted == counters.sent + counters.held + counters.dropped_total
        going.clear()
        for thread in threads:
            thread.join()
        dropped += queue.flush()
        counters = queue.counters()
        assert counters.held == 0
        assert counters.dropped["flushed"] == counters.dropped_total == dropped >= 500
