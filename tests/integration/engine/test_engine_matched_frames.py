"""Frames that flows match on engines that receive frames: priority tags, IPv6, fragments."""

import itertools
import struct
from collections.abc import Callable
from typing import Any

import pytest

from daqiri_ophyd.engine import Burst, Engine, RxQueue

Config = dict[str, Any]
Build = Callable[..., Config]
Receive = Callable[[RxQueue, int], list[Burst]]

TAGS = [(), (0,), (0, 0), (100,), (0, 100), (100, 0), (100, 200), (0, 0, 0, 0)]
PORTS = [5000, 5001, 5002, 5003]
HOST = "192.0.2.1"
# Extension headers of IPv6 by name: numbers of kinds, and the bytes of each after the first.
OPTIONS, FRAGMENT = 60, 44
EXTENSIONS: dict[str, list[tuple[int, bytes]]] = {
    "ipv6": [],
    "ipv6 hop-by-hop": [(0, b"\0\1\4\0\0\0\0")],
    "ipv6 long options": [(OPTIONS, b"\3" + bytes(30))],
    "ipv6 first fragment": [(FRAGMENT, b"\0\0\1\0\0\0\1")],
    "ipv6 later fragment": [(FRAGMENT, b"\0\0\x10\0\0\0\1")],
    "ipv6 options, only fragment": [(OPTIONS, b"\0" + bytes(6)), (FRAGMENT, bytes(7))],
}
IPV4 = {"ipv4": 0, "ipv4 first fragment": 0x2000, "ipv4 later fragment": 0x0010}
FLOWS = [
    {"name": "port", "id": 7, "match": {"udp_dst": 5000}},
    {"name": "host", "id": 8, "match": {"udp_dst": 5001, "ipv4_src": HOST}},
    {"name": "tagged", "id": 9, "match": {"udp_dst": 5002}, "pops": 1},
]


def frame_of(tags: tuple[int, ...], kind: str, port: int, number: int) -> bytes:
    udp = struct.pack(">HHHHI", 4000, port, 12, 0, number)
    if kind in IPV4:
        length = 20 + len(udp)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, IPV4[kind], 64, 17, 0)
        packet = b"\x08\0" + ip + bytes([192, 0, 2, 1, 192, 0, 2, 2]) + udp
    else:
        following = [kind for kind, _ in EXTENSIONS[kind]] + [17]
        extensions = b"".join(
            bytes([after]) + rest
            for (_, rest), after in zip(EXTENSIONS[kind], following[1:], strict=True)
        )
        length = len(extensions) + len(udp)
        ip = struct.pack(">IHBB", 6 << 28, length, following[0], 64) + bytes(32)
        packet = b"\x86\xdd" + ip + extensions + udp
    tagged = b"".join(b"\x81\0" + struct.pack(">H", 0x6000 | tag) for tag in tags)
    return bytes.fromhex("020000000002 020000000001") + tagged + packet


def expected(tags: tuple[int, ...], kind: str, port: int, number: int) -> tuple[int, bytes] | None:
    """What is delivered, by the documented rules: flow id and bytes; None: nothing."""
    vlans = sum(tag != 0 for tag in tags)
    if "later" in kind:
        return None
    for flow in FLOWS:
        match: dict[str, Any] = flow["match"]
        if vlans != flow.get("pops", 0) or port != match["udp_dst"]:
            continue
        if "ipv4_src" in match and kind not in IPV4:
            continue
        return flow["id"], frame_of(() if vlans else tags, kind, port, number)
    return None


def with_flows(receiver: Config) -> None:
    receiver["rx"]["flow_isolation"] = True
    receiver["rx"]["flows"] = [
        {key: flow[key] for key in ("name", "id", "match")}
        | {"actions": [{"type": "vlan_pop"}] * flow.get("pops", 0) + [{"type": "queue", "id": 0}]}
        for flow in FLOWS
    ]


def check(engine: Engine, receive_all: Receive) -> None:
    kinds = [*IPV4, *EXTENSIONS]
    packets = [
        (*packet, number) for number, packet in enumerate(itertools.product(TAGS, kinds, PORTS))
    ]
    wanted = [found for packet in packets if (found := expected(*packet)) is not None]
    assert {flow for flow, _ in wanted} == {7, 8, 9}
    sent = [frame_of(*packet) for packet in packets]
    receiver, sender = engine.ports[0], engine.ports[-1]
    assert sender.tx[0].send(sent) == len(sent)
    bursts = receive_all(receiver.rx[0], len(wanted))
    flows = [flow for burst in bursts for flow in burst.flow_ids.tolist()]
    assert list(zip(flows, [view.tobytes() for b in bursts for view in b], strict=True)) == wanted
    # Nothing else was delivered until the last one.
    assert receiver.rx[0].counters().delivered == len(wanted)


def test_loopback(loopback: Build, receive_all: Receive) -> None:
    config = loopback()
    with_flows(config["interfaces"][0])
    with Engine.open(config) as engine:
        check(engine, receive_all)


@pytest.mark.root
@pytest.mark.parametrize("path", ["af_packet", "af_xdp"])
def test_interface(
    request: pytest.FixtureRequest, cable: Any, packet: Build, receive_all: Receive, path: str
) -> None:
    if path == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    config = packet()
    with_flows(config["interfaces"][0])
    config["interfaces"][0]["rx"]["receive_path"] = path
    with cable.call(Engine.open, config) as engine:
        check(engine, receive_all)
