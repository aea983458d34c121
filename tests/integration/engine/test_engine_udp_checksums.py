"""Datagrams with wrong checksums: the kernel drops them, and a warning names them."""

import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from networks import Network
from waiting import wait_for

from daqiri_ophyd.engine import Burst, Engine, RxQueue

pytestmark = pytest.mark.root

Build = Callable[..., dict[str, Any]]
Receive = Callable[[RxQueue, int], list[Burst]]
PORT = 5000
MAC = "02:00:00:00:00:02"
ADDRESSES = {"10.9.0.2": "10.9.0.1", "fd09::2": "fd09::1"}
WORDS = "the kernel drops datagrams with wrong UDP checksums"


@pytest.fixture
def host(networks: Callable[[], Network]) -> Network:
    """A host with the interface ``far``; ``near`` is the other end of its cable."""
    network = networks()
    network.run("ip link add near type veth peer name far")
    network.run(f"ip link set far address {MAC}")
    for address in ADDRESSES:
        length = 64 if ":" in address else 24
        network.run(f"ip addr add {address}/{length} dev far" + (" nodad" if length == 64 else ""))
    network.up("near", "far")
    return network


def checksum(data: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(mac: bytes, receiver: str, *, right: bool) -> bytes:
    family = socket.AF_INET6 if ":" in receiver else socket.AF_INET
    addresses = b"".join(socket.inet_pton(family, a) for a in (ADDRESSES[receiver], receiver))
    # Of datagrams up to 76 bytes, Linux checks the checksum before it knows the socket.
    payload = (b"good" if right else b"bad!") * 50
    udp = struct.pack(">HHHH", 4000, PORT, 8 + len(payload), 0) + payload
    value = checksum(addresses + struct.pack(">II", len(udp), 17) + udp) ^ (0 if right else 0x55)
    udp = udp[:6] + struct.pack(">H", value) + payload
    if family == socket.AF_INET6:
        packet = struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + addresses + udp
        return mac + bytes.fromhex("02000000000186dd") + packet
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
    head = head[:10] + struct.pack(">H", checksum(head + addresses))
    return mac + bytes.fromhex("0200000000010800") + head + addresses + udp


def server(udp: Build, address: str) -> dict[str, Any]:
    config = udp()
    written = f"[{address}]" if ":" in address else address
    config["log_level"] = "warn"
    config["interfaces"] = config["interfaces"][:1]
    config["interfaces"][0]["address"] = address
    config["interfaces"][0]["socket_config"]["local_addr"] = f"udp://{written}:{PORT}"
    return config


def send(host: Network, address: str, kinds: list[bool]) -> None:
    def put() -> None:
        mac = bytes.fromhex(MAC.replace(":", ""))
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("near", 0))
            for right in kinds:
                wire.send(frame(mac, address, right=right))

    host.call(put)


@pytest.mark.parametrize("address", ADDRESSES)
def test_wrong_checksums_are_counted_and_named(
    host: Network,
    udp: Build,
    receive_all: Receive,
    caplog: pytest.LogCaptureFixture,
    address: str,
) -> None:
    with (
        caplog.at_level(logging.WARNING, "daqiri_ophyd.engine"),
        host.call(Engine.open, server(udp, address)) as engine,
    ):
        queue = engine.ports[0].rx[0]
        send(host, address, [False] * 20 + [True])
        (burst,) = receive_all(queue, 1)
        assert burst[0].tobytes() == b"good" * 50
        wait_for(lambda: queue.counters().dropped["kernel"] == 20)
        assert queue.counters().received == 21
        wait_for(lambda: WORDS in caplog.text)
    assert "20 had a wrong checksum since it was opened, and 0 found a full" in caplog.text
    assert caplog.text.count(WORDS) == 1


def test_wrong_checksums_without_another_datagram_are_counted_at_close(
    host: Network, udp: Build
) -> None:
    with host.call(Engine.open, server(udp, "10.9.0.2")) as engine:
        queue = engine.ports[0].rx[0]
        send(host, "10.9.0.2", [False] * 20)
    assert queue.counters().dropped["kernel"] == 20
    assert queue.counters().received == 20
