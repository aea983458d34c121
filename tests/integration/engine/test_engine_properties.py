"""Loss accounting over random configurations: few buffers, small bursts, queues that overlap, and
consumers that are slow, keep what they get, stop, or are absent."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from daqiri_ophyd.engine import Burst, Engine, NotReadyError, RxQueue, TxQueue, ethernet

Build = Callable[..., dict[str, Any]]
Watch = Callable[[Engine], AbstractContextManager[None]]

PORTS = range(5000, 5006)
ON_REQUEST = {"filtered", "flushed"}
COUNT = 2000

few = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(few, max_examples=400)


@dataclass
class Consumer:
    """Receives bursts in one way, and keeps the numbers of the packets."""

    queue: RxQueue
    manner: str
    sent: NDArray[np.uint8]
    number_at: int
    numbers: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        kept: list[Burst] = []
        if self.manner == "absent":
            return
        for burst in self.queue.bursts(None):
            self.take(burst)
            if self.manner == "slow":
                time.sleep(0.001)
            if self.manner == "keeps":
                kept.append(burst)
                del kept[:-3]
            else:
                burst.release()
            if self.manner == "stops" and len(self.numbers) > 200:
                return

    def take(self, burst: Burst) -> None:
        rows = burst.gather()
        at = self.number_at
        numbers = rows[:, at : at + 4].copy().view(">u4")[:, 0].astype(np.int64)
        width = rows.shape[1]
        if numbers.max() >= COUNT:
            self.wrong.append(f"numbers up to {numbers.max()}")
        elif not np.array_equal(rows, self.sent[numbers, :width]):
            self.wrong.append("a packet is not as it was sent")
        self.numbers.extend(numbers.tolist())

    def drain(self) -> None:
        """Receive the remaining packets of a closed queue."""
        for burst in self.queue.bursts(0.0):
            self.take(burst)


def send_all(tx: TxQueue, packets: NDArray[np.uint8], step: int, pause: float) -> None:
    try:
        for first in range(0, len(packets), step):
            tx.send(packets[first : first + step], timeout=30.0)
            time.sleep(pause)
    except NotReadyError:
        pass


def interfere(how: str, engine: Engine, stopping: threading.Event) -> None:
    port = engine.ports[0]
    try:
        while not stopping.wait(0.003):
            if how == "flush":
                port.rx[-1].flush()
            if how == "filter":
                port.drop_all_traffic()
                port.allow_all_traffic()
    except NotReadyError:
        pass


def wait_received(engine: Engine, tx: TxQueue) -> None:
    """Wait for sent packets: closing an engine may not leave enough time on a busy machine."""
    end = time.monotonic() + 20
    while sum(rx.counters().received for rx in engine.ports[0].rx) < tx.counters().sent:
        if time.monotonic() > end:
            return  # the checks report what is missing
        time.sleep(0.002)


def run(
    engine: Engine, sent: NDArray[np.uint8], number_at: int, traffic: dict[str, Any]
) -> tuple[list[Consumer], TxQueue]:
    """Send, receive and interfere; close the engine in the end, or in the middle."""
    tx = engine.ports[-1].tx[0]
    consumers = [
        Consumer(queue, manner, sent, number_at)
        for queue, manner in zip(engine.ports[0].rx, traffic["manners"], strict=False)
    ]
    stopping = threading.Event()
    sender = threading.Thread(target=send_all, args=(tx, sent, traffic["step"], traffic["pause"]))
    others = [threading.Thread(target=consumer.run) for consumer in consumers]
    others.append(threading.Thread(target=interfere, args=(traffic["interfere"], engine, stopping)))
    for thread in (sender, *others):
        thread.start()
    try:
        if traffic["close_after"] is None:
            sender.join(40)
            assert tx.wait_sent(20)
            wait_received(engine, tx)
        else:
            sender.join(traffic["close_after"])
    finally:
        stopping.set()
        engine.close()
        for thread in (sender, *others):
            thread.join(20)
    for consumer in consumers:
        consumer.drain()
    return consumers, tx


def check(consumers: list[Consumer], tx: TxQueue, in_flight: bool) -> None:
    received = 0
    for consumer in consumers:
        counters = consumer.queue.counters()
        assert consumer.wrong == []
        assert (np.diff(consumer.numbers) > 0).all()
        assert counters.held == 0
        assert counters.delivered == len(consumer.numbers)
        assert counters.received == counters.delivered + counters.dropped_total
        received += counters.received
    sent = tx.counters()
    assert sent.held == 0
    assert sent.submitted == sent.sent + sent.dropped_total
    if in_flight:
        assert received <= sent.sent
    else:
        assert received == sent.sent


def region(name: str, num_bufs: int, buf_size: int) -> dict[str, Any]:
    return {"name": name, "kind": "host", "num_bufs": num_bufs, "buf_size": buf_size}


@st.composite
def loopbacks(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a configuration of one port that receives its own packets."""
    numbers = st.integers
    queues = draw(numbers(1, 3))
    split = draw(st.booleans())
    rx = [
        {
            "name": f"rx{number}",
            "id": number,
            "cpu_core": "any",
            "batch_size": draw(numbers(1, 64)),
            "timeout_us": draw(st.sampled_from([0, 100, 1000])),
            "memory_regions": ["headers", "rx"] if split else ["rx"],
            **({"split_boundary": draw(numbers(14, 64))} if split else {}),
        }
        for number in range(queues)
    ]
    lows = draw(st.lists(st.sampled_from(PORTS), max_size=4))
    flows = [
        {
            "name": f"flow{number}",
            "id": number,
            "match": {"udp_dst": f"{low}-{draw(numbers(low, PORTS[-1]))}"},
            "action": {"type": "queue", "id": draw(numbers(0, queues - 1))},
        }
        for number, low in enumerate(lows, 1)
    ]
    tx = {"name": "tx0", "id": 0, "cpu_core": "any", "batch_size": draw(numbers(1, 64))}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "loopback": "sw",
        "loopback_drops": draw(st.booleans()),
        "log_level": "off",
        "rx_meta_buffers": draw(numbers(1, 32)),
        "tx_meta_buffers": draw(numbers(1, 32)),
        "memory_regions": [
            region("rx", draw(numbers(96, 400)), 256),
            region("tx", draw(numbers(96, 400)), 256),
            region("headers", draw(numbers(96, 400)), 64),
        ],
        "interfaces": [
            {
                "name": "port0",
                "address": "loopback",
                "rx": {"flow_isolation": draw(st.booleans()), "queues": rx, "flows": flows},
                "tx": {"queues": [{**tx, "memory_regions": ["tx"]}]},
            }
        ],
    }


