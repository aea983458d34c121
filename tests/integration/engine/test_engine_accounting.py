"""Every packet is delivered, held, or dropped for a named reason: under overload, without buffers,
with a consumer that is slow or absent."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from dpdk_devices import on_dpdk_too
from numpy.typing import NDArray

from daqiri_ophyd.engine import Burst, Engine, NoSpaceAvailableError, NotReadyError

Frames = Callable[..., NDArray[np.uint8]]
Build = Callable[..., dict[str, Any]]
WaitUntilIdle = Callable[[Engine], None]
Watch = Callable[[Engine], AbstractContextManager[None]]


def regions(rx: int, tx: int = 2048, rx_size: int = 2048) -> list[dict[str, Any]]:
    return [
        {"name": "rx_buffers", "kind": "host", "num_bufs": rx, "buf_size": rx_size},
        {"name": "tx_buffers", "kind": "host", "num_bufs": tx, "buf_size": 2048},
    ]


@on_dpdk_too
def test_a_consumer_that_keeps_up_loses_nothing(
    loopback: Build, made_frames: Frames, watch: Watch
) -> None:
    sent = made_frames(50_000, 60)
    # Buffers for all of them: none needs to be dropped, however threads are scheduled.
    config = loopback(regions=regions(65_536, rx_size=256), rx_meta_buffers=1024)
    with Engine.open(config) as engine, watch(engine):
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        got: list[int] = []

        def consume() -> None:
            while sum(got) < len(sent):
                burst = rx.receive(20)
                assert burst is not None
                got.append(len(burst))

        thread = threading.Thread(target=consume)
        thread.start()
        assert tx.send(sent) == len(sent)
        thread.join(60)
        after = rx.counters()
    assert (after.received, after.delivered, after.dropped_total) == (50_000, 50_000, 0)
    assert after.received_bytes == sent.nbytes
    assert after.bursts == len(got)


@on_dpdk_too
def test_without_a_consumer_drops_are_counted(
    loopback: Build, made_frames: Frames, wait_until_idle: WaitUntilIdle, watch: Watch
) -> None:
    with Engine.open(loopback(loopback_drops=True)) as engine, watch(engine):
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send(made_frames(20_000, 60))
        wait_until_idle(engine)
        counters = rx.counters()
        assert counters.received == tx.counters().sent == 20_000
        assert counters.delivered == 0
        assert counters.held > 0
        assert counters.dropped_total == 20_000 - counters.held
        assert counters.ring_high_water <= rx.ring_capacity
        # Held packets can be received.
        held = counters.held
        assert sum(len(burst) for burst in rx.bursts(0.2)) == held
    assert rx.counters().delivered == held


def test_without_a_consumer_the_sender_waits(
    loopback: Build, made_frames: Frames, watch: Watch
) -> None:
    sent = made_frames(20_000, 60)
    with Engine.open(loopback()) as engine, watch(engine):
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        with pytest.raises(NoSpaceAvailableError, match="had no free .* packets are waiting") as e:
            tx.send(sent, timeout=0.1)
        assert "no receiver reads receive queue 'rx0'" in str(e.value)
        submitted = e.value.submitted
        assert 0 < submitted < len(sent)
        counters = tx.counters()
        assert counters.submitted == submitted
        assert counters.held > 0
        assert counters.dropped_total == 0
        assert not tx.wait_sent(0.01)
        # The rest follows while the waiting packets are received.
        sender = threading.Thread(target=lambda: tx.send(sent[submitted:]))
        sender.start()
        got = 0
        while got < len(sent):
            burst = rx.receive(20)
            assert burst is not None
            with burst:
                assert np.array_equal(burst.gather(), sent[got : got + len(burst)])
                got += len(burst)
        sender.join(60)
        assert rx.counters().dropped_total == 0


@on_dpdk_too
def test_held_bursts_exhaust_the_pool_and_nothing_else(
    loopback: Build, made_frames: Frames, wait_until_idle: WaitUntilIdle, watch: Watch
) -> None:
    config = loopback(regions=regions(8192), rx_meta_buffers=8, loopback_drops=True)
    with Engine.open(config) as engine, watch(engine):
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        kept: list[Burst] = []
        sent = 0
        for _ in range(20):
            sent += tx.send(made_frames(256))
            wait_until_idle(engine)
            kept.extend(rx.bursts(0.0))
        counters = rx.counters()
        assert len(kept) == 8
        assert counters.received == sent
        assert counters.delivered == 8 * 64
        assert counters.dropped["no_burst_buffer"] == sent - 8 * 64
        # The buffers are returned: receiving continues.
        kept.clear()
        before = rx.counters().delivered
        tx.send(made_frames(64))
        assert sum(len(burst) for burst in rx.bursts(2.0)) == 64
        assert rx.counters().delivered == before + 64


@on_dpdk_too
def test_held_views_exhaust_the_region_and_nothing_else(
    loopback: Build, made_frames: Frames, wait_until_idle: WaitUntilIdle, watch: Watch
) -> None:
    config = loopback(
        regions=regions(512), rx={"batch_size": 32}, rx_meta_buffers=1024, loopback_drops=True
    )
    with Engine.open(config) as engine, watch(engine):
        (region, _) = engine.config.memory_regions
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        rounds = 2 * region.num_bufs // 256
        views: list[NDArray[np.uint8]] = []
        for _ in range(rounds):
            tx.send(made_frames(256))
            wait_until_idle(engine)
            for burst in rx.bursts(0.0):
                views.append(burst[0])
                burst.release()
        counters = rx.counters()
        assert counters.dropped["no_packet_buffer"] > 0
        assert counters.delivered <= region.num_bufs
        views.clear()
        before = rx.counters().delivered
        tx.send(made_frames(64))
        assert sum(len(burst) for burst in rx.bursts(2.0)) == 64
        assert rx.counters().delivered == before + 64


def test_a_slow_consumer(
    loopback: Build, made_frames: Frames, wait_until_idle: WaitUntilIdle, watch: Watch
) -> None:
    config = loopback(rx_meta_buffers=16)
    with Engine.open(config) as engine, watch(engine):
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        numbers: list[int] = []

        def consume() -> None:
            for burst in rx.bursts(None):
                numbers.extend(int.from_bytes(view[42:46].tobytes()) for view in burst)
                time.sleep(0.001)

        thread = threading.Thread(target=consume)
        thread.start()
        sent = made_frames(100_000, 20)
        assert tx.send(sent) == len(sent)
        wait_until_idle(engine)
        engine.close()
        thread.join(60)
        assert not thread.is_alive()
    counters = rx.counters()
    # The sender waits for it.
    assert counters.received == counters.delivered == len(sent)
    assert counters.held == counters.dropped_total == 0
    assert numbers == list(range(len(sent)))


@on_dpdk_too
def test_flush_and_drop_all(
    loopback: Build, made_frames: Frames, wait_until_idle: WaitUntilIdle, watch: Watch
) -> None:
    engine = Engine.open(loopback(rx={"timeout_us": 0}))
    with engine, watch(engine):
        port = engine.ports[0]
        rx, tx = port.rx[0], port.tx[0]
        tx.send(made_frames(100))
        wait_until_idle(engine)
        rx.flush()
        assert rx.receive() is None
        assert rx.counters().dropped["flushed"] == 100
        port.drop_all_traffic()
        tx.send(made_frames(100))
        wait_until_idle(engine)
        assert rx.counters().dropped["filtered"] == 100
        port.allow_all_traffic()
        tx.send(made_frames(64))
        burst = rx.receive(10)
        assert burst is not None
        assert len(burst) == 64
    for call in (rx.flush, port.drop_all_traffic):
        with pytest.raises(NotReadyError, match="closed"):
            call()


@on_dpdk_too
def test_frames_longer_than_the_buffers(
    loopback: Build, made_frames: Frames, wait_until_idle: WaitUntilIdle, watch: Watch
) -> None:
    config = loopback(regions=regions(4096, rx_size=128))
    with Engine.open(config) as engine, watch(engine):
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send(made_frames(10, 86))
        tx.send(made_frames(10, 87))
        wait_until_idle(engine)
        counters = rx.counters()
        assert counters.dropped["truncated"] == 10
        assert counters.held == 10


def test_udp_under_overload(udp: Build, wait_until_idle: WaitUntilIdle, watch: Watch) -> None:
    payloads = np.random.default_rng(0).integers(0, 256, (60_000, 64), dtype=np.uint8)
    with Engine.open(udp()) as engine, watch(engine):
        rx, tx = engine.port("receiver").rx[0], engine.port("sender").tx[0]
        assert tx.send(payloads, timeout=20.0) == len(payloads)
        wait_until_idle(engine)
        counters, sent = rx.counters(), tx.counters()
        assert sent.submitted == len(payloads)
        # The kernel is between the two, and reports what it dropped.
        assert counters.received == sent.sent
        assert counters.dropped_total == counters.received - counters.held
        got = sum(len(burst) for burst in rx.bursts(0.2))
        assert got == counters.held
