"""What senders on this host leave to their network card is done before frames are delivered.

Frames on a cable of the kernel's have no checksums, and some contain many packets.
"""

import os
import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Network
from packet_bytes import packets_of
from waiting import wait_for

from daqiri_ophyd.engine import Burst, Engine, PcapFile, RxQueue

Config = dict[str, Any]
Build = Callable[..., Config]
Receive = Callable[[RxQueue, int], list[Burst]]

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 2),
        reason="needs Linux 6.2, which tells what was left to the card",
    ),
]
PORT, SIZE, COUNT = 5000, 1000, 40
UDP_SEGMENT = 103
ADDRESSES = {4: ("10.9.0.1", "10.9.0.2"), 6: ("fd09::1", "fd09::2")}
Pair = tuple[Network, Network]


@pytest.fixture
def pair(networks: Callable[[], Network]) -> Pair:
    """Two hosts: ``near`` of the first is connected to ``far`` of the second."""
    here, there = networks(), networks()
    here.run("ip link add near type veth peer name far")
    here.run(f"ip link set far netns /proc/{os.getpid()}/task/{there.thread_id}/ns/net")
    for host, end, index in ((here, "near", 0), (there, "far", 1)):
        host.run(f"ip link set {end} address 02:00:00:00:00:0{index + 1}")
        host.run(f"ip address add {ADDRESSES[4][index]}/24 dev {end}")
        host.run(f"ip address add {ADDRESSES[6][index]}/64 dev {end} nodad")
        host.run(f"ip link set {end} up")
    here.up("near")
    there.up("far")
    for _, peer in ADDRESSES.values():
        here.run(f"ip neighbour replace {peer} lladdr 02:00:00:00:00:02 dev near")
    return here, there


