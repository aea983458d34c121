"""Queues without threads: the caller does their work (poll_mode: direct)."""

import re
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from packet_bytes import packets_of, put_on_the_wire, rows

from daqiri_ophyd.engine import (
    Burst,
    ConfigError,
    Engine,
    NotReadyError,
    NotSupportedError,
    RxQueue,
)

Config = dict[str, Any]
Build = Callable[..., Config]
Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]

TIMEOUT = 20.0
HOUR_NS = 3600 * 10**9
LATER_NS = 50_000_000
NOT_OF_DIRECT = ("cpu_core", "batch_size", "timeout_us")


def make_direct(config: Config) -> Config:
    """Have all queues polled by their callers."""
    for interface in config["interfaces"]:
        for side in ("rx", "tx"):
            for queue in interface.get(side, {}).get("queues", ()):
                for key in NOT_OF_DIRECT:
                    queue.pop(key, None)
                queue["poll_mode"] = "direct"
    return config


@pytest.fixture(params=["loopback", "dpdk"])
def direct(request: pytest.FixtureRequest) -> Build:
    """A loopback, or a device that is one, whose queues have no threads."""
    build = request.getfixturevalue(request.param)
    return lambda **keys: make_direct(build(**keys))


def threads_of_queues() -> int:
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text())
        except OSError:  # it has ended in between
            continue
    return sum(name.startswith(("daqiri-rx", "daqiri-tx")) for name in names)


def test_callers_send_and_receive(direct: Build, made_frames: Frames, receive_all: Receive) -> None:
    before = threads_of_queues()
    with Engine.open(direct()) as engine:
        assert threads_of_queues() == before
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        for n in (1, 63, 64, 300):
            frames = made_frames(n)
            tx.send(frames)
            assert packets_of(receive_all(rx, n)) == rows(frames)
        assert tx.wait_sent(0.0)
        counters = rx.counters()
        assert (counters.received, counters.delivered, counters.held) == (428, 428, 0)
        assert tx.counters().sent == 428
        assert rx.receive() is None
        begun = time.monotonic()
        assert rx.receive(0.2) is None
        assert time.monotonic() - begun >= 0.2


def test_packets_wait_for_a_call(direct: Build, made_frames: Frames) -> None:
    with Engine.open(direct()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send(made_frames(100))
        assert tx.counters().sent == 100
        assert rx.counters().received == 0
        with rx.receive() as first:
            assert len(first) == 64
        assert rx.counters().received == 100


def test_a_receiver_that_waits_is_told_of_packets(
    direct: Build, made_frames: Frames, receive_all: Receive
) -> None:
    with Engine.open(direct()) as engine, ThreadPoolExecutor(1) as threads:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        for n in range(1, 20):
            waiting = threads.submit(receive_all, rx, n)
            time.sleep(0.002 * (n % 3))
            tx.send(made_frames(n))
            assert packets_of(waiting.result(TIMEOUT)) == rows(made_frames(n))


def test_launch_times_are_kept_by_whoever_waits(
    direct: Build, made_frames: Frames, receive_all: Receive
) -> None:
    with Engine.open(direct()) as engine:
        port = engine.ports[0]
        rx, tx = port.rx[0], port.tx[0]
        launch = port.now() + LATER_NS
        tx.send(made_frames(10), launch_times=np.full(10, launch))
        assert (tx.counters().sent, tx.counters().held) == (0, 10)
        assert not tx.wait_sent(0.0)
        assert tx.wait_sent(TIMEOUT)
        assert port.now() >= launch
        times = np.concatenate([burst.timestamps for burst in receive_all(rx, 10)])
        assert times.min() >= launch


def test_a_flush_needs_no_thread(direct: Build, made_frames: Frames, receive_all: Receive) -> None:
    with Engine.open(direct()) as engine:
        port = engine.ports[0]
        rx, tx = port.rx[0], port.tx[0]
        tx.send(made_frames(30), launch_times=np.full(30, port.now() + HOUR_NS))
        assert tx.flush() == 30
        tx.send(made_frames(40))
        rx.flush()
        assert rx.counters().dropped["flushed"] == 40
        port.drop_all_traffic()
        tx.send(made_frames(50))
        port.allow_all_traffic()
        assert rx.counters().dropped["filtered"] == 50
        tx.send(made_frames(7))
        assert packets_of(receive_all(rx, 7)) == rows(made_frames(7))


def test_a_full_receiver_lets_its_sender_go_on_later(
    loopback: Build, made_frames: Frames, receive_all: Receive
) -> None:
    regions = [
        {"name": "rx_buffers", "kind": "host", "num_bufs": 64, "buf_size": 2048},
        {"name": "tx_buffers", "kind": "host", "num_bufs": 1024, "buf_size": 2048},
    ]
    with Engine.open(make_direct(loopback(regions=regions))) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        frames = made_frames(500)
        tx.send(frames)
        assert not tx.wait_sent(0.05)
        received: list[bytes] = []
        while len(received) < 500:
            # One thread does both: the next call of the queue sends waiting packets.
            tx.wait_sent(0.0)
            with rx.receive(TIMEOUT) as burst:
                received += [view.tobytes() for view in burst]
        assert received == rows(frames)
        assert tx.wait_sent(0.0)
        assert rx.counters().dropped_total == 0


def test_any_number_of_threads_share_the_work(direct: Build, made_frames: Frames) -> None:
    senders, rounds, each = 3, 40, 50
    everything = senders * rounds * each
    received: list[bytes] = []
    with Engine.open(direct()) as engine, ThreadPoolExecutor(2 * senders) as threads:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]

        def send(number: int) -> None:
            for _ in range(rounds):
                tx.send(made_frames(each, src_port=6000 + number), timeout=TIMEOUT)
            # Packets for which the peer had no place are sent by calls of this queue.
            assert tx.wait_sent(TIMEOUT)

        def receive() -> None:
            while rx.counters().delivered < everything:
                burst = rx.receive(0.01)
                if burst is not None:
                    received.extend(view.tobytes() for view in burst)
                    burst.release()

        work = [threads.submit(send, i) for i in range(senders)]
        work += [threads.submit(receive) for _ in range(senders)]
        for each_work in work:
            each_work.result(TIMEOUT)
        assert tx.wait_sent(TIMEOUT)
        sent = [row for i in range(senders) for row in rows(made_frames(each, src_port=6000 + i))]
        assert sorted(received) == sorted(sent * rounds)
        assert (tx.counters().sent, rx.counters().received) == (everything, everything)