traffics = st.fixed_dictionaries(
    {
        "size": st.integers(4, 200),
        "step": st.integers(1, 500),
        "pause": st.sampled_from([0.0, 0.0005]),
        "manners": st.lists(
            st.sampled_from(["fast", "slow", "keeps", "stops", "absent"]), min_size=3, max_size=3
        ),
        "interfere": st.sampled_from(["not", "flush", "filter"]),
        "close_after": st.sampled_from([None, None, 0.0, 0.01]),
    }
)


def payloads(size: int) -> NDArray[np.uint8]:
    rows = np.random.default_rng(size).integers(0, 256, (COUNT, size), dtype=np.uint8)
    rows[:, :4] = np.arange(COUNT, dtype=">u4").view(np.uint8).reshape(-1, 4)
    return rows


def loopback_example(config: dict[str, Any], traffic: dict[str, Any], watch: Watch) -> None:
    sent = ethernet.udp_frames(
        payloads(traffic["size"]),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=np.resize(np.arange(PORTS[0] - 1, PORTS[-1] + 1), COUNT),
    )
    waits = not config["loopback_drops"]
    if waits:
        # A sender would wait forever for consumers that do not receive or release.
        manners = ["slow" if manner == "slow" else "fast" for manner in traffic["manners"]]
        traffic = traffic | {"manners": manners}
    with Engine.open(config) as engine, watch(engine):
        consumers, tx = run(engine, sent, 42, traffic)
    check(consumers, tx, in_flight=False)
    for consumer in consumers if waits else ():
        dropped = consumer.queue.counters().dropped
        assert {reason for reason, count in dropped.items() if count} <= ON_REQUEST


@few
@given(config=loopbacks(), traffic=traffics)
def test_loopback(config: dict[str, Any], traffic: dict[str, Any], watch: Watch) -> None:
    loopback_example(config, traffic, watch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(config=loopbacks(), traffic=traffics)
def test_loopback_at_length(config: dict[str, Any], traffic: dict[str, Any], watch: Watch) -> None:
    loopback_example(config, traffic, watch)


udp_queues = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 64),
        "timeout_us": st.sampled_from([0, 100, 1000]),
    }
)


def udp_example(
    rx: dict[str, Any], meta: int, traffic: dict[str, Any], udp: Build, watch: Watch
) -> None:
    config = udp(rx=rx)
    config["rx_meta_buffers"] = meta
    config["memory_regions"][0].update(num_bufs=200, buf_size=128)
    with Engine.open(config) as engine, watch(engine):
        consumers, tx = run(engine, payloads(traffic["size"]), 0, traffic)
    # Datagrams that the kernel still has when the engine closes are not counted.
    check(consumers, tx, in_flight=traffic["close_after"] is not None)
    counters = consumers[0].queue.counters()
    assert traffic["size"] > 128 or counters.truncated == 0


@few
@given(rx=udp_queues, meta=st.integers(1, 32), traffic=traffics)
def test_udp(
    rx: dict[str, Any], meta: int, traffic: dict[str, Any], udp: Build, watch: Watch
) -> None:
    udp_example(rx, meta, traffic, udp, watch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(rx=udp_queues, meta=st.integers(1, 32), traffic=traffics)
def test_udp_at_length(
    rx: dict[str, Any], meta: int, traffic: dict[str, Any], udp: Build, watch: Watch
) -> None:
    udp_example(rx, meta, traffic, udp, watch)
