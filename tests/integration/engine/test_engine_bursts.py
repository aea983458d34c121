"""Bursts as arrays: no copies, and buffers that stay valid as long as arrays use them."""

import contextlib
import gc
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpdk_devices import on_dpdk_too
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    Burst,
    Engine,
    InvalidParameterError,
    NotReadyError,
    PcapFile,
    RxQueue,
)

Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]
Loopback = Callable[..., dict[str, Any]]


def address(array: NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]


@on_dpdk_too
def test_packets_arrive_as_they_were_sent(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(1000)
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        before = port.now()
        assert port.tx[0].send(sent) == 1000
        bursts = receive_all(port.rx[0], 1000)
        after = port.now()
        assert np.array_equal(np.concatenate([burst.gather() for burst in bursts]), sent)
        for burst in bursts:
            assert (burst.port_id, burst.queue_id, burst.connection_id) == (0, 0, 0)
            assert burst.num_segments == 1
            assert (burst.lengths == 142).all()
            assert (burst.flow_ids == 7).all()
            assert burst.nbytes == 142 * len(burst)
            assert burst.timestamps.dtype == np.int64
            assert before <= burst.timestamps[0] <= burst.timestamps[-1] <= after
        stamps = np.concatenate([burst.timestamps for burst in bursts])
        assert (np.diff(stamps) >= 0).all()


def test_nothing_is_copied(loopback: Loopback, made_frames: Frames, receive_all: Receive) -> None:
    sent = made_frames(64)
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        port.tx[0].send(sent)
        (burst,) = receive_all(port.rx[0], 64)
        views = list(burst)
        assert [address(view) for view in views] == [address(burst[i]) for i in range(64)]
        assert [address(view) for view in views] == [address(view) for view in burst[:]]
        # Packets are in buffers of one region, at a distance of whole buffers.
        steps = np.diff(sorted(map(address, views)))
        assert (steps >= 2048).all()
        assert views[0].base is views[63].base is burst.lengths.base is burst.timestamps.base
        for get in (lambda: burst.lengths, lambda: burst.flow_ids, lambda: burst.timestamps):
            assert address(get()) == address(get())


def test_arrays_cannot_be_written(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    with Engine.open(loopback()) as engine:
        engine.ports[0].tx[0].send(made_frames(3))
        burst = receive_all(engine.ports[0].rx[0], 3)[0]
        for array in (burst[0], burst.lengths, burst.flow_ids, burst.timestamps):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.setflags(write=True)


def test_indices_and_slices(loopback: Loopback, made_frames: Frames, receive_all: Receive) -> None:
    sent = made_frames(10)
    with Engine.open(loopback(rx={"batch_size": 10})) as engine:
        engine.ports[0].tx[0].send(sent)
        (burst,) = receive_all(engine.ports[0].rx[0], 10)
        assert len(burst) == 10
        assert np.array_equal(burst[-1], sent[-1])
        assert np.array_equal(burst[np.int64(3)], sent[3])
        for part in (slice(2, 5), slice(None, None, -3), slice(8, 99), slice(5, 2)):
            views = burst[part]
            assert len(views) == len(sent[part])
            assert all(np.array_equal(a, b) for a, b in zip(views, sent[part], strict=True))
        for number in (10, -11, 2**40):
            with pytest.raises(IndexError, match=f"packet {number} of a burst of 10"):
                burst[number]
        with pytest.raises(TypeError):
            burst["0"]  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="zero"):
            burst[::0]


@on_dpdk_too
def test_views_outlive_burst_queue_and_engine(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(200)
    engine = Engine.open(loopback())
    engine.ports[0].tx[0].send(sent)
    bursts = receive_all(engine.ports[0].rx[0], 200)
    views = [view for burst in bursts for view in burst]
    stamps = np.concatenate([burst.timestamps for burst in bursts])
    kept_lengths = bursts[0].lengths
    bursts[0].release()
    engine.close()
    del bursts, engine
    gc.collect()
    # The memory of a new engine is not that of the old views.
    with Engine.open(loopback()) as other:
        other.ports[0].tx[0].send(made_frames(300)[::-1])
        receive_all(other.ports[0].rx[0], 300)
        assert np.array_equal(np.stack(views), sent)
    assert (kept_lengths == 142).all()
    assert len(stamps) == 200
    # In any order.
    rng = np.random.default_rng(0)
    while views:
        number = int(rng.integers(len(views)))
        assert np.array_equal(views[number], sent[int.from_bytes(views[number][42:46].tobytes())])
        del views[number]
        if not len(views) % 50:
            gc.collect()


@on_dpdk_too
def test_views_keep_their_buffers_from_being_used_again(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    first, second = made_frames(64), made_frames(20_000)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send(first)
        (burst,) = receive_all(rx, 64)
        views = burst[:]
        burst.release()
        thread = threading.Thread(target=tx.send, args=(second,))
        thread.start()
        got = 0
        while got < 20_000 - rx.counters().dropped_total:
            got += len(rx.receive(0.5) or ())
        thread.join()
        assert np.array_equal(np.stack(views), first)


def test_views_pass_between_threads(loopback: Loopback, made_frames: Frames) -> None:
    sent = made_frames(3000)
    kept: list[list[NDArray[np.uint8]]] = [[] for _ in range(4)]
    engine = Engine.open(loopback())
    rx = engine.ports[0].rx[0]

    def receive(into: list[NDArray[np.uint8]]) -> None:
        for burst in rx.bursts(None):
            into.extend(view for view in burst)

    threads = [threading.Thread(target=receive, args=(into,)) for into in kept]
    for thread in threads:
        thread.start()
    for start in range(0, 3000, 1000):
        assert engine.ports[0].tx[0].send(sent[start : start + 1000]) == 1000
    assert engine.ports[0].tx[0].wait_sent(20)
    engine.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    del engine
    gc.collect()
    views = [view for into in kept for view in into]
    numbers = [int.from_bytes(view[42:46].tobytes()) for view in views]
    assert sorted(numbers) == list(range(3000))
    assert all(np.array_equal(view, sent[n]) for view, n in zip(views, numbers, strict=True))


def test_a_released_burst_says_so(
    loopback: Loopback, made_frames: Frames, receive_all: Receive, tmp_path: Path
) -> None:
    with Engine.open(loopback()) as engine:
        engine.ports[0].tx[0].send(made_frames(2))
        with receive_all(engine.ports[0].rx[0], 2)[0] as burst:
            view = burst[0]
            assert "2 packets" in repr(burst)
        burst.release()
        assert burst.released
        assert "released" in repr(burst)
        uses: list[Callable[[], object]] = [
            lambda: len(burst),
            lambda: burst[0],
            lambda: burst[:],
            lambda: list(burst),
            lambda: burst.lengths,
            lambda: burst.segment(0, 0),
            lambda: burst.timestamps,
            lambda: burst.flow_ids,
            lambda: burst.nbytes,
            lambda: burst.port_id,
            burst.gather,
            burst.gather_flat,
            lambda: burst.write_pcap(tmp_path, "late"),
            lambda: burst.write_raw(tmp_path, "late"),
        ]
        for use in uses:
            with pytest.raises(InvalidParameterError, match="burst released"):
                use()
        assert len(view) == 142


@on_dpdk_too
def test_segments(loopback: Loopback, made_frames: Frames, receive_all: Receive) -> None:
    sent = made_frames(30)
    config = loopback(
        rx={"memory_regions": ["headers", "payloads"], "split_boundary": 42},
        regions=[
            {"name": "headers", "kind": "host", "num_bufs": 4096, "buf_size": 64},
            {"name": "payloads", "kind": "host", "num_bufs": 4096, "buf_size": 2048},
            {"name": "tx_buffers", "kind": "host", "num_bufs": 1024, "buf_size": 2048},
        ],
    )
    with Engine.open(config) as engine:
        port = engine.ports[0]
        lengths = np.arange(30) + 42
        port.tx[0].send(sent, lengths=lengths)
        bursts = receive_all(port.rx[0], 30)
        number = 0
        for burst in bursts:
            assert burst.num_segments == 2
            assert (burst.segment_lengths(0) == 42).all()
            assert (burst.lengths == burst.segment_lengths(0) + burst.segment_lengths(1)).all()
            rows = burst.gather()
            data, offsets = burst.gather_flat()
            for i in range(len(burst)):
                whole = sent[number, : 42 + number]
                assert np.array_equal(burst[i], whole[:42])
                assert np.array_equal(burst.segment(0, i), whole[:42])
                assert np.array_equal(burst.segment(1, i), whole[42:])
                assert np.array_equal(rows[i, : 42 + number], whole)
                assert not rows[i, 42 + number :].any()
                assert np.array_equal(data[offsets[i] : offsets[i + 1]], whole)
                number += 1
            with pytest.raises(InvalidParameterError, match="segments 0 to 1"):
                burst.segment(2, 0)
        assert number == 30


def test_gather_into_an_array(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(20)
    lengths = np.arange(20) * 5 + 42
    with Engine.open(loopback()) as engine:
        engine.ports[0].tx[0].send(sent, lengths=lengths)
        (burst,) = receive_all(engine.ports[0].rx[0], 20)
        wide = np.full((20, 200), 255, np.uint8)
        assert burst.gather(wide) is wide
        for i, row in enumerate(wide):
            assert np.array_equal(row[: lengths[i]], sent[i, : lengths[i]])
            assert not row[lengths[i] :].any()
        assert burst.gather().shape == (20, 42 + 95)
        store = np.zeros(4096, np.uint8)
        data, offsets = burst.gather_flat(store)
        assert np.shares_memory(data, store)
        assert offsets.tolist() == [0, *np.cumsum(lengths).tolist()]
        assert data.size == lengths.sum() == burst.nbytes
        read_only = np.zeros((20, 200), np.uint8)
        read_only.setflags(write=False)
        bad: list[Any] = [
            np.zeros((19, 200), np.uint8),
            np.zeros((20, 136), np.uint8),
            np.zeros((20, 200), np.int8),
            np.zeros((20, 400), np.uint8)[:, ::2],
            np.zeros(4000, np.uint8),
            read_only,
            [],
        ]
        for out in bad:
            with pytest.raises(InvalidParameterError, match=r"out is .* gather needs"):
                burst.gather(out)
        with pytest.raises(InvalidParameterError, match=r"out is uint8 of shape \(100,\)"):
            burst.gather_flat(np.zeros(100, np.uint8))


def test_a_burst_released_while_it_is_gathered(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(64, 1400)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        for _ in range(50):
            tx.send(sent)
            (burst,) = receive_all(rx, 64)
            started = threading.Event()
            results: list[NDArray[np.uint8]] = []

            def gather(
                burst: Burst = burst,
                started: threading.Event = started,
                results: list[NDArray[np.uint8]] = results,
            ) -> None:
                started.set()
                with contextlib.suppress(InvalidParameterError):
                    results.append(burst.gather())

            thread = threading.Thread(target=gather)
            thread.start()
            started.wait()
            burst.release()
            thread.join()
            assert all(np.array_equal(result, sent) for result in results)


@on_dpdk_too
def test_bursts_as_files(
    loopback: Loopback, made_frames: Frames, receive_all: Receive, tmp_path: Path
) -> None:
    sent = made_frames(90)
    with Engine.open(loopback()) as engine:
        engine.ports[0].tx[0].send(sent)
        bursts = receive_all(engine.ports[0].rx[0], 90)
        for burst in bursts:
            assert burst.write_pcap(tmp_path, "some") == tmp_path / "some.pcap"
        with PcapFile(tmp_path / "some.pcap") as pcap:
            assert pcap.nanosecond
            assert np.array_equal(pcap.gather(), sent)
            stamps = np.concatenate([burst.timestamps for burst in bursts])
            assert np.array_equal(pcap.timestamps, stamps)
        with pytest.raises(InvalidParameterError, match="some.pcap"):
            bursts[0].write_pcap(tmp_path, "some", nanosecond=False)
        bursts[0].write_raw(tmp_path, "raw", 42)
        assert (tmp_path / "raw_1").read_bytes() == sent[1, 42:].tobytes()
        with pytest.raises(InvalidParameterError, match="offset is -1"):
            bursts[0].write_raw(tmp_path, "raw", -1)
        with pytest.raises(InvalidParameterError, match="missing"):
            bursts[0].write_pcap(tmp_path / "missing", "some")


@on_dpdk_too
def test_what_a_closed_queue_held_can_be_received(
    loopback: Loopback,
    made_frames: Frames,
    receive_all: Receive,
    wait_until_idle: Callable[[Engine], None],
) -> None:
    sent = made_frames(100)
    # Without a timeout the last burst stays open until the engine is closed.
    engine = Engine.open(loopback(rx={"timeout_us": 0}))
    rx = engine.ports[0].rx[0]
    engine.ports[0].tx[0].send(sent)
    wait_until_idle(engine)
    assert rx.counters().held == 100
    engine.close()
    assert rx.closed
    bursts = list(rx.bursts(None))
    assert [len(burst) for burst in bursts] == [64, 36]
    assert np.array_equal(np.concatenate([burst.gather() for burst in bursts]), sent)
    with pytest.raises(NotReadyError, match="rx0.*closed"):
        rx.receive()
    assert list(rx.bursts(1.0)) == []


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_timeouts_are_not_negative(loopback: Loopback, timeout: float) -> None:
    with Engine.open(loopback()) as engine:
        with pytest.raises(InvalidParameterError, match="timeout is"):
            engine.ports[0].rx[0].receive(timeout)
        assert engine.ports[0].rx[0].receive(0) is None
        assert engine.ports[0].rx[0].receive() is None
        assert engine.ports[0].rx[0].receive(0.05) is None


def test_waiting_costs_nothing(loopback: Loopback) -> None:
    with Engine.open(loopback()) as engine:
        before = resource.getrusage(resource.RUSAGE_THREAD)
        assert list(engine.ports[0].rx[0].bursts(3.0)) == []
        after = resource.getrusage(resource.RUSAGE_THREAD)
    # The thread sleeps and checks for signals once a second.
    assert after.ru_nvcsw - before.ru_nvcsw < 10


def test_addresses_are_where_the_packets_lie(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    split = {"memory_regions": ["rx_buffers", "rx_buffers"], "split_boundary": 42}
    with Engine.open(loopback(rx=split)) as engine:
        engine.ports[0].tx[0].send(made_frames(10))
        (burst,) = receive_all(engine.ports[0].rx[0], 10)
        for segment in range(2):
            addresses = burst.addresses(segment)
            assert addresses.dtype == np.uintp
            assert not addresses.flags.writeable
            assert addresses.tolist() == [address(burst.segment(segment, i)) for i in range(10)]
        assert burst.addresses().tolist() == burst.addresses(0).tolist()
        with pytest.raises(InvalidParameterError, match="segment 2"):
            burst.addresses(2)
        burst.release()
        with pytest.raises(InvalidParameterError, match="burst released"):
            burst.addresses()
