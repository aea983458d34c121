"""Raw Ethernet through the kernel: a veth pair in a network namespace."""

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from packet_bytes import packets_of, rows
from waiting import eventually, wait_for_command

from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import (
    Burst,
    DaqiriError,
    Engine,
    InvalidParameterError,
    Link,
    NotReadyError,
    PcapFile,
    RxQueue,
    write_pcap,
)

Config = dict[str, Any]
Build = Callable[..., Config]
Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]

pytestmark = pytest.mark.root
TIMEOUT = 30.0
ETH_P_ALL = 0x0003


@pytest.fixture(params=["af_packet", "af_xdp"])
def packet(request: pytest.FixtureRequest, packet: Build) -> Build:
    """The configuration of the same name, with each receive path."""
    if request.param == "af_xdp":
        request.getfixturevalue("has_af_xdp")

    def build(**keys: Any) -> Config:
        config = packet(**keys)
        config["interfaces"][0]["rx"]["receive_path"] = request.param
        return config

    return build


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """A process that ends with the block."""
    with process:
        try:
            yield
        finally:
            process.kill()


def put_on_the_wire(frames: list[bytes]) -> None:
    """Send frames from ``near`` with a plain socket.

    On one core: a cable of the kernel's keeps the order of each core's frames only.
    """
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("near", 0))
            for frame in frames:
                assert wire.send(frame) == len(frame)
    finally:
        os.sched_setaffinity(0, cores)


def _mac_of(interface: str) -> str:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        return wire.getsockname()[4].hex(":")


@pytest.mark.parametrize("size", [60, 64, 142, 1500, 4096, 9014])
def test_frames_cross_byte_for_byte(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, size: int
) -> None:
    sent = made_frames(2000, size - 42)
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        before = receiver.now()
        for part in np.split(sent, 20):
            assert sender.tx[0].send(part) == 100
            bursts = receive_all(receiver.rx[0], 100)
            assert np.array_equal(np.concatenate([burst.gather() for burst in bursts]), part)
            for burst in bursts:
                assert (burst.flow_ids == 7).all()
                assert (burst.lengths == size).all()
                assert abs(burst.timestamps - before).max() < 3600 * 10**9
        assert sender.tx[0].wait_sent(TIMEOUT)
        counters = receiver.rx[0].counters()
        assert (counters.received, counters.delivered, counters.dropped_total) == (2000, 2000, 0)
        assert counters.received_bytes == sender.tx[0].counters().sent_bytes == 2000 * size


def test_the_mac_address_is_the_interface_s(cable: Any, packet: Build) -> None:
    address = cable.call(_mac_of, "near")
    with cable.call(Engine.open, packet()) as engine:
        assert engine.ports[1].mac_address == address


