"""Sources on their way through a loopback engine."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import Burst, Engine
from daqiri_ophyd.replay import NumberedPackets, PacketArray, Transmission, TransmissionError


@pytest.fixture
def port():
    with Engine.open(profiles.path("loopback")) as engine:
        yield engine.port("port0")


def bursts(port, count: int) -> Iterator[Burst]:
    """Yield bursts until so many packets were in them."""
    for burst in port.rx_queue("rx_q0").bursts(timeout=20.0):
        with burst:
            count -= len(burst)
            yield burst
        if count <= 0:
            return


def received(port, count: int) -> np.ndarray:
    return np.concatenate([burst.gather() for burst in bursts(port, count)])


def test_everything_leaves_in_order(port):
    source = NumberedPackets(5000, 60, 10_000)
    sending = Transmission(port, port.tx[0], source, start_delay=0.02)
    try:
        assert sending.wait(20)
        progress = sending.progress()
        assert (progress.submitted, progress.packets, progress.running) == (5000, 5000, False)
        assert progress.error is None
        assert progress.first_launch_ns > 0
        expected = np.concatenate([c.data.reshape(len(c), -1) for c in source.chunks()])
        assert np.array_equal(received(port, 5000), expected)
    finally:
        sending.close()
        sending.close()


def test_stopping_is_prompt(port):
    sending = Transmission(port, port.tx[0], NumberedPackets(10_000, 60, 10_000_000))
    sending.stop()
    progress = sending.progress()
    assert not progress.running
    assert progress.submitted < 5000
    assert port.tx[0].counters().held == 0
    sending.close()


def test_packets_wait_for_the_start_without_a_schedule(port):
    before = port.now()
    sending = Transmission(port, port.tx[0], NumberedPackets(10, 60), start_delay=0.2)
    sending.wait(10)
    sending.close()
    for burst in bursts(port, 10):
        assert burst.timestamps[0] >= before + 200_000_000


def test_gaps_go_on_after_a_pause(port):
    sending = Transmission(port, port.tx[0], NumberedPackets(100, 60, 10_000_000))
    while sending.progress().submitted < 30:
        time.sleep(0.01)
    sending.pause()
    assert port.tx[0].wait_sent(20.0)
    at = sending.progress().submitted
    time.sleep(0.5)
    assert sending.progress().submitted == at
    sending.resume()
    assert sending.wait(20)
    sending.close()
    gaps = np.diff(np.concatenate([b.timestamps.astype(np.int64) for b in bursts(port, 100)]))
    assert np.median(gaps) == pytest.approx(10_000_000, rel=0.3)
    assert gaps.max() > 500_000_000


def test_what_the_queue_refuses_is_told(port):
    too_long = PacketArray(np.zeros((3, 5000), np.uint8))
    sending = Transmission(port, port.tx[0], too_long, start_delay=0.0)
    assert sending.wait(10)
    assert "5000 bytes" in str(sending.progress().error)
    sending.close()


def test_a_queue_without_room_is_told(port):
    """Packets that are due far apart fill the buffers."""
    times = np.arange(20_000, dtype=np.int64)
    times[9_000:] += 100_000_000  # within the horizon, and longer than the timeout
    source = PacketArray(np.zeros((20_000, 60), np.uint8), times)
    sending = Transmission(port, port.tx[0], source, start_delay=0.1, timeout=0.01)
    assert sending.wait(20)
    error = sending.progress().error
    sending.close()
    assert isinstance(error, TransmissionError)
    assert "of 20000 packets" in str(error)