def sum_of(data: bytes) -> int:
    """RFC 1071, not complemented."""
    total = int(np.frombuffer(data + b"\0" * (len(data) % 2), ">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def payload_of(frame: bytes) -> tuple[bytes, bytes]:
    """The transport header and the payload, of which all lengths and checksums are right."""
    ip = frame[14:]
    if frame[12:14] == b"\x08\x00":
        (length,) = struct.unpack_from(">H", ip, 2)
        assert sum_of(ip[:20]) == 0xFFFF
        addresses, protocol, transport = ip[12:20], ip[9], ip[20:length]
    else:
        (length,) = struct.unpack_from(">H", ip, 4)
        addresses, protocol, transport = ip[8:40], ip[6], ip[40 : 40 + length]
    pseudo = addresses + struct.pack(">II", len(transport), protocol)
    assert sum_of(pseudo + transport) == 0xFFFF
    if protocol == socket.IPPROTO_UDP:
        assert struct.unpack_from(">H", transport, 4) == (len(transport),)
        return transport[:8], transport[8:]
    header = (transport[12] >> 4) * 4
    return transport[:header], transport[header:]


def receiver(packet: Build, filtered: str) -> Config:
    config = packet()
    config["interfaces"] = config["interfaces"][:1]
    config["interfaces"][0]["rx"]["filter"] = filtered
    return config


def send_together(address: str, payload: bytes, segment: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        if segment:
            sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, segment)
        sender.sendto(payload, (address, PORT))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("recorded", [False, True])
def test_datagrams_arrive_as_on_a_wire(
    pair: Pair,
    packet: Build,
    receive_all: Receive,
    tmp_path: Path,
    family: int,
    recorded: bool,
) -> None:
    """One by one, and many in one call: each is a frame with its checksum."""
    here, there = pair
    sizes = [1, 2, SIZE, 1400]
    payload = os.urandom(COUNT * SIZE + 7)
    pieces = [payload[at : at + SIZE] for at in range(0, len(payload), SIZE)]
    expected = [payload[:size] for size in sizes] + pieces + [payload[:5], payload[5:10]]
    with there.call(Engine.open, receiver(packet, f"udp port {PORT}")) as engine:
        (queue,) = engine.ports[0].rx
        recorder = (
            queue.record(tmp_path, "capture", max_packets=len(expected)) if recorded else None
        )
        _, address = ADDRESSES[family]
        for size in sizes:
            here.call(send_together, address, payload[:size], 0)
        here.call(send_together, address, payload, SIZE)
        here.call(send_together, address, payload[:10], 5)
        if recorder is None:
            found = packets_of(receive_all(queue, len(expected)))
        else:
            with recorder:
                assert recorder.wait(30)
            with PcapFile(*tmp_path.glob("*.pcap")) as pcap:
                found = [bytes(each) for each in pcap]
        assert [payload_of(frame)[1] for frame in found] == expected
        counters = queue.counters()
        assert (counters.received, counters.dropped_total) == (len(expected), 0)


def test_pieces_that_arrive_after_drop_all_are_filtered(
    pair: Pair, packet: Build, receive_all: Receive
) -> None:
    here, there = pair
    with there.call(Engine.open, receiver(packet, f"udp port {PORT}")) as engine:
        (port,) = engine.ports
        (queue,) = port.rx
        _, address = ADDRESSES[4]
        port.drop_all_traffic()
        here.call(send_together, address, bytes(COUNT * SIZE + 7), SIZE)
        wait_for(lambda: queue.counters().received == COUNT + 1)
        counters = queue.counters()
        assert counters.dropped["filtered"] == counters.dropped_total == COUNT + 1
        assert counters.received_bytes == COUNT * SIZE + 7 + (COUNT + 1) * (14 + 20 + 8)
        port.allow_all_traffic()
        here.call(send_together, address, b"after", 0)
        (frame,) = packets_of(receive_all(queue, 1))
        assert payload_of(frame)[1] == b"after"


@pytest.mark.parametrize("family", [4, 6])
def test_a_stream_arrives_as_on_a_wire(
    pair: Pair, packet: Build, receive_all: Receive, family: int
) -> None:
    """TCP passes up to 64 KiB at once: its segments are no longer than the MTU, and complete."""
    here, there = pair
    sent = os.urandom(1 << 20)
    with there.call(Engine.open, receiver(packet, f"tcp dst port {PORT}")) as engine:
        (queue,) = engine.ports[0].rx
        kind = socket.AF_INET6 if family == 6 else socket.AF_INET
        with there.call(socket.socket, kind, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((ADDRESSES[family][1], PORT))
            listener.listen()
            reader = threading.Thread(target=read_all, args=(listener,))
            reader.start()
            with here.call(socket.socket, kind, socket.SOCK_STREAM) as sender:
                sender.connect((ADDRESSES[family][1], PORT))
                sender.sendall(sent)
            reader.join()
        frames: list[bytes] = []

        def finished() -> bool:
            while (burst := queue.receive(0)) is not None:
                with burst:
                    frames.extend(packets_of([burst]))
            return any(payload_of(frame)[0][13] & 1 for frame in frames)

        wait_for(finished)
        assert queue.counters().dropped_total == 0
    assert max(map(len, frames)) == 1514
    found = bytearray(len(sent))
    headers = [payload_of(frame) for frame in frames]
    (first,) = [struct.unpack_from(">I", h, 4)[0] + 1 for h, _ in headers if h[13] & 2]
    for header, data in headers:
        if data:
            at = (struct.unpack_from(">I", header, 4)[0] - first) % 2**32
            found[at : at + len(data)] = data
    assert found == sent
    # Only the last segment of each call pushes.
    assert sum(bool(h[13] & 8) for h, _ in headers) < len(frames) / 2


def read_all(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while connection.recv(1 << 20):
            pass


def test_datagrams_of_this_host_on_lo(
    networks: Callable[[], Network], packet: Build, udp: Build, receive_all: Receive
) -> None:
    """A client of this package passes many datagrams at once."""
    network = networks()
    config = receiver(packet, "udp")
    config["interfaces"][0]["address"] = "lo"
    with network.call(Engine.open, config) as engine, network.call(Engine.open, udp()) as sender:
        sent = np.arange(64 * 100, dtype=np.uint8).reshape(64, 100)
        sender.ports[1].tx[0].send(sent)
        found = packets_of(receive_all(engine.ports[0].rx[0], 64))
    assert [payload_of(frame)[1] for frame in found] == [row.tobytes() for row in sent]
