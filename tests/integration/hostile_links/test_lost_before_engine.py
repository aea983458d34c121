"""Every frame that arrives is received, dropped by the engine, or lost before it with a reason."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waiting import eventually

from daqiri_ophyd.engine import Engine, Port, PortCounters

pytestmark = pytest.mark.root
Config = dict[str, Any]
NOTHING = PortCounters(0, 0, 0, 0, 0)
COUNT = 40_000


@contextmanager
def opened(link: Any, config: Config) -> Iterator[Port]:
    with link.call(Engine.open, config) as engine:
        yield engine.ports[0]


@pytest.mark.parametrize("path", ["af_packet", "udp"])
def test_what_a_full_backlog_drops_is_counted(
    link: Any, receiver: Callable[..., Config], datagram: Callable[..., bytes], path: str
) -> None:
    """Of 40,000 frames the kernel drops most before any socket: RPS to a core with slow filters."""
    link.receive_on_another_core()
    link.slow_down()
    with opened(link, receiver(path)) as port:
        before = link.counts()
        arrived = link.flood(datagram(), COUNT)
        assert arrived == COUNT
        queue = port.rx[0]

        def counted() -> int:
            return queue.counters().received + port.counters().lost_before_engine

        assert eventually(lambda: counted() == arrived), (counted(), queue.counters())
        lost = port.counters()
        dropped = link.counts()["dropped"] - before["dropped"]
        assert dropped > COUNT // 10
        assert lost == PortCounters(dropped, 0, dropped, 0, 0)
        assert queue.counters().received == arrived - dropped
    assert port.counters() == lost
