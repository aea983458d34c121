"""What several threads do to one object. Meant for interpreters without a global lock, too."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.engine import Burst, Engine, InvalidParameterError, NotReadyError

THREADS = 4
BATCH = 64
SIZE = 64


def queue(name: str, region: str, **keys: Any) -> dict[str, Any]:
    return {
        "name": name,
        "id": 0,
        "cpu_core": "any",
        "batch_size": BATCH,
        "memory_regions": [region],
        **keys,
    }


CONFIG: dict[str, Any] = {
    "version": 1,
    "master_core": 0,
    "stream_type": "raw",
    "loopback": "sw",
    "log_level": "error",
    "memory_regions": [
        {"name": "heads", "kind": "host", "num_bufs": 4096, "buf_size": 16},
        {"name": "bodies", "kind": "host", "num_bufs": 4096, "buf_size": 256},
        {"name": "tx", "kind": "host", "num_bufs": 4096, "buf_size": 256},
    ],
    "interfaces": [
        {
            "name": "port",
            "address": "loopback",
            "rx": {
                "queues": [
                    {
                        **queue("rx", "heads", timeout_us=300, split_boundary=16),
                        "memory_regions": ["heads", "bodies"],
                    }
                ]
            },
            "tx": {"queues": [queue("tx", "tx")]},
        }
    ],
}


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine.open(CONFIG) as engine:
        yield engine


def packets(first: int, count: int = BATCH) -> np.ndarray:
    """Packets that begin with their number and are filled with its last byte."""
    numbers = np.arange(first, first + count, dtype="<u4")
    rows = np.repeat(numbers.astype(np.uint8)[:, None], SIZE, axis=1)
    rows[:, :4] = numbers[:, None].view(np.uint8)
    return rows


def received(engine: Engine, first: int) -> Burst:
    port = engine.port("port")
    port.tx[0].send(packets(first))
    burst = port.rx[0].receive(10)
    assert burst is not None
    assert len(burst) == BATCH
    return burst


def together(*actions: Callable[[], object]) -> None:
    """Run actions in parallel, each on a thread; exceptions are raised here."""
    start = threading.Barrier(len(actions))
    raised: list[BaseException] = []

    def run(action: Callable[[], object]) -> None:
        start.wait(60)
        try:
            action()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


def test_one_of_many_releases_a_burst_that_the_others_read(engine: Engine) -> None:
    for first in range(0, 200 * BATCH, BATCH):
        burst = received(engine, first)
        wanted = packets(first)

        def read(burst: Burst = burst, wanted: np.ndarray = wanted) -> None:
            kept = []
            try:
                for i in range(BATCH):
                    assert burst.lengths[i] == SIZE
                    assert burst.flow_ids[i] == 0
                    assert burst.timestamps[i] > 0
                    assert burst.addresses(1)[i] != 0
                    kept.append((i, burst.segment(1, i)))
                    assert np.array_equal(burst.gather(), wanted)
                    data, offsets = burst.gather_flat()
                    assert np.array_equal(data, wanted.reshape(-1))
                    assert offsets[-1] == data.size
            except InvalidParameterError as error:
                assert "burst released" in str(error)
            # What was taken before stays what it was.
            for i, body in kept:
                assert np.array_equal(body, wanted[i, 16:])

        together(read, read, burst.release)
        assert burst.released


def test_a_burst_goes_back_once_however_many_release_it(engine: Engine) -> None:
    for first in range(0, 300 * BATCH, BATCH):
        burst = received(engine, first)
        together(*[burst.release] * THREADS)
    # A buffer that went back twice would be in two packets.
    rx, tx = engine.port("port").rx[0], engine.port("port").tx[0]
    kept = []
    for first in range(0, 2048, BATCH):
        tx.send(packets(first))
        burst = rx.receive(10)
        assert burst is not None
        kept.append((burst, first))
    addresses = np.concatenate([burst.addresses(0) for burst, _ in kept])
    assert len(np.unique(addresses)) == len(addresses)
    for burst, first in kept:
        assert np.array_equal(burst.gather(), packets(first, len(burst)))


def test_the_last_of_many_references_frees_the_buffers(engine: Engine) -> None:
    rx, tx = engine.port("port").rx[0], engine.port("port").tx[0]
    for first in range(0, 100 * BATCH, BATCH):
        burst = received(engine, first)
        views = [burst[:] for _ in range(THREADS)]
        burst.release()
        together(*[view.clear for view in views])
    for first in range(0, 4096, BATCH):
        tx.send(packets(first))
    assert tx.wait_sent(10)
    counters = rx.counters()
    assert counters.dropped["no_packet_buffer"] == 0


@pytest.mark.parametrize("shared", [False, True])
def test_every_packet_reaches_one_of_the_receivers(engine: Engine, shared: bool) -> None:
    rx, tx = engine.port("port").rx[0], engine.port("port").tx[0]
    count = 300 * BATCH
    lock = threading.Lock()
    seen: list[np.ndarray] = []
    got = threading.Semaphore(0)
    one = rx.bursts(10)

    def receive() -> None:
        for burst in one if shared else rx.bursts(10):
            with burst:
                numbers = burst.gather()[:, :4].copy().view("<u4")[:, 0]
            with lock:
                seen.append(numbers)
                done = sum(map(len, seen)) == count
            for _ in range(len(numbers)):
                got.release()
            if done:
                engine.close()

    def send() -> None:
        for first in range(0, count, BATCH):
            tx.send(packets(first), timeout=30)
            # No more in flight than the receiver has buffers for.
            for _ in range(BATCH if first else 0):
                assert got.acquire(timeout=30)

    together(send, *[receive] * THREADS)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(count))


def test_many_send_on_one_queue(engine: Engine) -> None:
    rx, tx = engine.port("port").rx[0], engine.port("port").tx[0]

    def send(number: int) -> Callable[[], None]:
        def run() -> None:
            for i in range(50):
                first = (number * 50 + i) * BATCH
                rows = packets(first)
                sent = tx.send(rows if i % 2 else list(rows), timeout=30)
                assert sent == BATCH

        return run

    def drain() -> None:
        got, empty = 0, 0
        # What it is too slow for is dropped, and counted.
        while got + rx.counters().dropped_total < THREADS * 50 * BATCH:
            burst = rx.receive(0.5)
            empty += burst is None
            assert empty < 60
            if burst is None:
                continue
            with burst:
                rows = burst.gather()
            numbers = rows[:, :4].copy().view("<u4")[:, 0]
            assert np.array_equal(rows[:, 4], numbers.astype(np.uint8))
            got += len(rows)

    together(drain, *[send(number) for number in range(THREADS)])
    # A burst arrives a moment before it counts as sent.
    assert tx.wait_sent(30)
    sent = tx.counters()
    assert sent.submitted == sent.sent == THREADS * 50 * BATCH


def test_many_watch_stop_and_read_a_recorder(engine: Engine, tmp_path: Path) -> None:
    rx, tx = engine.port("port").rx[0], engine.port("port").tx[0]
    for round_ in range(10):
        recorder = rx.record(tmp_path, f"round{round_}", roll_packets=BATCH)
        tx.send(packets(0, 8 * BATCH))
        assert tx.wait_sent(10)

        def watch(recorder: Any = recorder) -> None:
            while recorder.snapshot().running:
                recorder.wait(0.05)
                recorder.files()
                rx.counters()

        def stop(recorder: Any = recorder) -> None:
            with contextlib.suppress(NotReadyError):
                recorder.roll()
            recorder.stop()
            recorder.stop()

        together(watch, watch, stop, stop)
        assert sum(file.packets for file in recorder.files()) == recorder.snapshot().packets


def test_the_engine_is_closed_under_those_who_use_it() -> None:
    for _ in range(10):
        engine = Engine.open(CONFIG)
        rx, tx = engine.port("port").rx[0], engine.port("port").tx[0]

        def receive(rx: Any = rx) -> None:
            for burst in rx.bursts(None):
                burst.gather()

        def send(tx: Any = tx) -> None:
            try:
                while True:
                    tx.send(packets(0))
            except NotReadyError:
                pass

        together(receive, receive, send, engine.close, engine.close)
        assert engine.closed
        counters = rx.counters()
        assert counters.received == counters.delivered + counters.held + counters.dropped_total