def test_flows_choose_among_queues(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet()
    rx = config["interfaces"][0]["rx"]
    rx["queues"].append({**rx["queues"][0], "name": "rx1", "id": 1})
    rx["flows"].append(
        {
            "name": "other",
            "id": 8,
            "match": {"udp_dst": 5001},
            "action": {"type": "queue", "id": 1},
        }
    )
    rx["flow_isolation"] = True
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        for _ in range(10):
            for port in (5000, 5001, 5002):
                sender.tx[0].send(made_frames(50, dst_port=port))
        for queue, flow in ((receiver.rx[0], 7), (receiver.rx[1], 8)):
            bursts = receive_all(queue, 500)
            assert all((burst.flow_ids == flow).all() for burst in bursts)
            expected = [row.tobytes() for row in made_frames(50, dst_port=4993 + flow)] * 10
            assert packets_of(bursts) == expected
        by_kernel = rx["receive_path"] == "af_xdp"
        filtered = 0 if by_kernel else 500
        assert eventually(lambda: receiver.rx[0].counters().dropped["filtered"] == filtered)
        assert receiver.rx[1].counters().dropped_total == 0


def test_a_flow_is_spread_over_queues(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet()
    rx = config["interfaces"][0]["rx"]
    rx["queues"] = [{**rx["queues"][0], "name": f"rx{i}", "id": i} for i in range(4)]
    rx["flows"][0]["action"] = {"type": "queue", "ids": [0, 1, 2, 3]}
    sent = np.concatenate([made_frames(20, src_port=port) for port in range(4000, 4064)])
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(sent)
        assert eventually(lambda: sum(q.counters().received for q in receiver.rx) == 1280)
        seen: dict[bytes, int] = {}
        for number, queue in enumerate(receiver.rx):
            count = queue.counters().received
            assert 0 < count < 1280
            for burst in receive_all(queue, count):
                assert (burst.flow_ids == 7).all()
                for view in burst:
                    # Packets of one source port stay together.
                    assert seen.setdefault(view[34:36].tobytes(), number) == number
        assert len(seen) == 64


def test_what_the_consumer_is_too_slow_for_is_counted(
    cable: Any, packet: Build, made_frames: Frames, watch: Any
) -> None:
    sent = made_frames(1000, 8000)
    with cable.call(Engine.open, packet(num_bufs=600)) as engine, watch(engine):
        receiver, sender = engine.ports
        for _ in range(20):
            sender.tx[0].send(sent)
        assert sender.tx[0].wait_sent(TIMEOUT)
        queue = receiver.rx[0]
        numbers: list[int] = []
        end = time.monotonic() + TIMEOUT
        while len(numbers) + queue.counters().dropped_total < 20_000:
            assert time.monotonic() < end, queue.counters()
            if (burst := queue.receive(0.1)) is None:
                continue
            # Waiting packets were not overwritten.
            first = burst.gather()[:, 42:46].copy().view(">u4")[:, 0]
            assert np.array_equal(burst.gather(), sent[first])
            numbers += first.tolist()
        counters = queue.counters()
        assert counters.dropped["kernel"] > 0
        assert counters.received == sender.tx[0].counters().sent == 20_000
        assert counters.delivered == len(numbers) == 20_000 - counters.dropped["kernel"]


def test_what_is_held_stays(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    held_frames = made_frames(640, 8000)
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(held_frames)
        held = receive_all(receiver.rx[0], 640)
        other = made_frames(1000, 4000)
        for _ in range(30):
            sender.tx[0].send(other)
            for burst in receive_all(receiver.rx[0], 1000):
                burst.release()
        assert np.array_equal(np.concatenate([burst.gather() for burst in held]), held_frames)
    assert np.array_equal(np.concatenate([burst.gather() for burst in held]), held_frames)


def test_what_is_held_after_a_recording_stays(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, tmp_path: Path
) -> None:
    sent, other = made_frames(2000, 8000), made_frames(1000, 4000)
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        (queue,) = receiver.rx
        with queue.record(tmp_path, "capture", max_packets=10) as recorder:
            sender.tx[0].send(sent)
            assert recorder.wait(TIMEOUT)
        assert eventually(lambda: queue.counters().received == 2000)
        held = receive_all(queue, queue.counters().held)
        assert held
        for _ in range(30):
            sender.tx[0].send(other)
            for burst in receive_all(queue, 1000):
                burst.release()
        found = packets_of(held)
        assert found == rows(sent)[2000 - len(found) :]


@pytest.mark.parametrize("tags", ["8100 0064", "8100 e065", "88a8 0064 8100 0065"])
def test_vlan_tags_are_in_the_frame(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, tags: str
) -> None:
    tag = bytes.fromhex(tags)
    sent = [
        row[:12].tobytes() + tag + row[12:].tobytes()
        for size in (20, 1400, 8000)
        for row in made_frames(200, size)
    ]
    with cable.call(Engine.open, packet()) as engine:
        cable.call(put_on_the_wire, sent)
        assert packets_of(receive_all(engine.ports[0].rx[0], len(sent))) == sent
        assert engine.ports[0].rx[0].counters().received_bytes == sum(map(len, sent))


def test_a_port_does_not_hear_what_this_host_sends(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet()
    config["interfaces"][1]["rx"] = {"queues": config["interfaces"][0]["rx"]["queues"]}
    config["interfaces"][0]["tx"] = config["interfaces"][1]["tx"]
    with cable.call(Engine.open, config) as engine:
        far, near = engine.ports
        near.tx[0].send(made_frames(100))
        receive_all(far.rx[0], 100)
        answer = made_frames(7)
        far.tx[0].send(answer)
        assert packets_of(receive_all(near.rx[0], 7)) == [row.tobytes() for row in answer]
        assert near.rx[0].counters().received == 7


def test_frames_to_other_addresses_are_received(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    frames = made_frames(10)
    frames[:, :6] = np.frombuffer(bytes.fromhex("02ffffffff01"), np.uint8)
    with cable.call(Engine.open, packet()) as engine:
        engine.ports[1].tx[0].send(frames)
        assert packets_of(receive_all(engine.ports[0].rx[0], 10)) == [f.tobytes() for f in frames]


def test_segments(cable: Any, packet: Build, made_frames: Frames, receive_all: Receive) -> None:
    config = packet(
        rx={"memory_regions": ["heads", "rx_buffers"], "split_boundary": 42},
    )
    config["memory_regions"].append({**config["memory_regions"][0], "name": "heads"})
    sent = made_frames(300, 8000)
    with cable.call(Engine.open, config) as engine:
        engine.ports[1].tx[0].send(sent)
        for burst in receive_all(engine.ports[0].rx[0], 300):
            assert burst.num_segments == 2
            for i in range(len(burst)):
                assert np.array_equal(burst.segment(0, i), sent[i, :42])
                assert np.array_equal(burst.segment(1, i), sent[i, 42:])
            sent = sent[len(burst) :]


def test_packets_that_fit_nowhere(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    config = packet()
    config["memory_regions"][0]["buf_size"] = 1000
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(made_frames(10, 959))
        sender.tx[0].send(made_frames(10, 958))
        sender.tx[0].send(made_frames(10, 9100))
        bursts = receive_all(receiver.rx[0], 10)
        assert all((burst.lengths == 1000).all() for burst in bursts)
        assert eventually(lambda: receiver.rx[0].counters().dropped["truncated"] == 10)
        assert eventually(lambda: sender.tx[0].counters().dropped["send_error"] == 10)
        assert sender.tx[0].counters().sent == 20


def test_datagrams_that_are_sent_together_come_singly(
    networks: Any, packet: Build, udp: Build, receive_all: Receive
) -> None:
    network = networks()
    network.run("ethtool -K lo tx-udp-segmentation off")
    config = packet()
    receiver = config["interfaces"][0]
    receiver["address"] = "lo"
    receiver["rx"]["flows"] = []
    config["interfaces"] = [receiver]
    with network.call(Engine.open, config) as engine, network.call(Engine.open, udp()) as sender:
        sender.ports[1].tx[0].send(np.zeros((64, 1000), np.uint8))
        bursts = receive_all(engine.ports[0].rx[0], 64)
        assert [len(packet) for packet in packets_of(bursts)] == [1042] * 64


def test_the_source_address_is_filled_in(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    with cable.call(Engine.open, packet(tx={"offloads": ["tx_eth_src"]})) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(made_frames(10))
        expected = made_frames(10)
        mac = bytes.fromhex(sender.mac_address.replace(":", ""))
        expected[:, 6:12] = np.frombuffer(mac, np.uint8)
        assert packets_of(receive_all(receiver.rx[0], 10)) == [row.tobytes() for row in expected]


def test_a_link_that_goes_down_and_comes_back(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(100)
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(sent)
        receive_all(receiver.rx[0], 100)
        cable.run("ip link set near down")
        sender.tx[0].send(sent)
        assert eventually(lambda: sender.tx[0].counters().dropped["send_error"] == 100)
        cable.run("ip link set far down")
        cable.up("near", "far")
        sender.tx[0].send(sent)
        bursts = receive_all(receiver.rx[0], 100)
        assert np.array_equal(np.concatenate([burst.gather() for burst in bursts]), sent)
        assert sender.tx[0].wait_sent(TIMEOUT)
        assert receiver.rx[0].counters().received == sender.tx[0].counters().sent == 200


def test_the_state_of_the_link(cable: Any, packet: Build) -> None:
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        link = receiver.link()
        assert (link.state, link.mtu) == ("up", 9000)
        assert link.speed == 10_000  # of any veth
        cable.run("ip link set near mtu 1400")
        assert sender.link().mtu == 1400
        cable.run("ip link set near down")
        assert eventually(lambda: receiver.link().state == sender.link().state == "down")
        cable.up("near")
        assert eventually(lambda: receiver.link().state == sender.link().state == "up")
        cable.run("ip link del near")
        assert receiver.link() == sender.link() == Link("removed", 0, 0)


def test_the_link_as_a_device(cable: Any, packet: Build) -> None:
    daq = make_daq(packet())
    with contextlib.closing(daq):
        cable.call(daq.open)
        told: list[str] = []
        link = daq.receiver.link
        assert link.read()["daq_receiver_link_state"]["value"] == "up"
        link.state.subscribe(lambda value, **_: told.append(value))
        cable.run("ip link set near down")
        assert eventually(lambda: told[-1] == "down")
        assert link.describe()["daq_receiver_link_state"]["dtype"] == "string"
        # Not part of the readings of a port.
        assert not any("link" in key for key in daq.receiver.describe())


def test_a_port_without_an_interface_has_no_link(loopback: Build) -> None:
    with Engine.open(loopback()) as engine:
        assert engine.ports[0].link() == Link("none", 0, 0)


@pytest.mark.parametrize("unplugged", ["far", "near"])
def test_packets_for_a_cable_that_is_not_plugged_in(
    cable: Any, packet: Build, made_frames: Frames, unplugged: str
) -> None:
    cable.run(f"ip link set {unplugged} down")
    with cable.call(Engine.open, packet()) as engine:
        sender = engine.ports[1]
        sender.tx[0].send(made_frames(100))
        assert sender.tx[0].wait_sent(TIMEOUT)
        assert sender.tx[0].counters().dropped["send_error"] == 100


@pytest.mark.parametrize("packet", ["af_packet"], indirect=True)
def test_a_renamed_interface_s_cable_is_unplugged(
    cable: Any, packet: Build, made_frames: Frames
) -> None:
    with cable.call(Engine.open, packet()) as engine:
        sender = engine.ports[1]
        for command in ("near down", "near name renamed", "renamed up", "far down"):
            cable.run(f"ip link set {command}")
        sender.tx[0].send(made_frames(100))
        assert sender.tx[0].wait_sent(TIMEOUT)
        assert sender.tx[0].counters().dropped["send_error"] == 100


@pytest.mark.parametrize("name", ["abcdefghijklmno", "eth0.100", "канал0", "a'b"])
def test_names_of_interfaces(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, name: str
) -> None:
    for command in ("far down", f"far name {name}", f"{name} up"):
        cable.run(f"ip link set {command}")
    config = packet()
    config["interfaces"][0]["address"] = name
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(made_frames(10))
        receive_all(receiver.rx[0], 10)


@pytest.mark.parametrize("count", [10, 40_000])
def test_what_has_arrived_before_the_end_is_there(
    cable: Any, packet: Build, made_frames: Frames, count: int
) -> None:
    config = packet(num_bufs=2000, rx={"timeout_us": 20_000})
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(made_frames(count, 20))
        assert sender.tx[0].wait_sent(TIMEOUT)
        queue = receiver.rx[0]
    held = 0
    with pytest.raises(NotReadyError, match="is closed and empty"):
        while True:
            burst = queue.receive()
            assert burst is not None
            held += len(burst)
    counters = queue.counters()
    assert counters.received == count == held + counters.dropped_total
    # Packets beyond the buffers are counted, and also those that do not fit into the ring.
    assert held == 10 if count == 10 else 2000 <= held < count


@pytest.mark.parametrize("discard", ["flush", "drop_all"])
def test_what_came_before_a_flush_is_dropped(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, discard: str
) -> None:
    with cable.call(Engine.open, packet(rx={"timeout_us": 20_000})) as engine:
        receiver, sender = engine.ports
        queue = receiver.rx[0]
        sender.tx[0].send(made_frames(200))
        assert sender.tx[0].wait_sent(TIMEOUT)
        if discard == "flush":
            queue.flush()
        else:
            receiver.drop_all_traffic()
            receiver.allow_all_traffic()
        after = made_frames(30)
        sender.tx[0].send(after)
        assert packets_of(receive_all(queue, 30)) == [row.tobytes() for row in after]
        dropped = queue.counters().dropped
        assert dropped["flushed"] + dropped["filtered"] == 200


def test_packets_that_nobody_reads_do_not_stop_a_plan(
    cable: Any, packet: Build, made_frames: Frames
) -> None:
    config = with_plan(packet(rx_meta_buffers=8), "packet")
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        for _ in range(20):
            sender.tx[0].send(made_frames(100, dst_port=5001))
        with receiver.reorder["images"].frames(timeout=TIMEOUT) as frames:
            sender.tx[0].send(made_frames(800, 8000)[:80])
            assert [next(frames).missing for _ in range(10)] == [0] * 10
        assert eventually(lambda: receiver.rx[0].counters().received == 2080)


def test_a_child_that_ends_leaves_the_ring_alone(
    cable: Any, packet: Build, made_frames: Frames, tmp_path: Path
) -> None:
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        with receiver.rx[0].record(tmp_path, "capture", max_packets=1000) as recorder:
            sender.tx[0].send(made_frames(500, 4000))
            child = os.fork()
            if child == 0:
                del recorder, receiver, sender, engine
                gc.collect()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            sender.tx[0].send(made_frames(500, 4000))
            assert recorder.wait(TIMEOUT)
        assert receiver.rx[0].counters().dropped_total == 0


def test_an_interface_that_is_removed(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(100, 8000)
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(sent)
        held = receive_all(receiver.rx[0], 100)
        cable.run("ip link del near")
        sender.tx[0].send(sent)
        assert eventually(lambda: sender.tx[0].counters().dropped["send_error"] == 100)
        assert receiver.rx[0].receive(0.1) is None
    assert np.array_equal(np.concatenate([burst.gather() for burst in held]), sent)


def test_what_this_host_does_not_have(cable: Any, packet: Build) -> None:
    config = packet()
    config["interfaces"][0]["address"] = "eth7"
    with pytest.raises(DaqiriError, match=r"'receiver': address: found 'eth7'.*lo, .*near"):
        cable.call(Engine.open, config)
    config["interfaces"][0]["address"] = "tun7"
    cable.run("ip tuntap add tun7 mode tun")
    with pytest.raises(DaqiriError, match=r"'tun7' has no Ethernet frames \(link type 65534\)"):
        cable.call(Engine.open, config)


@pytest.mark.parametrize("packet", ["af_packet"], indirect=True)
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # As in tcpdump: the kernel has removed the tag.
        ("udp dst port 5000", {"plain", "tagged"}),
        ("udp dst port 5000 and not vlan", {"plain"}),
        ("vlan 100 and udp dst port 5000", {"tagged"}),
        ("udp dst port 5001 or vlan", {"other", "tagged"}),
    ],
)
def test_a_filter_of_tcpdump_s_language(
    cable: Any, packet: Build, made_frames: Frames, expression: str, expected: set[str]
) -> None:
    (plain,), (other,) = made_frames(1), made_frames(1, dst_port=5001)
    tag = np.frombuffer(bytes.fromhex("81000064"), np.uint8)
    sent = {
        "plain": plain.tobytes(),
        "other": other.tobytes(),
        "tagged": np.concatenate([plain[:12], tag, plain[12:]]).tobytes(),
    }
    config = packet()
    config["interfaces"][0]["rx"]["filter"] = expression
    with cable.call(Engine.open, config) as engine:
        queue = engine.ports[0].rx[0]
        cable.call(put_on_the_wire, [*sent.values(), *sent.values()])
        assert eventually(lambda: queue.counters().received == 2 * len(expected))
        bursts = []
        while (burst := queue.receive(1.0)) is not None:
            bursts.append(burst)
        assert packets_of(bursts) == 2 * [sent[name] for name in sent if name in expected]
        # Packets removed by the filter are not counted.
        assert queue.counters().received == 2 * len(expected)


@pytest.mark.parametrize("packet", ["af_packet"], indirect=True)
@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("udp prt 5000", r"'udp prt 5000': libpcap reports: .*syntax"),
        ("ether[0xffffffff] = 0", r"the kernel does not accept its \d+ instructions: Invalid"),
        # libpcap would take minutes.
        (" or ".join(f"udp port {i}" for i in range(1, 3000)), r"\d+ bytes; accepts 8192 at most"),
    ],
)
def test_a_filter_that_is_none(cable: Any, packet: Build, expression: str, text: str) -> None:
    config = packet()
    config["interfaces"][0]["rx"]["filter"] = expression
    with pytest.raises(InvalidParameterError, match=rf"rx.filter: .*{text}"):
        cable.call(Engine.open, config)


@pytest.mark.parametrize("packet", ["af_packet"], indirect=True)
def test_a_filter_for_an_interface_that_is_down(cable: Any, packet: Build) -> None:
    cable.run("ip link set far down")
    config = packet()
    config["interfaces"][0]["rx"]["filter"] = "udp"
    with pytest.raises(NotReadyError, match="'far' is down.*`ip link set far up`"):
        cable.call(Engine.open, config)


def test_a_filter_where_there_is_none(loopback: Build) -> None:
    config = loopback()
    config["interfaces"][0]["rx"]["filter"] = "udp"
    with pytest.raises(DaqiriError, match="filter: udp, which engine 'loopback' does not have"):
        Engine.open(config)


def test_without_the_privilege(cable: Any, packet: Build, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(packet()))
    script = """
import json, sys
from daqiri_ophyd.engine import Engine, NotSupportedError
try:
    Engine.open(json.load(open(sys.argv[1])))
except NotSupportedError as error:
    print(error)
"""
    command = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", sys.executable]
    said = cable.call(
        partial(
            subprocess.run,
            [*command, "-c", script, str(tmp_path / "config.json")],
            capture_output=True,
            text=True,
            check=True,
            timeout=120.0,
        )
    ).stdout
    assert "cannot open a packet socket on 'far': Operation not permitted" in said
    assert "setcap cap_net_raw+ep" in said


def with_plan(config: Config, base: str) -> Config:
    """Add a plan for frames of 8 packets with payloads of 8000 bytes, numbered from 0."""
    config["memory_regions"].append(
        {"name": "images", "kind": "host", "num_bufs": 16, "buf_size": 8 * 9216}
    )
    at = 42 if base == "packet" else 0
    number = {"bit_offset": 8 * at, "bit_width": 32, "base": base}
    config["interfaces"][0]["rx"]["reorder_configs"] = [
        {
            "name": "images",
            "reorder_type": "cpu",
            "flow_ids": [7],
            "memory_region": "images",
            # A sender may be stopped in the middle of a frame.
            "timeout_us": 0,
            "payload_byte_offset": at + 4,
            "payload_base": base,
            "frame": {"shape": [8, 7996], "dtype": "uint8"},
            "method": {
                "seq_packets_per_batch": {"sequence_number": number, "packets_per_batch": 8}
            },
        }
    ]
    return config


@pytest.mark.parametrize("base", ["packet", "udp_payload"])
def test_frames_of_a_reorder_plan(
    cable: Any, packet: Build, made_frames: Frames, base: str
) -> None:
    config = with_plan(packet(), base)
    sent = made_frames(800, 8000)
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        shuffled = np.random.default_rng(1).permuted(np.arange(800).reshape(100, 8), axis=1)
        with receiver.reorder["images"].frames(timeout=TIMEOUT) as frames:
            for batch in shuffled.reshape(10, 80):
                sender.tx[0].send(sent[batch])
                for _ in range(10):
                    frame = next(frames)
                    first = 8 * frame.batch
                    assert frame.missing == 0
                    assert np.array_equal(np.asarray(frame), sent[first : first + 8, 46:])
        counters = receiver.reorder["images"].counters()
        assert (counters.complete, counters.late, counters.duplicate) == (100, 0, 0)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "chosen",
    [
        ["--udp-port", "5000", "--host", "192.0.2.1"],
        ["--filter", "udp dst port 5000 and host 192.0.2.1"],
    ],
)
def test_a_capture_and_a_replay_from_the_command_line(
    cable: Any, made_frames: Frames, tmp_path: Path, chosen: list[str]
) -> None:
    sent = made_frames(300, 1000)
    file = tmp_path / "sent.pcap"
    write_pcap(file, sent, link_type=1, timestamps=np.arange(300) * 1_000_000)
    command = [sys.executable, "-m", "daqiri_ophyd"]
    start = partial(subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limits = [*chosen, "--packets", "300"]
    capturing = cable.call(
        start, [*command, "capture", "far", *limits, "-o", str(tmp_path / "data"), "--json"]
    )
    with ended(capturing):
        # The first time, a catalog is created.
        recording = partial((tmp_path / "data/captures").rglob, ".*.part")
        wait_for_command(capturing, lambda: any(recording()))
        cable.call(put_on_the_wire, [made_frames(1, dst_port=5001).tobytes()])
        sending = cable.call(start, [*command, "send", "near", str(file)])
        with ended(sending):
            _, problem = sending.communicate()
            assert sending.returncode == 0, problem
        text, problem = capturing.communicate()
        assert capturing.returncode == 0, problem
    result = json.loads(text)
    assert (result["received"], result["dropped"]) == (300, 0)
    with PcapFile(result["files"][0]) as capture:
        assert [bytes(packet) for packet in capture] == [row.tobytes() for row in sent]


def test_a_file_that_others_read(
    cable: Any, packet: Build, made_frames: Frames, tmp_path: Path
) -> None:
    sent = made_frames(500, 1000)
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        with receiver.rx[0].record(tmp_path, "capture", max_packets=500) as recorder:
            sender.tx[0].send(sent)
            assert recorder.wait(TIMEOUT)
        (file,) = recorder.files()
    with PcapFile(file.path) as capture:
        assert [bytes(packet) for packet in capture] == [row.tobytes() for row in sent]
    fields = ["-T", "fields", "-e", "udp.dstport", "-e", "udp.checksum.status"]
    seen = subprocess.run(
        ["tshark", "-r", file.path, "-o", "udp.check_checksum:TRUE", *fields],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    ).stdout.split("\n")
    assert seen == ["5000\t1"] * 500 + [""]


def test_thousands_of_flows_come_and_go_while_frames_cross(cable: Any, packet: Build) -> None:
    config = packet()
    receiver = config["interfaces"][0]["rx"]
    receiver["queues"].append(receiver["queues"][0] | {"name": "second", "id": 1})

    def frames_for(ports: list[int], stamps: list[int]) -> NDArray[np.uint8]:
        frames = np.zeros((len(ports), 64), np.uint8)
        frames[:, 12:14] = (8, 0)
        frames[:, [14, 17, 22, 23, 39]] = (0x45, 50, 64, 17, 30)
        frames[:, 36:38] = np.array(ports, ">u2")[:, None].view(np.uint8)
        frames[:, 42:46] = np.array(stamps, ">u4")[:, None].view(np.uint8)
        return frames

    def take(queue: RxQueue, count: int) -> list[tuple[int, int]]:
        """The flow id of each packet, and the one that the sender wrote into it."""
        found: list[tuple[int, int]] = []
        while len(found) < count:
            burst = queue.receive(timeout=TIMEOUT)
            assert burst is not None
            stamps = [int.from_bytes(view[42:46].tobytes(), "big") for view in burst]
            found += zip(burst.flow_ids.tolist(), stamps, strict=True)
        return found

    ports = [*range(6000, 6100)]
    with cable.call(Engine.open, config) as engine:
        far, near = engine.ports
        seen: set[int] = set()
        for _ in range(50):
            flows = far.add_flows(
                [
                    {"name": f"f{port}", "match": {"udp_dst": port}, "queue": port % 2}
                    for port in ports
                ]
            )
            ids = [flow.id for flow in flows]
            assert seen.isdisjoint(ids)
            seen.update(ids)
            assert near.tx[0].send(frames_for([*ports, 5000], [*ids, 7])) == 101
            for queue, count in zip(far.rx, (51, 50), strict=True):
                assert all(flow == stamp for flow, stamp in take(queue, count))
            for flow in flows:
                far.remove_flow(flow)
            assert near.tx[0].send(frames_for([*ports, 5000], [*[0] * 100, 7])) == 101
            assert all(flow == stamp for flow, stamp in take(far.rx[0], 101))
        counters = [queue.counters() for queue in far.rx]
        assert [each.received for each in counters] == [50 * (51 + 101), 50 * 50]
        assert sum(each.dropped_total for each in counters) == 0
