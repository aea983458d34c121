"""Sending arrays, lists and parts of files; launch times; rejected arguments."""

import signal
import subprocess
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
    NoSpaceAvailableError,
    NotReadyError,
    PcapFile,
    RxQueue,
)

Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]
Loopback = Callable[..., dict[str, Any]]
Python = Callable[[str], subprocess.Popen[str]]


def received(bursts: list[Burst]) -> list[bytes]:
    return [view.tobytes() for burst in bursts for view in burst]


def test_arrays_in_any_memory_order(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(100)
    wide = np.repeat(sent, 2, axis=1)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        for packets in (sent, sent[::-1], sent[::3], np.asfortranarray(sent), wide[:, ::2]):
            assert tx.send(packets) == len(packets)
            assert received(receive_all(rx, len(packets))) == [row.tobytes() for row in packets]
        assert tx.send(sent[:0]) == 0
        assert tx.send([]) == 0


@on_dpdk_too
def test_rows_are_cut_to_lengths(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(100)
    lengths = np.arange(100) % 100 + 42
    with Engine.open(loopback()) as engine:
        engine.ports[0].tx[0].send(sent, lengths=lengths)
        got = received(receive_all(engine.ports[0].rx[0], 100))
        assert got == [row[:n].tobytes() for row, n in zip(sent, lengths, strict=True)]


def test_lists_of_anything_like_bytes(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(4)
    packets = [sent[0].tobytes(), bytearray(sent[1]), memoryview(sent[2]), sent[3]]
    with Engine.open(loopback()) as engine:
        assert engine.ports[0].tx[0].send(packets) == 4
        assert engine.ports[0].tx[0].send(tuple(packets)) == 4
        got = received(receive_all(engine.ports[0].rx[0], 8))
        assert got == [row.tobytes() for row in sent] * 2


def test_a_file_is_sent_from_its_map(
    loopback: Loopback, made_frames: Frames, receive_all: Receive, tmp_path: Path
) -> None:
    sent = made_frames(200)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send(sent, lengths=np.arange(200) % 50 + 92)
        for burst in receive_all(rx, 200):
            burst.write_pcap(tmp_path, "some")
        with PcapFile(tmp_path / "some.pcap") as pcap:
            assert tx.send(pcap.data, offsets=pcap.offsets, lengths=pcap.lengths) == 200
            assert received(receive_all(rx, 200)) == [view.tobytes() for view in pcap]


@on_dpdk_too
def test_packets_longer_than_a_buffer_go_to_the_next_segment(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(50, 1000)
    config = loopback(
        tx={"memory_regions": ["first", "second"]},
        regions=[
            {"name": "rx_buffers", "kind": "host", "num_bufs": 4096, "buf_size": 2048},
            {"name": "first", "kind": "host", "num_bufs": 256, "buf_size": 100},
            {"name": "second", "kind": "host", "num_bufs": 256, "buf_size": 1000},
        ],
    )
    with Engine.open(config) as engine:
        tx = engine.ports[0].tx[0]
        # Raised to the requirement of the queue, and not further.
        assert tx.max_packet_size >= 1042
        tx.send(sent)
        assert received(receive_all(engine.ports[0].rx[0], 50)) == [row.tobytes() for row in sent]


@on_dpdk_too
def test_packets_leave_at_their_times(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(100)
    with Engine.open(loopback(rx={"timeout_us": 100})) as engine:
        port = engine.ports[0]
        tx = port.tx[0]
        begin = port.now() + 50_000_000
        times = begin + np.arange(100) * 1_000_000
        assert tx.send(sent, launch_times=times) == 100
        # Packets whose launch time has passed may have been sent late.
        held, passed = tx.counters().held, np.count_nonzero(times <= port.now())
        assert held >= 100 - passed
        assert tx.wait_sent(20)
        bursts = receive_all(port.rx[0], 100)
        stamps = np.concatenate([burst.timestamps for burst in bursts])
        assert (stamps >= times).all()
        late = tx.lateness()
        assert late.count == 100
        assert 0 <= late.p50 <= late.p90 <= late.p99 <= late.p999 <= late.maximum
        edges, counts = late.histogram()
        assert len(edges) == len(counts) + 1
        assert (np.diff(edges) > 0).all()
        assert edges[-2] <= late.maximum < edges[-1]
        missed = tx.counters().late
        assert missed <= passed
        assert tx.send(sent[:5], launch_times=np.full(5, 1, np.uint64)) == 5
        assert tx.wait_sent(20)
        assert tx.counters().late == missed + 5
        tx.reset_lateness()
        receive_all(port.rx[0], 5)
        tx.send(sent[:1])
        assert tx.wait_sent(20)
        receive_all(port.rx[0], 1)
        assert tx.lateness().count == 0


@on_dpdk_too
def test_sending_waits_for_buffers(
    loopback: Loopback, made_frames: Frames, receive_all: Receive
) -> None:
    # 16 times as many packets as buffers.
    sent = made_frames(4096)
    config = loopback(
        regions=[
            {"name": "rx_buffers", "kind": "host", "num_bufs": 8192, "buf_size": 2048},
            {"name": "tx_buffers", "kind": "host", "num_bufs": 256, "buf_size": 2048},
        ],
    )
    with Engine.open(config) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(received(receive_all(rx, 4096))))
        thread.start()
        assert tx.send(sent) == 4096
        thread.join()
        assert got == [row.tobytes() for row in sent]


def test_no_room_in_time_tells_how_many_went(loopback: Loopback, made_frames: Frames) -> None:
    with Engine.open(loopback(tx_meta_buffers=4)) as engine:
        port = engine.ports[0]
        tx = port.tx[0]
        far = port.now() + 3600 * 10**9
        with pytest.raises(NoSpaceAvailableError) as caught:
            tx.send(made_frames(1000), launch_times=np.full(1000, far), timeout=0.2)
        assert caught.value.submitted == tx.counters().submitted == 4 * 64
        text = str(caught.value)
        assert "accepted 256 of 1000 packets" in text
        assert "no free burst for 0.2 s" in text
        assert "tx_meta_buffers" in text
        with pytest.raises(NoSpaceAvailableError, match="accepted 0 of 1 packets"):
            tx.send([b"x" * 60], timeout=0.0)
        assert not tx.wait_sent(0.05)
    after = tx.counters()
    assert after.dropped["flushed"] == 256
    assert (after.submitted, after.sent, after.held) == (256, 0, 0)


@on_dpdk_too
def test_a_batch_larger_than_its_region(loopback: Loopback, made_frames: Frames) -> None:
    config = loopback(
        tx={"batch_size": 512},
        regions=[
            {"name": "rx_buffers", "kind": "host", "num_bufs": 8192, "buf_size": 2048},
            {"name": "tx_buffers", "kind": "host", "num_bufs": 64, "buf_size": 2048},
        ],
    )
    with Engine.open(config) as engine:
        assert engine.ports[0].tx[0].send(made_frames(2000)) == 2000


def test_what_is_refused(loopback: Loopback, made_frames: Frames) -> None:
    good = made_frames(3)
    flat = good.reshape(-1)
    offsets, lengths = [0, 142, 284], [142, 142, 142]
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (good.astype(np.int16), {}, "packets is int16; accepted is uint8"),
        (good[np.newaxis], {}, r"packets has shape \(1, 3, 142\)"),
        (flat, {}, "1-D and needs offsets and lengths"),
        (flat, {"offsets": offsets}, "1-D and needs offsets and lengths"),
        (good, {"offsets": offsets}, "offsets require a 1-D array"),
        (good, {"lengths": [1, 2]}, "lengths has 2 entries for 3 packets"),
        (good, {"lengths": [1, 2, 143]}, "packet 2 is 143 bytes at offset 0 of a row of 142"),
        (good, {"lengths": [1, -2, 3]}, "packet 1 is -2 bytes"),
        (good, {"lengths": [1.0, 2.0, 3.0]}, "lengths is float64; accepted are integers"),
        (good, {"lengths": [[1, 2, 3]]}, r"lengths has shape \(1, 3\)"),
        (good, {"launch_times": [1, 2]}, "launch_times has 2 entries for 3 packets"),
        (good, {"launch_times": [1, 2, -3]}, r"launch_times\[2\] is -3"),
        (good, {"launch_times": [1.5, 2, 3]}, "launch_times is float64"),
        (good, {"launch_times": np.array([1, 2, 2**63], np.uint64)}, "launch_times holds"),
        (good, {"timeout": -1.0}, "timeout is -1"),
        (
            flat,
            {"offsets": [0, 142, 285], "lengths": lengths},
            "packet 2 is 142 bytes at offset 285 of data of 426 bytes",
        ),
        (flat, {"offsets": [0, -1, 2], "lengths": lengths}, "packet 1 .* at offset -1"),
        (flat, {"offsets": [0, 2**62, 2], "lengths": lengths}, "packet 1"),
        (flat, {"offsets": offsets, "lengths": [1, 2]}, "lengths has 2 entries for 3"),
        (np.zeros((2, 2049), np.uint8), {}, "packet 0 has 2049 bytes; .* up to 2048"),
        (b"one packet", {}, "accepted is a list of packets"),
        ("text", {}, "accepted is a list of packets"),
        ([b"x", "text"], {}, r"packets\[1\] is <class 'str'>"),
        ([b"x", good[:, ::2]], {}, r"packets\[1\] is <class 'numpy.ndarray'>"),
        ([np.zeros(3, np.int16)], {}, r"packets\[0\] has items of 2 bytes"),
        ([b"x" * 3000], {}, "packet 0 has 3000 bytes"),
        ([b"x"], {"lengths": [1]}, "packets of a list have their own lengths"),
        ([b"x"], {"launch_times": [-1]}, r"launch_times\[0\] is -1"),
    ]
    with Engine.open(loopback()) as engine:
        tx = engine.ports[0].tx[0]
        for packets, keys, text in cases:
            with pytest.raises(InvalidParameterError, match=text):
                tx.send(packets, **keys)
        with pytest.raises(InvalidParameterError, match="timeout is -1"):
            tx.wait_sent(-1.0)
        assert tx.counters().submitted == 0
    with pytest.raises(NotReadyError, match="tx0' is closed after 0 of 3 packets"):
        tx.send(good)


@on_dpdk_too
def test_closing_the_engine_ends_a_send(loopback: Loopback, made_frames: Frames) -> None:
    engine = Engine.open(loopback(tx_meta_buffers=2))
    tx = engine.ports[0].tx[0]
    far = np.full(1000, engine.ports[0].now() + 3600 * 10**9)
    errors: list[BaseException] = []

    def send() -> None:
        try:
            tx.send(made_frames(1000), launch_times=far, timeout=None)
        except NotReadyError as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while tx.counters().submitted < 128:
        thread.join(0.01)
    engine.close()
    thread.join(60)
    assert not thread.is_alive()
    assert "after 128 of 1000 packets" in str(errors[0])
    after = tx.counters()
    assert after.submitted == after.sent + after.held + after.dropped_total


def test_ctrl_c_ends_a_send(loopback: Loopback, python: Python) -> None:
    script = f"""
        import numpy as np, threading, time
        from daqiri_ophyd.engine import Engine

        def announce():
            while tx.counters().submitted < 128:
                time.sleep(0.01)
            print("waiting", flush=True)

        with Engine.open({loopback(tx_meta_buffers=2)!r}) as engine:
            tx = engine.ports[0].tx[0]
            far = np.full(1000, engine.ports[0].now() + 3600 * 10**9)
            try:
                threading.Thread(target=announce).start()
                tx.send(np.zeros((1000, 60), np.uint8), launch_times=far, timeout=None)
            except KeyboardInterrupt:
                print("interrupted", tx.counters().submitted)
    """
    with python(script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=30)[0] == "interrupted 128\n"
        assert child.returncode == 0
