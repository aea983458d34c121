"""Sources on their way through a loopback engine."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
import yaml

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import Burst, Engine
from daqiri_ophyd.replay import NumberedPackets, PacketArray, Transmission, TransmissionError

# Of the profile.
RECEIVERS_BUFFERS = 16384
SENDERS_BUFFERS = 8192


@pytest.fixture
def port():
    with Engine.open(profiles.path("loopback")) as engine:
        yield engine.port("port0")


@pytest.fixture
def patient_port():
    """A port whose sender waits for its receiver."""
    text = profiles.path("loopback").read_text().replace("drops: true", "drops: false")
    with Engine.open(yaml.safe_load(text)) as engine:
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
        assert sending.wait(60)
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


def wait_until_stuck(port) -> int:
    """Wait until receiver and sender are out of buffers; return the packets held by the sender."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        received = port.rx_queue("rx_q0").counters().held
        if (received, port.tx[0].counters().held) == (RECEIVERS_BUFFERS, SENDERS_BUFFERS):
            return SENDERS_BUFFERS
        time.sleep(0.01)
    raise AssertionError("all was sent")


def test_stopping_drops_what_nobody_takes(patient_port):
    """The receive queue and the transmit queue are full; then others use both."""
    port = patient_port
    queue = port.tx[0]
    sending = Transmission(port, queue, NumberedPackets(1_000_000, 60), start_delay=0.0)
    wait_until_stuck(port)
    sending.stop()

    progress, counters = sending.progress(), queue.counters()
    assert progress.error is None
    assert not progress.running
    assert counters.held == 0
    assert progress.submitted == counters.submitted
    assert progress.dropped == counters.dropped["flushed"] > 0
    sending.close()

    port.rx_queue("rx_q0").flush()
    source = NumberedPackets(500, 60)
    after = Transmission(port, queue, source, start_delay=0.0)
    expected = np.concatenate([c.data.reshape(len(c), -1) for c in source.chunks()])
    assert np.array_equal(received(port, 500), expected)
    after.close()
    assert after.progress().dropped == 0


def test_stopping_drops_what_is_to_leave_later(port):
    """Also once all has been submitted."""
    times = np.full(10, 200_000_000, np.int64)
    source = PacketArray(np.zeros((10, 60), np.uint8), times)
    sending = Transmission(port, port.tx[0], source, start_delay=0.0)
    while sending.progress().submitted < 10:
        time.sleep(0.001)
    sending.stop()
    counters = port.tx[0].counters()
    assert sending.progress().dropped == counters.dropped["flushed"] == 10 - counters.sent
    sending.close()


def test_what_nobody_takes_waits_through_a_pause(patient_port):
    port = patient_port
    queue = port.tx[0]
    sending = Transmission(port, queue, NumberedPackets(100_000, 60), start_delay=0.0, timeout=0.5)
    held = wait_until_stuck(port)
    sending.pause()
    at = sending.progress().submitted
    time.sleep(1.0)  # longer than it waits for space
    assert queue.counters().held == held
    assert sending.progress().submitted == at
    sending.resume()
    assert sum(len(burst) for burst in bursts(port, 100_000)) == 100_000
    assert sending.wait(60)
    assert sending.progress().error is None
    sending.close()


def test_a_transmission_that_fails_leaves_nothing_in_the_queue(patient_port):
    port = patient_port
    queue = port.tx[0]
    source = NumberedPackets(1_000_000, 60)
    sending = Transmission(port, queue, source, start_delay=0.0, timeout=0.2)
    assert sending.wait(60)
    progress = sending.progress()
    sending.close()
    assert isinstance(progress.error, TransmissionError)
    text = str(progress.error)
    assert f"{progress.submitted} of 1000000 packets were submitted, then none for 0.2 s" in text
    assert "'rx_q0'" in text
    assert queue.counters().held == 0
    assert progress.dropped == queue.counters().dropped["flushed"] > 0


def test_packets_wait_for_the_start_without_a_schedule(port):
    before = port.now()
    sending = Transmission(port, port.tx[0], NumberedPackets(10, 60), start_delay=0.2)
    sending.wait(60)
    sending.close()
    for burst in bursts(port, 10):
        assert burst.timestamps[0] >= before + 200_000_000


def test_gaps_go_on_after_a_pause(port):
    gap, pause = 20_000_000, 500_000_000
    sending = Transmission(port, port.tx[0], NumberedPackets(100, 60, gap))
    while sending.progress().submitted < 30:
        time.sleep(0.01)
    sending.pause()
    assert port.tx[0].wait_sent(20.0)
    at = sending.progress().submitted
    time.sleep(pause * 1e-9)
    assert sending.progress().submitted == at
    sending.resume()
    assert sending.wait(60)
    sending.close()
    times = np.concatenate([b.timestamps.astype(np.int64) for b in bursts(port, 100)])
    assert times[at] - times[at - 1] > pause
    # Packets that made up for the pause would save it; a busy machine delays the first by less.
    assert times[-1] - times[at] > (99 - at) * gap - pause // 2


def test_what_the_queue_refuses_is_told(port):
    too_long = PacketArray(np.zeros((3, 5000), np.uint8))
    sending = Transmission(port, port.tx[0], too_long, start_delay=0.0)
    assert sending.wait(60)
    assert "5000 bytes" in str(sending.progress().error)
    sending.close()


def test_a_queue_without_room_is_told(port):
    """Packets with distant launch times fill the buffers."""
    times = np.arange(20_000, dtype=np.int64)
    times[9_000:] += 100_000_000  # within the horizon, and longer than the timeout
    source = PacketArray(np.zeros((20_000, 60), np.uint8), times)
    sending = Transmission(port, port.tx[0], source, start_delay=0.1, timeout=0.01)
    assert sending.wait(60)
    error = sending.progress().error
    sending.close()
    assert isinstance(error, TransmissionError)
    assert "of 20000 packets" in str(error)
