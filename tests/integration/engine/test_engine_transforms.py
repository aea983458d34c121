"""VLAN tags and tunnels: frames are made with scapy and read with scapy and tshark."""

import contextlib
import csv
import io
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live_captures import captured_live
from packet_bytes import put_on_the_wire
from scapy.layers.inet import IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from daqiri_ophyd.engine import Burst, Engine, NotSupportedError, PcapFile, RxQueue

Config = dict[str, Any]
Build = Callable[..., Config]
Receive = Callable[[RxQueue, int], list[Burst]]

OUTER = {
    "outer_eth_src": "02:00:00:00:00:11",
    "outer_eth_dst": "02:00:00:00:00:12",
    "outer_ipv4_src": "198.51.100.1",
    "outer_ipv4_dst": "198.51.100.2",
}
KEYS: dict[str, Config] = {
    "vxlan": {"type": "vxlan", "vni": 4711},
    "gre": {"type": "gre", "gre_protocol": 0x6558},
    "gre of ip": {"type": "gre"},
    "nvgre": {"type": "nvgre", "tni": 4712, "flow_id": 5},
}
TUNNELS = list(KEYS)
POP = {"type": "vlan_pop"}
PUSH = {"type": "vlan_push", "vlan_id": 42, "pcp": 3}
UNTIL = 20.0


def decap(tunnel: str, **keys: Any) -> Config:
    return {"type": "tunnel_decap", "tunnel": {**KEYS[tunnel], **keys}}


def encap(tunnel: str, **keys: Any) -> Config:
    return {"type": "tunnel_encap", "tunnel": {**OUTER, **KEYS[tunnel], **keys}}


def udp_frame(port: int = 5000, payload: bytes = b"0123456789", **ip: Any) -> Packet:
    ethernet = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    addresses = IP(src="192.0.2.1", dst="192.0.2.2", **ip)
    return ethernet / addresses / UDP(sport=4000, dport=port) / Raw(payload)


def tunnelled(tunnel: str, inner: Packet, **ip: Any) -> Packet:
    ethernet = Ether(dst=OUTER["outer_eth_dst"], src=OUTER["outer_eth_src"])
    outer = ethernet / IP(src=OUTER["outer_ipv4_src"], dst=OUTER["outer_ipv4_dst"], **ip)
    match tunnel:
        case "vxlan":
            return outer / UDP(sport=50000, dport=4789, chksum=0) / VXLAN(vni=4711) / inner
        case "gre":
            return outer / GRE(proto=0x6558) / inner
        case "nvgre":
            return outer / GRE(key_present=1, proto=0x6558, key=4712 << 8 | 5) / inner
    return outer / GRE(proto=0x0800) / inner[IP]


def after_decap(tunnel: str, inner: Packet) -> bytes:
    """Return the frame that is delivered; a packet without Ethernet header gets the outer one's."""
    if tunnel != "gre of ip":
        return bytes(inner)
    return bytes(Ether(dst=OUTER["outer_eth_dst"], src=OUTER["outer_eth_src"]) / inner[IP])


def tagged(frame: Packet, *tags: Packet) -> Packet:
    packet = Ether(dst=frame.dst, src=frame.src)
    for tag in tags:
        packet /= tag
    return packet / frame.payload


class Wire:
    """Two queues of an engine, of which transforms lead to the second, and a way to send to it."""

    def __init__(self, engine: Engine, send: Callable[[list[bytes]], None]) -> None:
        self.rest, self.queue = engine.ports[0].rx
        self.send = send


