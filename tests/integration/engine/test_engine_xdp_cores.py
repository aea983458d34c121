"""AF_XDP: several cores, each with its own queues of the network card."""

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import xdp_frames_by_queue
from numpy.typing import NDArray
from packet_bytes import packets_of, rest_of, rows
from waiting import eventually, wait_for

from daqiri_ophyd.engine import Burst, Engine, PcapFile, RxQueue

Config = dict[str, Any]
Build = Callable[..., Config]
Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("has_af_xdp")]
#: UDP port of the first queue's flow; the others follow.
PORT = 5000
#: The kernel distributes frames to the card's queues by their source ports.
SOURCES = range(4000, 4024)


@pytest.fixture
def packet(packet: Build) -> Build:
    """Three queues on separate threads, each with a region and a flow (``PORT`` and its number)."""
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]

    def build(**keys: Any) -> Config:
        config = packet(**keys)
        config["interfaces"].pop()
        rx = config["interfaces"][0]["rx"]
        (queue,) = rx["queues"]
        on = [cores[0], "any", cores[-1]]
        rx |= {
            "receive_path": "af_xdp",
            "flow_isolation": True,
            "queues": [
                queue
                | {"name": f"rx{i}", "id": i, "cpu_core": core, "memory_regions": [f"region{i}"]}
                for i, core in enumerate(on)
            ],
            "flows": [
                {
                    "name": f"flow{i}",
                    "id": 7 + i,
                    "match": {"udp_dst": PORT + i},
                    "action": {"type": "queue", "id": i},
                }
                for i in range(3)
            ],
        }
        config["memory_regions"] = [
            {"name": f"region{i}", "kind": "host", "num_bufs": 4096, "buf_size": 9216}
            for i in range(3)
        ]
        return config

    return build