def test_a_closed_engine_ends_the_wait(direct: Build, made_frames: Frames) -> None:
    with Engine.open(direct()) as engine, ThreadPoolExecutor(2) as threads:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send(made_frames(5), launch_times=np.full(5, engine.ports[0].now() + HOUR_NS))
        receiver = threads.submit(rx.receive, None)
        sender = threads.submit(tx.wait_sent, None)
        threading.Event().wait(0.05)
        engine.close()
        with pytest.raises(NotReadyError):
            receiver.result(TIMEOUT)
        assert sender.result(TIMEOUT)
        assert tx.counters().dropped["flushed"] == 5
        assert rx.closed


def test_what_has_arrived_is_received_after_the_close(direct: Build, made_frames: Frames) -> None:
    with Engine.open(direct()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send(made_frames(100))
        engine.close()
        assert packets_of([rx.receive(), rx.receive()]) == rows(made_frames(100))
        with pytest.raises(NotReadyError):
            rx.receive()


def test_flows_change_while_nobody_polls(
    direct: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = direct()
    config["interfaces"][0]["rx"]["dynamic_flow_capacity"] = 4
    with Engine.open(config) as engine:
        port = engine.ports[0]
        flow = port.add_flow({"name": "late", "match": {"udp_dst": 7777}, "queue": 0})
        port.tx[0].send(made_frames(20, dst_port=7777))
        (burst,) = receive_all(port.rx[0], 20)
        assert set(burst.flow_ids) == {flow.id}
        port.remove_flow(flow)


@pytest.mark.root
@pytest.mark.parametrize("path", ["af_packet", "af_xdp"])
@pytest.mark.parametrize("queues", [1, 2])
def test_callers_read_an_interface(
    cable: Any,
    packet: Build,
    made_frames: Frames,
    receive_all: Receive,
    request: pytest.FixtureRequest,
    path: str,
    queues: int,
) -> None:
    if path == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    config = packet()
    rx = config["interfaces"][0]["rx"]
    rx |= {"receive_path": path, "flow_isolation": True}
    for number in range(1, queues):
        rx["queues"].append({**rx["queues"][0], "name": f"rx{number}", "id": number})
        action = {"type": "queue", "id": number}
        match = {"udp_dst": 5000 + number}
        rx["flows"].append(
            {"name": f"f{number}", "id": 7 + number, "match": match, "action": action}
        )
    with cable.call(Engine.open, make_direct(config)) as engine:
        receiver, sender = engine.ports
        for size in (100, 8000):
            sent = [made_frames(150, size, dst_port=5000 + i) for i in range(queues)]
            for frames in sent:
                sender.tx[0].send(frames)
            for i, frames in enumerate(sent):
                assert packets_of(receive_all(receiver.rx[i], 150)) == rows(frames)
        for i in range(queues):
            counters = receiver.rx[i].counters()
            assert (counters.received, counters.dropped_total) == (300, 0)


@pytest.mark.root
@pytest.mark.parametrize("path", ["af_packet", "af_xdp"])
def test_what_came_before_a_flush_is_dropped_however_late_it_is_read(
    cable: Any,
    packet: Build,
    made_frames: Frames,
    receive_all: Receive,
    request: pytest.FixtureRequest,
    path: str,
) -> None:
    if path == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    config = packet()
    config["interfaces"][0]["rx"]["receive_path"] = path
    with cable.call(Engine.open, make_direct(config)) as engine:
        receiver, sender = engine.ports
        for _ in range(3):
            sender.tx[0].send(made_frames(10))
            receiver.rx[0].flush()
            # The queue is not polled while the kernel delivers frames.
            time.sleep(0.1)
            sender.tx[0].send(made_frames(7))
            assert packets_of(receive_all(receiver.rx[0], 7)) == rows(made_frames(7))
        assert receiver.rx[0].counters().dropped["flushed"] == 30


@pytest.mark.root
@pytest.mark.parametrize(
    ("queue", "wait_ms"),
    [({"poll_mode": "direct"}, 1), ({"batch_size": 1}, 1), ({"batch_size": 64}, 10)],
)
def test_the_kernel_hands_frames_over_at_once_where_no_burst_waits_for_more(
    cable: Any, packet: Build, queue: Config, wait_ms: int
) -> None:
    config = packet(rx={"timeout_us": 0, **queue})
    if "poll_mode" in queue:
        make_direct(config)
    with cable.call(Engine.open, config):
        show = ["ss", "--packet", "--extended", "--numeric"]
        sockets = cable.call(partial(subprocess.run, show, capture_output=True, text=True))
        assert re.findall(r"ring_rx\(.*tmo:(\d+)", sockets.stdout) == [str(wait_ms)]


@pytest.mark.root
@pytest.mark.parametrize("device", ["net_af_packet0,iface=far,framecnt=256", "net_tap0,iface=tap"])
def test_what_the_kernel_drops_before_a_device_is_counted(
    dpdk: Build, card: Callable[..., Any], made_frames: Frames, device: str
) -> None:
    network = card(mtu=1500)
    network.add_tap("tap")
    network.run("ip link set tap txqueuelen 256 up")
    config = make_direct(dpdk())
    config["interfaces"][0]["address"] = device
    frames = [bytes(frame) for frame in made_frames(3000)]
    with network.call(Engine.open, config) as engine:
        (port,) = engine.ports
        network.call(put_on_the_wire, "tap" if "tap" in device else "near", frames)
        received = 0
        while (burst := port.rx[0].receive(0.2)) is not None:
            received += len(burst)
            burst.release()
        lost = port.counters(max_age=0)
        assert 256 <= received < 3000
        assert lost.lost_dropped == lost.lost_before_engine == 3000 - received


@pytest.mark.parametrize("engine", ["dpdk", pytest.param("packet", marks=pytest.mark.root)])
def test_queues_of_an_interface_are_all_direct_or_none(
    request: pytest.FixtureRequest, engine: str
) -> None:
    config = request.getfixturevalue(engine)()
    queues = config["interfaces"][0]["rx"]["queues"]
    queues.append({**queues[0], "name": "rx1", "id": 1})
    for key in NOT_OF_DIRECT:
        del queues[1][key]
    queues[1]["poll_mode"] = "direct"
    with pytest.raises(NotSupportedError, match="'rx0' and 'rx1' have different poll_modes"):
        Engine.open(config)


def test_a_recorder_is_refused(direct: Build, tmp_path: Path) -> None:
    with Engine.open(direct()) as engine:
        with pytest.raises(NotSupportedError, match="'rx0' has poll_mode: direct"):
            engine.ports[0].rx[0].record(tmp_path)
        assert not list(tmp_path.iterdir())


def test_keys_of_threads_are_refused(direct: Build) -> None:
    config = direct()
    config["interfaces"][0]["tx"]["queues"][0]["realtime_priority"] = 5
    config["interfaces"][0]["rx"]["queues"][0]["timeout_us"] = 100
    with pytest.raises(ConfigError) as refused:
        Engine.open(config)
    assert "realtime_priority: a queue with poll_mode: direct" in str(refused.value)
    assert "timeout_us: a queue with poll_mode: direct" in str(refused.value)


def test_sockets_have_threads(udp: Build) -> None:
    config = make_direct(udp())
    with pytest.raises(ConfigError, match="raw and engine 'dpdk', 'ibverbs' or 'packet'"):
        Engine.open(config)