@pytest.fixture(params=["loopback", "dpdk", pytest.param("packet", marks=pytest.mark.root)])
def wire(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Open an engine with receive flows; keyword arguments are keys of the queues."""
    build = request.getfixturevalue(request.param)
    cable: Any = request.getfixturevalue("cable") if request.param == "packet" else None

    @contextlib.contextmanager
    def opened(flows: list[Config], **keys: Any) -> Iterator[Wire]:
        config = build(rx=keys)
        if "memory_regions" in keys:
            heads = {**config["memory_regions"][0], "name": "heads"}
            config["memory_regions"].append(heads)
        config["memory_regions"][0]["buf_size"] = 9216
        config["memory_regions"][1]["buf_size"] = 9216
        rx = config["interfaces"][0]["rx"]
        rx["queues"].append({**rx["queues"][0], "name": "rx1", "id": 1})
        rx["flows"] = flows
        if cable is None:
            with Engine.open(config) as engine:
                yield Wire(engine, lambda frames: _send(engine, frames))
            return
        with cable.call(Engine.open, config) as engine:
            yield Wire(engine, lambda frames: cable.call(put_on_the_wire, "near", frames))

    def _send(engine: Engine, frames: list[bytes]) -> None:
        engine.ports[0].tx[0].send(frames)

    return opened


def packets_of(bursts: list[Burst]) -> list[bytes]:
    return [
        b"".join(burst.segment(s, i).tobytes() for s in range(burst.num_segments))
        for burst in bursts
        for i in range(len(burst))
    ]


def flow(*actions: Config, number: int = 7, queue: int = 1, **match: Any) -> Config:
    to = {"type": "queue", "id": queue}
    return {"name": f"flow{number}", "id": number, "match": match, "actions": [*actions, to]}


@pytest.mark.parametrize(
    "actions",
    [[POP] * 5, [POP] * 257, [decap("vxlan"), *[POP] * 5]],
    ids=["5", "257", "in a tunnel"],
)
def test_more_tags_than_are_looked_at(loopback: Build, actions: list[Config]) -> None:
    config = loopback()
    text = "more than 4 vlan_pop in a row, which engine 'loopback' does not have"
    with Engine.open(config) as engine, pytest.raises(NotSupportedError, match=text):
        engine.ports[0].add_flow({"name": "added", "actions": flow(*actions, queue=0)["actions"]})
    config["interfaces"][0]["rx"]["flows"] = [flow(*actions, queue=0)]
    with pytest.raises(NotSupportedError, match=text):
        Engine.open(config)
    config["interfaces"][0]["rx"]["flows"] = [flow(*[POP] * 4, decap("vxlan"), *[POP] * 4, queue=0)]
    Engine.open(config).close()


SPLIT = {"memory_regions": ["heads", "rx_buffers"], "split_boundary": 42}


@pytest.mark.parametrize("keys", [{}, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("tunnel", TUNNELS)
def test_packets_come_out_of_their_tunnel(
    wire: Any, receive_all: Receive, tunnel: str, keys: Config
) -> None:
    sizes = [0, 1, 18, 19, 1000, 8000]
    inner = [udp_frame(payload=bytes([size % 251]) * size) for size in sizes] * 20
    with wire([flow(decap(tunnel), udp_dst=5000)], **keys) as ends:
        ends.send([bytes(tunnelled(tunnel, frame)) for frame in inner])
        bursts = receive_all(ends.queue, len(inner))
        assert packets_of(bursts) == [after_decap(tunnel, frame) for frame in inner]
        assert all((burst.flow_ids == 7).all() for burst in bursts)
        assert ends.rest.counters().received == 0
        assert ends.queue.counters().received_bytes == sum(
            len(after_decap(tunnel, frame)) for frame in inner
        )


def test_outer_options_and_padding(wire: Any, receive_all: Receive) -> None:
    inner = udp_frame(options=[IPOption_Router_Alert()])
    options = [IPOption_Router_Alert()] * 10
    frames = [bytes(tunnelled("vxlan", inner, options=options)), bytes(tunnelled("vxlan", inner))]
    frames[1] += bytes(30)
    with wire([flow(decap("vxlan"))]) as ends:
        ends.send(frames)
        assert packets_of(receive_all(ends.queue, 2)) == [bytes(inner)] * 2


@pytest.mark.parametrize("tunnel", ["vxlan", "gre", "nvgre"])
def test_vlan_in_vlan_around_and_in_a_tunnel(wire: Any, receive_all: Receive, tunnel: str) -> None:
    inner = udp_frame()
    frame = tunnelled(tunnel, tagged(inner, Dot1AD(vlan=1), Dot1Q(vlan=2)))
    frame = tagged(frame, Dot1AD(vlan=3), Dot1Q(vlan=4))
    with wire([flow(POP, POP, decap(tunnel), POP, POP)]) as ends:
        ends.send([bytes(frame)] * 3)
        assert packets_of(receive_all(ends.queue, 3)) == [bytes(inner)] * 3


def test_flows_choose_by_the_number_of_tags(wire: Any, receive_all: Receive) -> None:
    inner = udp_frame()
    tags = [Dot1AD(vlan=1), Dot1Q(vlan=2), Dot1Q(vlan=3)]
    flows = [flow(*[POP] * count, number=10 + count, udp_dst=5000) for count in range(3)]
    with wire(flows) as ends:
        ends.send([bytes(tagged(inner, *tags[:count])) for count in range(4)])
        bursts = receive_all(ends.queue, 3)
        assert packets_of(bursts) == [bytes(inner)] * 3
        assert [int(number) for burst in bursts for number in burst.flow_ids] == [10, 11, 12]
        # More tags than any flow removes: unchanged.
        assert packets_of(receive_all(ends.rest, 1)) == [bytes(tagged(inner, *tags))]


@pytest.mark.parametrize("tunnel", TUNNELS)
def test_packets_of_no_flow_stay_in_their_tunnel(
    wire: Any, receive_all: Receive, tunnel: str
) -> None:
    ethernet = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    other = [
        tunnelled(tunnel, udp_frame(5001)),
        tunnelled(tunnel, ethernet / IP(src="192.0.2.1", dst="192.0.2.2") / TCP(dport=5000)),
        tunnelled(tunnel, udp_frame(frag=100)),
        tunnelled(tunnel, udp_frame(), frag=100),
        udp_frame(),
        tagged(tunnelled(tunnel, udp_frame()), Dot1Q(vlan=1)),
    ]
    if tunnel != "gre of ip":
        other.append(tunnelled(tunnel, ethernet / ARP()))
        other.append(tunnelled(tunnel, ethernet / IPv6() / UDP(dport=5001)))
        other.append(tunnelled(tunnel, tagged(udp_frame(), Dot1Q(vlan=1))))
    with wire([flow(decap(tunnel), udp_dst=5000)]) as ends:
        ends.send([bytes(frame) for frame in other])
        bursts = receive_all(ends.rest, len(other))
        assert packets_of(bursts) == [bytes(frame) for frame in other]
        assert all((burst.flow_ids == 0).all() for burst in bursts)
        assert ends.queue.counters().received == 0


def broken(tunnel: str) -> dict[str, bytes]:
    """Frames of a tunnel that cannot be decapsulated."""
    inner = udp_frame()
    whole = bytes(tunnelled(tunnel, inner))
    frames = {
        "fragment": bytes(tunnelled(tunnel, inner, flags="MF")),
        "IPv4 length beyond the frame": bytes(tunnelled(tunnel, inner, len=len(whole) - 13)),
        "cut": whole[:-1],
    }
    if tunnel != "gre of ip":
        frames["no room for Ethernet"] = bytes(
            tunnelled(tunnel, inner, len=len(whole) - len(inner) - 1)
        )
    if tunnel == "vxlan":
        for name, length in {"UDP length": len(whole), "short UDP length": 29, "none": 0}.items():
            frame = tunnelled(tunnel, inner)
            frame[UDP].len = length
            frames[name] = bytes(frame)
    return frames


@pytest.mark.parametrize("tunnel", TUNNELS)
def test_what_cannot_be_taken_out_is_dropped(wire: Any, receive_all: Receive, tunnel: str) -> None:
    frames = list(broken(tunnel).values())
    good = udp_frame()
    with wire([flow(decap(tunnel))]) as ends:
        for frame in frames:
            ends.send([frame, bytes(tunnelled(tunnel, good))])
        expected = [after_decap(tunnel, good)] * len(frames)
        assert packets_of(receive_all(ends.queue, len(frames))) == expected
        counters = ends.queue.counters()
        assert counters.dropped["malformed"] == counters.dropped_total == len(frames)
        assert counters.received == 2 * len(frames)
        assert ends.rest.counters().received == 0


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_frames_do_no_harm(loopback: Build, data: st.DataObject) -> None:
    """A damaged frame is delivered or dropped, and the next one is handled correctly."""
    config = loopback()
    rx = config["interfaces"][0]["rx"]
    rx["queues"].append({**rx["queues"][0], "name": "rx1", "id": 1})
    rx["flows"] = [
        flow(decap(tunnel, **OUTER), number=number, udp_dst=5000)
        for number, tunnel in enumerate(TUNNELS, 1)
    ] + [flow(POP, number=9)]
    seed = data.draw(st.integers(0, 2**32))
    changes = random.Random(seed)
    frames: list[bytes] = []
    for _ in range(200):
        tunnel = changes.choice(TUNNELS)
        frame = bytearray(bytes(tunnelled(tunnel, udp_frame())))
        for _ in range(changes.randrange(4)):
            frame[changes.randrange(len(frame))] = changes.randrange(256)
        frames.append(bytes(frame[: changes.randrange(1, len(frame) + 1)]))
    good = [after_decap(tunnel, udp_frame(payload=b"good")) for tunnel in TUNNELS]
    frames += [bytes(tunnelled(tunnel, udp_frame(payload=b"good"))) for tunnel in TUNNELS]
    with Engine.open(config) as engine:
        rest, queue = engine.ports[0].rx
        engine.ports[0].tx[0].send(frames)
        seen: list[bytes] = []
        end = time.monotonic() + UNTIL
        while (
            rest.counters().received + queue.counters().received < len(frames)
            or queue.counters().held > 0
        ):
            assert time.monotonic() < end
            for each in (rest, queue):
                while (burst := each.receive(0)) is not None:
                    seen += packets_of([burst]) if each is queue else []
        # Each packet matched its flow, without a tunnel or a tag.
        for packet in seen:
            found = Ether(packet)
            assert UDP in found and VXLAN not in found and Dot1Q not in found
        assert seen[-len(good) :] == good


# --- Transmit


def push_frames(config: Config, *actions: Config, **match: Any) -> Config:
    sender = config["interfaces"][-1]
    sender["tx"]["flows"] = [{"name": "out", "id": 9, "match": match, "actions": [*actions]}]
    return config


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("tunnel", TUNNELS)
def test_scapy_reads_what_is_sent(
    loopback: Build, receive_all: Receive, tunnel: str, segments: int
) -> None:
    config = push_frames(loopback(), encap(tunnel), PUSH, udp_dst=5000)
    config["interfaces"][0]["rx"]["flows"] = []
    for region in config["memory_regions"]:
        region["buf_size"] = 9216
    if segments == 2:
        heads = {**config["memory_regions"][1], "name": "heads", "buf_size": 13}
        config["memory_regions"].append(heads)
        config["interfaces"][0]["tx"]["queues"][0]["memory_regions"] = ["heads", "tx_buffers"]
    inner = [udp_frame(payload=bytes(size)) for size in (0, 1, 1000, 8000)]
    with Engine.open(config) as engine:
        engine.ports[0].tx[0].send([bytes(frame) for frame in inner])
        for sent, received in zip(
            inner, packets_of(receive_all(engine.ports[0].rx[0], len(inner))), strict=True
        ):
            frame = Ether(received)
            assert (frame.dst, frame.src) == (OUTER["outer_eth_dst"], OUTER["outer_eth_src"])
            assert (frame[Dot1Q].vlan, frame[Dot1Q].prio) == (42, 3)
            ip = frame[IP]
            assert (ip.src, ip.dst, ip.ttl) == ("198.51.100.1", "198.51.100.2", 64)
            assert ip.len == len(received) - 18
            checksum = ip.chksum
            del ip.chksum
            assert Ether(bytes(frame))[IP].chksum == checksum
            if tunnel == "vxlan":
                assert (frame[UDP].dport, frame[VXLAN].vni) == (4789, 4711)
                assert 49152 <= frame[UDP].sport <= 65535
                assert frame[UDP].len == ip.len - 20
                assert bytes(frame[VXLAN].payload) == bytes(sent)
            elif tunnel == "gre of ip":
                assert bytes(frame[GRE].payload) == bytes(sent[IP])
            else:
                assert bytes(frame[GRE].payload) == bytes(sent)
                assert frame[GRE].key == (4712 << 8 | 5 if tunnel == "nvgre" else None)


FIELDS = (
    "frame.len eth.src vlan.id ip.src ip.dst ip.len ip.checksum.status udp.srcport udp.dstport "
    "udp.length udp.checksum.status vxlan.vni gre.proto gre.key _ws.malformed _ws.expert.message"
).split()


def read_by_tshark(file: Path) -> list[dict[str, list[str]]]:
    """Return fields of each packet; those of several layers outermost first."""
    options = [f"-o{protocol}.check_checksum:TRUE" for protocol in ("ip", "udp")]
    wanted = [option for field in FIELDS for option in ("-e", field)]
    done = subprocess.run(
        ["tshark", "-n", "-r", file, *options, "-Tfields", "-Eseparator=;", *wanted],
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        {name: value.split(",") if value else [] for name, value in zip(FIELDS, row, strict=True)}
        for row in csv.reader(io.StringIO(done.stdout), delimiter=";")
    ]


@pytest.mark.root
@pytest.mark.parametrize("tags", [0, 1, 2])
@pytest.mark.parametrize("tunnel", [None, *TUNNELS])
def test_tshark_agrees_with_what_is_sent(
    cable: Any,
    packet: Build,
    made_frames: Any,
    tmp_path: Path,
    tunnel: str | None,
    tags: int,
) -> None:
    file = tmp_path / "seen.pcap"
    # The last that is pushed is the outermost.
    pushed = [{**PUSH, "vlan_id": 42 + number} for number in range(tags)]
    actions = [*([encap(tunnel)] if tunnel else []), *pushed]
    config = push_frames(packet(), *actions) if actions else packet()
    sizes = [18, 500, 1400]
    with cable.call(Engine.open, config) as engine, captured_live(cable, "far", 3, file):
        for size in sizes:
            engine.ports[1].tx[0].send(made_frames(1, size, dst_port=54321))
    seen = read_by_tshark(file)
    assert len(seen) == len(sizes)
    for size, fields in zip(sizes, seen, strict=True):
        assert fields["_ws.malformed"] == []
        assert fields["_ws.expert.message"] == []
        assert fields["vlan.id"] == ["43", "42"][2 - tags :]
        ip = size + 28
        if tunnel is None:
            assert fields["ip.len"] == [str(ip)]
            continue
        assert set(fields["ip.checksum.status"]) == {"1"}  # good
        # Correct, or absent, as around VXLAN.
        assert set(fields["udp.checksum.status"]) <= {"1", "3"}
        assert fields["ip.src"] == ["198.51.100.1", "192.0.2.1"]
        assert fields["ip.dst"] == ["198.51.100.2", "192.0.2.2"]
        assert fields["eth.src"][0] == OUTER["outer_eth_src"]
        added = {"vxlan": 50, "gre": 38, "nvgre": 42, "gre of ip": 24}[tunnel]
        assert fields["ip.len"] == [str(ip + added), str(ip)]
        assert fields["frame.len"] == [str(14 + ip + added + 4 * tags)]
        if tunnel == "vxlan":
            assert fields["vxlan.vni"] == ["4711"]
            assert fields["udp.dstport"] == ["4789", "54321"]
            assert fields["udp.length"] == [str(ip + added - 20), str(size + 8)]
        else:
            protocol = "0x0800" if tunnel == "gre of ip" else "0x6558"
            assert [value.lower() for value in fields["gre.proto"]] == [protocol]


@pytest.mark.root
@pytest.mark.parametrize("tunnel", TUNNELS)
def test_a_tunnel_over_a_cable(
    cable: Any, packet: Build, made_frames: Any, receive_all: Receive, tunnel: str
) -> None:
    # Without an Ethernet header in the tunnel, a tag cannot be added.
    bare = tunnel == "gre of ip"
    config = push_frames(packet(), *([encap(tunnel), PUSH] if bare else [PUSH, encap(tunnel)]))
    actions = [POP, decap(tunnel)] if bare else [decap(tunnel), POP]
    rx = config["interfaces"][0]["rx"]
    rx["flows"] = [flow(*actions, queue=0)]
    sent = made_frames(2000, 1000)
    expected = [row.tobytes() for row in sent]
    if bare:
        addresses = bytes(Ether(dst=OUTER["outer_eth_dst"], src=OUTER["outer_eth_src"]))[:12]
        expected = [addresses + row[12:] for row in expected]
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        for first in range(0, 2000, 100):
            sender.tx[0].send(sent[first : first + 100])
            bursts = receive_all(receiver.rx[0], 100)
            assert packets_of(bursts) == expected[first : first + 100]
            assert all((burst.flow_ids == 7).all() for burst in bursts)
        assert sender.tx[0].wait_sent(20)
        counters = sender.tx[0].counters()
        assert counters.sent == 2000
        added = {"vxlan": 50, "gre": 38, "nvgre": 42, "gre of ip": 24}[tunnel]
        assert counters.sent_bytes == sent.nbytes + 2000 * (added + 4)


@pytest.mark.root
def test_frames_that_are_too_long_with_their_tunnel(
    cable: Any, packet: Build, made_frames: Any, receive_all: Receive
) -> None:
    config = push_frames(packet(), encap("vxlan"))
    config["interfaces"][0]["rx"]["flows"] = []
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        # The MTU is 9000, around which the kernel lets an Ethernet header with a tag.
        for payload in (8964 - 50 + 8, 8964, 100):
            sender.tx[0].send(made_frames(1, payload))
        assert sender.tx[0].wait_sent(UNTIL)
        counters = sender.tx[0].counters()
        assert (counters.sent, counters.dropped["send_error"]) == (2, 1)
        lengths = [len(view) for view in packets_of(receive_all(receiver.rx[0], 2))]
        assert lengths == [8964 + 8 + 42, 192]


@pytest.mark.root
def test_recorded_packets_are_without_their_tunnel(
    cable: Any, packet: Build, tmp_path: Path, made_frames: Any
) -> None:
    config = push_frames(packet(), encap("vxlan"))
    config["interfaces"][0]["rx"]["flows"] = [flow(decap("vxlan"), queue=0)]
    sent = made_frames(1000, 1000)
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        with receiver.rx[0].record(tmp_path, "capture", max_packets=1000) as recorder:
            sender.tx[0].send(sent)
            assert recorder.wait(UNTIL)
        (file,) = recorder.files()
    with PcapFile(file.path) as capture:
        assert [bytes(packet) for packet in capture] == [row.tobytes() for row in sent]


@pytest.mark.root
def test_frames_of_packets_from_a_tunnel(
    cable: Any, packet: Build, with_frames: Any, made_frames: Any
) -> None:
    config = with_frames(push_frames(packet(), encap("vxlan")))
    config["interfaces"][0]["rx"]["flows"] = [flow(decap("vxlan"), queue=0)]
    sent = made_frames(8 * 20, 68)
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        with receiver.reorder["images"].frames(timeout=UNTIL) as frames:
            sender.tx[0].send(sent)
            for expected in sent[:, 46:].reshape(20, 8, 64):
                frame = next(frames)
                assert np.array_equal(frame.data.view(np.uint8), expected)