def send(frames: NDArray[np.uint8]) -> None:
    """Send through the queueing discipline, which chooses the queue of a flow."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("near", 0))
        for frame in rows(frames):
            assert wire.send(frame) == len(frame)


def by_source(packets: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for each in packets:
        found.setdefault(each[34:36], []).append(each)
    return found


def mixed(made_frames: Frames, count: int, size: int, port: int) -> NDArray[np.uint8]:
    """Frames of all sources in turn."""
    sent = [made_frames(count, size, port, source) for source in SOURCES]
    return np.ascontiguousarray(np.stack(sent, 1).reshape(-1, sent[0].shape[1]))


@pytest.mark.parametrize(("card_queues", "threads"), [(1, 1), (2, 2), (3, 3), (7, 3)])
def test_frames_of_every_queue_of_the_card_reach_their_queue_in_order(
    card: Any,
    packet: Build,
    made_frames: Frames,
    receive_all: Receive,
    watch: Any,
    caplog: pytest.LogCaptureFixture,
    card_queues: int,
    threads: int,
) -> None:
    network = card(card_queues)
    # In one chunk of memory, and in several.
    sent = [[mixed(made_frames, 10, size, PORT + i) for i in range(3)] for size in (20, 8000)]
    with (
        caplog.at_level(logging.INFO, "daqiri_ophyd.engine"),
        network.call(Engine.open, packet(log_level="info")) as engine,
        watch(engine),
    ):
        (port,) = engine.ports
        for of_size in sent * 3:
            for frames in of_size:
                network.call(send, frames)
            for i, queue in enumerate(port.rx):
                bursts = receive_all(queue, 10 * len(SOURCES))
                assert by_source(packets_of(bursts)) == by_source(rows(of_size[i]))
                assert all((burst.flow_ids == 7 + i).all() for burst in bursts)
        for i, (queue, flow) in enumerate(zip(port.rx, port.flows, strict=True)):
            counters = queue.counters()
            assert (counters.received, counters.dropped_total) == (60 * len(SOURCES), 0)
            sent_bytes = 3 * sum(of_size[i].size for of_size in sent)
            assert counters.received_bytes == sent_bytes == flow.counters().bytes
        assert list(xdp_frames_by_queue(network)) == list(range(card_queues))
        by = f"af_xdp native in {threads} threads; " if threads > 1 else "af_xdp native; "
        named = f"the card has {card_queues} queue{'s' * (card_queues > 1)}, for which"
        wait_for(lambda: f"frames of 'far' are received by {by}{named}" in caplog.text)
        fewer = f"the receive queues have 3 cores, of which only {threads} read"
        if threads < 3:
            wait_for(lambda: fewer in caplog.text)
    assert (fewer in caplog.text) == (threads < 3)


def test_a_slow_queue_loses_only_its_own(
    card: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    network = card(3)
    config = packet()
    config["memory_regions"][1]["num_bufs"] = 300
    sent = [mixed(made_frames, 4, 1000, PORT + i) for i in range(3)]
    with network.call(Engine.open, config) as engine:
        (port,) = engine.ports
        for _ in range(10):
            for frames in sent:
                network.call(send, frames)
            for i in (0, 2):
                found = packets_of(receive_all(port.rx[i], 4 * len(SOURCES)))
                assert by_source(found) == by_source(rows(sent[i]))
        slow = port.rx[1]
        assert eventually(lambda: slow.counters().received == 40 * len(SOURCES))
        counters = slow.counters()
        lost = 40 * len(SOURCES) - 300
        assert counters.dropped["no_packet_buffer"] == counters.dropped_total == lost
        assert port.flows[1].counters().packets == 40 * len(SOURCES)
        assert len(packets_of(receive_all(slow, 300))) == 300
        assert sum(port.rx[i].counters().dropped_total for i in (0, 2)) == 0


@pytest.mark.parametrize("discard", ["flush", "drop_all"])
def test_what_came_before_a_flush_is_dropped(
    card: Any, packet: Build, made_frames: Frames, receive_all: Receive, discard: str
) -> None:
    network = card(4)
    each = 10 * len(SOURCES)
    with network.call(Engine.open, packet(rx={"timeout_us": 20_000})) as engine:
        (port,) = engine.ports
        for i in range(3):
            network.call(send, mixed(made_frames, 10, 100, PORT + i))
        if discard == "flush":
            for queue in port.rx:
                queue.flush()
        else:
            port.drop_all_traffic()
            port.allow_all_traffic()
        for i, queue in enumerate(port.rx):
            after = mixed(made_frames, 2, 200, PORT + i)
            network.call(send, after)
            found = packets_of(receive_all(queue, len(after)))
            assert by_source(found) == by_source(rows(after))
            dropped = queue.counters().dropped
            assert dropped["flushed"] + dropped["filtered"] == each
            assert queue.counters().received == each + len(after)


@pytest.mark.parametrize("size", [20, 8000])
def test_what_has_arrived_before_the_end_is_there(
    card: Any, packet: Build, made_frames: Frames, size: int
) -> None:
    network = card(4)
    sent = [mixed(made_frames, 20, size, PORT + i) for i in range(3)]
    with network.call(Engine.open, packet(rx={"timeout_us": 20_000})) as engine:
        (port,) = engine.ports
        for frames in sent:
            network.call(send, frames)
    for i, queue in enumerate(port.rx):
        found = packets_of(list(rest_of(queue)))
        assert by_source(found) == by_source(rows(sent[i]))
        counters = queue.counters()
        assert (counters.received, counters.held, counters.dropped_total) == (len(found), 0, 0)


def test_a_recorder_of_a_queue(
    card: Any, packet: Build, made_frames: Frames, receive_all: Receive, tmp_path: Path
) -> None:
    network = card(3)
    sent = [mixed(made_frames, 20, 1000, PORT + i) for i in range(2)]
    with network.call(Engine.open, packet()) as engine:
        (port,) = engine.ports
        with port.rx[1].record(tmp_path, "capture", max_packets=len(sent[1])) as recorder:
            for frames in sent:
                network.call(send, frames)
            assert recorder.wait(30.0)
        (file,) = recorder.files()
        found = packets_of(receive_all(port.rx[0], len(sent[0])))
        assert by_source(found) == by_source(rows(sent[0]))
        assert port.rx[1].counters().dropped_total == 0
    with PcapFile(file.path) as capture:
        assert by_source([bytes(each) for each in capture]) == by_source(rows(sent[1]))


def test_that_the_interface_goes_down_is_told_once(
    card: Any, packet: Build, made_frames: Frames, receive_all: Receive, caplog: Any
) -> None:
    network = card(3)
    with (
        caplog.at_level(logging.WARNING, "daqiri_ophyd.engine"),
        network.call(Engine.open, packet(log_level="warn")) as engine,
    ):
        (port,) = engine.ports
        network.run("ip link set far down")
        wait_for(lambda: "'far' is down or was removed" in caplog.text)
        network.up("far", "near")
        sent = mixed(made_frames, 2, 100, PORT)
        network.call(send, sent)
        found = packets_of(receive_all(port.rx[0], len(sent)))
        assert by_source(found) == by_source(rows(sent))
    assert caplog.text.count("'far' is down or was removed") == 1
