"""Receive queues of one network interface on several cores."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from packet_bytes import packets_of, rest_of, rows
from waiting import eventually

from daqiri_ophyd.engine import Burst, Engine, PcapFile, RxQueue

Config = dict[str, Any]
Build = Callable[..., Config]
Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]

pytestmark = pytest.mark.root
TIMEOUT = 30.0
#: UDP port of the first queue's flow; the others follow.
PORT = 5000


@pytest.fixture(params=["af_packet", "af_xdp"])
def packet(request: pytest.FixtureRequest, packet: Build) -> Build:
    """Queues on separate threads, each with a region and a flow (``PORT`` and its number)."""
    if request.param == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]

    def build(
        queues: int = 4, *, bufs: tuple[int, ...] = (4096,) * 4, size: int = 9216, **keys: Any
    ) -> Config:
        config = packet(**keys)
        rx = config["interfaces"][0]["rx"]
        rx["receive_path"] = request.param
        (queue,) = rx["queues"]
        # The poller of the first queue reads the ring, on another core than the other queues.
        on = [cores[0], "any", cores[-1], "any"]
        rx["queues"] = [
            queue | {"name": f"rx{i}", "id": i, "cpu_core": on[i], "memory_regions": [f"region{i}"]}
            for i in range(queues)
        ]
        rx["flows"] = [
            {
                "name": f"flow{i}",
                "id": 7 + i,
                "match": {"udp_dst": PORT + i},
                "action": {"type": "queue", "id": i},
            }
            for i in range(queues)
        ]
        config["memory_regions"] = config["memory_regions"][1:] + [
            {"name": f"region{i}", "kind": "host", "num_bufs": bufs[i], "buf_size": size}
            for i in range(queues)
        ]
        return config

    return build


@pytest.mark.parametrize("size", [20, 1400, 8000])
def test_each_queue_gets_its_own_in_order(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, watch: Any, size: int
) -> None:
    sent = [made_frames(300, size, PORT + i) for i in range(4)]
    with cable.call(Engine.open, packet()) as engine, watch(engine):
        receiver, sender = engine.ports
        for _ in range(5):
            for part in range(0, 300, 30):
                for frames in sent:
                    sender.tx[0].send(frames[part : part + 30])
            for i, queue in enumerate(receiver.rx):
                bursts = receive_all(queue, 300)
                assert packets_of(bursts) == rows(sent[i])
                assert all((burst.flow_ids == 7 + i).all() for burst in bursts)
        for i, (queue, flow) in enumerate(zip(receiver.rx, receiver.flows, strict=True)):
            counters = queue.counters()
            assert (counters.received, counters.delivered, counters.dropped_total) == (
                1500,
            ) * 2 + (0,)
            assert counters.received_bytes == 5 * sent[i].size == flow.counters().bytes
            assert flow.counters().packets == 1500


def test_a_closed_engine_leaves_nothing_on_the_interface(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    """Also while bursts are held, whose frames were copied to buffers."""

    def hooks() -> list[str]:
        lines = cable.call(Path("/proc/thread-self/net/ptype").read_text).splitlines()
        return [line for line in lines if "packet_rcv" in line or "tpacket" in line]

    before = hooks()
    config = packet(2)
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(made_frames(50, 200, PORT + 1))
        held = receive_all(receiver.rx[1], 50)
        if config["interfaces"][0]["rx"]["receive_path"] == "af_packet":
            assert len(hooks()) > len(before)
    assert hooks() == before
    assert packets_of(held) == rows(made_frames(50, 200, PORT + 1))


def test_what_this_host_sends_is_not_received(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet(2)
    receiving, sending = config["interfaces"]
    receiving["tx"] = {"queues": [sending["tx"]["queues"][0] | {"name": "own", "id": 0}]}
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        for i in range(2):
            receiver.tx[0].send(made_frames(100, 1400, PORT + i))
            sender.tx[0].send(made_frames(50, 200, PORT + i))
        assert receiver.tx[0].wait_sent(TIMEOUT)
        for i, queue in enumerate(receiver.rx):
            assert packets_of(receive_all(queue, 50)) == rows(made_frames(50, 200, PORT + i))
    assert [queue.counters().received for queue in receiver.rx] == [50, 50]


def test_two_engines_receive_the_same_frames(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet(2)
    other = config | {"interfaces": config["interfaces"][:1]}
    if config["interfaces"][0]["rx"]["receive_path"] == "af_xdp":
        pytest.skip("one program receives from an interface by AF_XDP")
    sent = [made_frames(200, 1400, PORT + i) for i in range(2)]
    with cable.call(Engine.open, config) as first, cable.call(Engine.open, other) as second:
        for frames in sent:
            first.ports[1].tx[0].send(frames)
        for engine in (first, second):
            for i, queue in enumerate(engine.ports[0].rx):
                assert packets_of(receive_all(queue, 200)) == rows(sent[i])
        counters = [queue.counters() for e in (first, second) for queue in e.ports[0].rx]
    assert [(each.received, each.dropped_total) for each in counters] == [(200, 0)] * 4


def test_segments_and_tags(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet(2)
    rx = config["interfaces"][0]["rx"]
    rx["queues"][1] |= {"memory_regions": ["heads", "region1"], "split_boundary": 42}
    rx["flows"][1]["actions"] = [{"type": "vlan_pop"}, rx["flows"][1].pop("action")]
    config["memory_regions"].append(config["memory_regions"][-1] | {"name": "heads"})
    plain = made_frames(300, 1400, PORT + 1)
    tag = np.frombuffer(bytes.fromhex("81000064"), np.uint8)
    tagged = np.concatenate([plain[:, :12], np.broadcast_to(tag, (300, 4)), plain[:, 12:]], axis=1)
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(np.ascontiguousarray(tagged))
        for burst in receive_all(receiver.rx[1], 300):
            assert burst.num_segments == 2
            for i in range(len(burst)):
                assert np.array_equal(burst.segment(0, i), plain[i, :42])
                assert np.array_equal(burst.segment(1, i), plain[i, 42:])
            plain = plain[len(burst) :]


def test_a_flow_is_spread_over_queues(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet()
    rx = config["interfaces"][0]["rx"]
    rx["flows"] = rx["flows"][:1]
    rx["flows"][0]["action"] = {"type": "queue", "ids": [0, 1, 2, 3]}
    sent = [made_frames(20, src_port=port) for port in range(4000, 4064)]
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(np.concatenate(sent))
        assert eventually(lambda: sum(q.counters().received for q in receiver.rx) == 1280)
        found: dict[bytes, list[bytes]] = {}
        for queue in receiver.rx:
            of_queue: dict[bytes, list[bytes]] = {}
            for each in packets_of(receive_all(queue, queue.counters().received)):
                of_queue.setdefault(each[34:36], []).append(each)
            assert 0 < len(of_queue) < 64
            assert found.keys().isdisjoint(of_queue)
            found |= of_queue
        assert found == {frames[0, 34:36].tobytes(): rows(frames) for frames in sent}
        assert receiver.flows[0].counters().packets == 1280


@pytest.mark.parametrize("size", [100, 8000])
def test_a_slow_queue_loses_only_its_own(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, size: int
) -> None:
    sent = [made_frames(50, size, PORT + i) for i in range(4)]
    with cable.call(Engine.open, packet(bufs=(4096, 300, 4096, 4096))) as engine:
        receiver, sender = engine.ports
        for _ in range(20):
            for frames in sent:
                sender.tx[0].send(frames)
            for i in (0, 2, 3):
                assert packets_of(receive_all(receiver.rx[i], 50)) == rows(sent[i])
        slow = receiver.rx[1]
        assert eventually(lambda: slow.counters().received == 1000)
        assert receiver.flows[1].counters().packets == 1000
        counters = slow.counters()
        assert counters.dropped["no_packet_buffer"] == counters.dropped_total == 700
        # The first packets that arrived.
        assert packets_of(receive_all(slow, 300)) == 6 * rows(sent[1])
        sender.tx[0].send(sent[1])
        assert packets_of(receive_all(slow, 50)) == rows(sent[1])
        assert sum(receiver.rx[i].counters().dropped_total for i in (0, 2, 3)) == 0


def test_what_is_lost_on_the_way_is_counted_at_its_queue(
    cable: Any, packet: Build, made_frames: Frames
) -> None:
    config = packet(2, size=1000)
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(made_frames(40, 2000, PORT + 1))
        queue, flow = receiver.rx[1], receiver.flows[1]
        assert eventually(lambda: queue.counters().received == 40)
        counters = queue.counters()
        assert counters.dropped["truncated"] == counters.dropped_total == 40
        assert counters.received_bytes == flow.counters().bytes == 40 * 2042


def test_a_recorder_of_a_queue(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, tmp_path: Path
) -> None:
    sent = [made_frames(500, 1000, PORT + i) for i in range(2)]
    with cable.call(Engine.open, packet(2)) as engine:
        receiver, sender = engine.ports
        with receiver.rx[1].record(tmp_path, "capture", max_packets=500) as recorder:
            for part in range(0, 500, 50):
                for frames in sent:
                    sender.tx[0].send(frames[part : part + 50])
            assert recorder.wait(TIMEOUT)
        (file,) = recorder.files()
        assert packets_of(receive_all(receiver.rx[0], 500)) == rows(sent[0])
        assert receiver.rx[1].counters().dropped_total == 0
    with PcapFile(file.path) as capture:
        assert [bytes(each) for each in capture] == rows(sent[1])


def test_a_plan_goes_on_while_nobody_reads_its_queue(
    cable: Any, packet: Build, made_frames: Frames
) -> None:
    config = packet(2, bufs=(4096, 300), rx_meta_buffers=8)
    config["memory_regions"].append(
        {"name": "images", "kind": "host", "num_bufs": 16, "buf_size": 8 * 9216}
    )
    rx = config["interfaces"][0]["rx"]
    number = {"bit_offset": 8 * 42, "bit_width": 32, "base": "packet"}
    rx["flows"].append(rx["flows"][1] | {"name": "other", "id": 20, "match": {"udp_dst": 6000}})
    rx["reorder_configs"] = [
        {
            "name": "images",
            "reorder_type": "cpu",
            "flow_ids": [8],
            "memory_region": "images",
            "timeout_us": 0,
            "payload_byte_offset": 46,
            "payload_base": "packet",
            "frame": {"shape": [8, 1396], "dtype": "uint8"},
            "method": {
                "seq_packets_per_batch": {"sequence_number": number, "packets_per_batch": 8}
            },
        }
    ]
    sent = made_frames(800, 1400, PORT + 1)
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        for _ in range(5):
            sender.tx[0].send(made_frames(100, dst_port=6000))
        with receiver.reorder["images"].frames(timeout=TIMEOUT) as frames:
            for first in range(0, 800, 80):
                sender.tx[0].send(sent[first : first + 80])
                for number in range(first, first + 80, 8):
                    frame = next(frames)
                    assert frame.missing == 0
                    assert np.array_equal(np.asarray(frame), sent[number : number + 8, 46:])
        queue = receiver.rx[1]
        assert eventually(lambda: queue.counters().received == 1300)
        counters = queue.counters()
        assert counters.dropped["no_packet_buffer"] == counters.dropped_total == 200


@pytest.mark.parametrize("discard", ["flush", "drop_all"])
def test_what_came_before_a_flush_is_dropped(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, discard: str
) -> None:
    with cable.call(Engine.open, packet(rx={"timeout_us": 20_000})) as engine:
        receiver, sender = engine.ports
        for i in range(4):
            sender.tx[0].send(made_frames(200, dst_port=PORT + i))
        assert sender.tx[0].wait_sent(TIMEOUT)
        if discard == "flush":
            for queue in receiver.rx:
                queue.flush()
        else:
            receiver.drop_all_traffic()
            receiver.allow_all_traffic()
        for i, queue in enumerate(receiver.rx):
            after = made_frames(30, dst_port=PORT + i)
            sender.tx[0].send(after)
            assert packets_of(receive_all(queue, 30)) == rows(after)
            dropped = queue.counters().dropped
            assert dropped["flushed"] + dropped["filtered"] == 200
            assert queue.counters().received == 230


@pytest.mark.parametrize("size", [20, 8000])
def test_what_has_arrived_before_the_end_is_there(
    cable: Any, packet: Build, made_frames: Frames, size: int
) -> None:
    sent = [made_frames(1000, size, PORT + i) for i in range(4)]
    with cable.call(Engine.open, packet(rx={"timeout_us": 20_000})) as engine:
        receiver, sender = engine.ports
        for part in range(0, 1000, 100):
            for frames in sent:
                sender.tx[0].send(frames[part : part + 100])
        assert sender.tx[0].wait_sent(TIMEOUT)
    for i, queue in enumerate(receiver.rx):
        assert packets_of(list(rest_of(queue))) == rows(sent[i])
        counters = queue.counters()
        assert (counters.received, counters.held, counters.dropped_total) == (1000, 0, 0)


@pytest.mark.parametrize("size", [20, 8000])
def test_the_engine_is_closed_while_frames_come(
    cable: Any, packet: Build, made_frames: Frames, watch: Any, size: int
) -> None:
    config = packet()
    receiving = config | {"interfaces": config["interfaces"][:1]}
    sending = config | {"interfaces": config["interfaces"][1:]}
    batch = np.concatenate([made_frames(25, size, PORT + i) for i in range(4)])
    stop = threading.Event()
    with cable.call(Engine.open, sending) as source:
        (sender,) = source.ports

        def send() -> None:
            while not stop.is_set():
                sender.tx[0].send(batch)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            with cable.call(Engine.open, receiving) as engine:
                (receiver,) = engine.ports
                with watch(engine):
                    assert eventually(
                        lambda: min(q.counters().received for q in receiver.rx) > 10_000
                    )
        finally:
            stop.set()
            thread.join()
    for i, queue in enumerate(receiver.rx):
        expected = {*rows(batch[25 * i : 25 * (i + 1)])}
        held = [each for burst in rest_of(queue) for each in packets_of([burst])]
        assert expected.issuperset(held)
        counters = queue.counters()
        assert counters.held == 0
        assert counters.delivered == len(held)
        assert counters.received == counters.delivered + counters.dropped_total
        # When a ring was too small, the flows of the lost frames are unknown.
        steered = counters.received - counters.dropped["kernel"]
        assert receiver.flows[i].counters().packets == steered


def test_flows_come_and_go_while_frames_cross(
    cable: Any, packet: Build, receive_all: Receive
) -> None:
    def frames_for(ports: list[int], stamps: list[int]) -> NDArray[np.uint8]:
        frames = np.zeros((len(ports), 64), np.uint8)
        frames[:, 12:14] = (8, 0)
        frames[:, [14, 17, 22, 23, 39]] = (0x45, 50, 64, 17, 30)
        frames[:, 36:38] = np.array(ports, ">u2")[:, None].view(np.uint8)
        frames[:, 42:46] = np.array(stamps, ">u4")[:, None].view(np.uint8)
        return frames

    def stamped(bursts: list[Burst]) -> Iterator[tuple[int, int]]:
        """The flow id of each packet, and the one that the sender wrote into it."""
        for burst in bursts:
            stamps = [int.from_bytes(view[42:46].tobytes(), "big") for view in burst]
            yield from zip(burst.flow_ids.tolist(), stamps, strict=True)

    ports = [*range(6000, 6100)]
    with cable.call(Engine.open, packet()) as engine:
        far, near = engine.ports
        for _ in range(30):
            flows = far.add_flows(
                [
                    {"name": f"f{port}", "match": {"udp_dst": port}, "queue": port % 4}
                    for port in ports
                ]
            )
            near.tx[0].send(frames_for(ports, [flow.id for flow in flows]))
            for queue in far.rx:
                assert all(flow == stamp for flow, stamp in stamped(receive_all(queue, 25)))
            for flow in flows:
                assert flow.counters().packets == 1
                far.remove_flow(flow)
            near.tx[0].send(frames_for(ports, [0] * 100))
            assert all(flow == stamp for flow, stamp in stamped(receive_all(far.rx[0], 100)))
        counters = [queue.counters() for queue in far.rx]
        assert [each.received for each in counters] == [30 * 125] + 3 * [30 * 25]
        assert sum(each.dropped_total for each in counters) == 0
