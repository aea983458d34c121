"""Rates cover the last second, however long ago they were last read."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from waiting import wait_for

from daqiri_ophyd.engine import Engine, InvalidParameterError, ethernet

SECOND = 1_000_000_000


def datagrams(count: int) -> Any:
    return ethernet.udp_frames(
        np.zeros((count, 60), np.uint8),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )


def wait_a_second(engine: Engine) -> None:
    """Wait until a copy of the present counters is a second old."""
    now = time.monotonic_ns()
    copied = 0

    def is_old() -> bool:
        nonlocal copied
        taken = int(engine.counters["steady_ns"])
        if not copied and taken > now:
            copied = taken
        return bool(copied) and time.monotonic_ns() > copied + SECOND

    wait_for(is_old)


def test_rates_are_of_the_last_second(loopback: Callable[..., Any]) -> None:
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        packets = datagrams(1000)
        assert tx.send(packets) == 1000
        wait_for(lambda: rx.counters().received == 1000)
        began = time.monotonic_ns()
        rates: list[tuple[float, float]] = []

        def have_rates() -> bool:
            rates[:] = rx.rates(), tx.rates()
            return all(rate > 0 for rate, _ in rates)

        # At once, but not for the first 10 ms of an engine.
        wait_for(have_rates)
        if time.monotonic_ns() < began + SECOND // 2:
            for rate, data_rate in rates:
                assert rate > 1000
                assert data_rate == pytest.approx(rate * packets.shape[1])
        wait_a_second(engine)
        assert rx.rates() == tx.rates() == (0.0, 0.0)
        # After the pause, they are of what came after it.
        assert tx.send(packets[:10]) == 10
        wait_for(lambda: rx.counters().received == 1010)
        for rate, data_rate in (rx.rates(), tx.rates()):
            assert 0 < rate <= 10
            assert data_rate == pytest.approx(rate * packets.shape[1])
    assert rx.rates() == tx.rates() == (0.0, 0.0)


def test_the_level_of_a_region_is_that_of_the_snapshot(loopback: Callable[..., Any]) -> None:
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        assert tx.send(datagrams(100)) == 100
        wait_for(lambda: rx.counters().received == 100)
        levels = {region.name: region.free for region in engine.snapshot().regions}
        assert levels["rx_buffers"] <= 4096 - 100
        assert {name: engine.free_buffers(name) for name in levels} == levels
        with pytest.raises(InvalidParameterError, match="no memory region 'none'; there are 'rx_"):
            engine.free_buffers("none")
