"""UDP servers at multicast groups, on a host with two networks."""

import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from networks import Network
from waiting import wait_for

from daqiri_ophyd.engine import Burst, Engine, RxQueue

pytestmark = pytest.mark.root

Receive = Callable[[RxQueue, int], list[Burst]]
Build = Callable[..., dict[str, Any]]

PORT = 5000
LOCAL = 1  # of the two networks, that of the server
OTHER = 0


def family_of(group: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in group else socket.AF_INET


class TwoNetworks:
    """A host with the interfaces ``m0`` and ``m1``, each with a sender at the other end."""

    def __init__(self, make: Callable[[], Network]) -> None:
        self.host, self.senders = make(), make()
        for i in range(2):
            self.senders.run(
                f"ip link add s{i} type veth peer name m{i} netns {self.host.thread_id}"
            )
            for network, link, last in ((self.senders, "s", 1), (self.host, "m", 2)):
                network.run(f"ip addr add 10.9.{i}.{last}/24 dev {link}{i}")
                network.run(f"ip addr add fd09:{i}::{last}/64 dev {link}{i} nodad")
            # A link carries only when both ends are up.
            self.senders.run(f"ip link set s{i} up")
        self.host.up("m0", "m1")
        self.senders.up("s0", "s1")

    def peer(self, group: str, network: int) -> socket.socket:
        """A socket of the sender that sends to the group on one network."""

        def make() -> socket.socket:
            peer = socket.socket(family_of(group), socket.SOCK_DGRAM)
            index = socket.if_nametoindex(f"s{network}")
            if ":" in group:
                peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            else:
                chosen = struct.pack("=4s4si", bytes(4), bytes(4), index)
                peer.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, chosen)
            peer.settimeout(20)
            return peer

        made: socket.socket = self.senders.call(make)
        return made

    def send(self, group: str, network: int) -> None:
        """Send 50 numbered datagrams that also name the network."""
        with self.peer(group, network) as peer:
            for i in range(50):
                peer.sendto(bytes([network, i]), (group, PORT))

    def join(self, group: str, network: int) -> socket.socket:
        """Join the group as another program of the host does."""

        def join() -> socket.socket:
            index = socket.if_nametoindex(f"m{network}")
            member = socket.socket(family_of(group), socket.SOCK_DGRAM)
            if ":" in group:
                request = socket.inet_pton(socket.AF_INET6, group) + struct.pack("=i", index)
                member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
            else:
                request = socket.inet_aton(group) + struct.pack("=4si", bytes(4), index)
                member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            member.bind((group, PORT))
            member.settimeout(20)
            return member

        joined: socket.socket = self.host.call(join)
        return joined


@pytest.fixture
def two_networks(networks: Callable[[], Network]) -> TwoNetworks:
    return TwoNetworks(networks)


def server(udp: Build, group: str, address: str) -> dict[str, Any]:
    config = udp()
    written = f"[{group}]" if ":" in group else group
    config["interfaces"] = config["interfaces"][:1]
    config["interfaces"][0]["address"] = address
    config["interfaces"][0]["socket_config"]["local_addr"] = f"udp://{written}:{PORT}"
    return config


@pytest.mark.parametrize(
    ("group", "address"),
    [
        ("239.1.1.1", "10.9.1.2"),
        ("239.1.1.1", "m1"),
        ("ff15::4e24", "fd09:1::2"),
        ("ff15::4e24", "m1"),
    ],
)
def test_a_server_receives_its_group_from_its_network_only(
    two_networks: TwoNetworks, udp: Build, receive_all: Receive, group: str, address: str
) -> None:
    config = server(udp, group, address)
    with two_networks.host.call(Engine.open, config) as engine:
        port = engine.port("receiver")
        with two_networks.join(group, OTHER) as program:
            two_networks.send(group, OTHER)
            assert [program.recv(10) for _ in range(50)] == [bytes([OTHER, i]) for i in range(50)]
            two_networks.send(group, LOCAL)
            bursts = receive_all(port.rx[0], 50)
        got = [view.tobytes() for burst in bursts for view in burst]
        assert got == [bytes([LOCAL, i]) for i in range(50)]
        assert port.rx[0].counters().received == 50
        assert sum(port.rx[0].counters().dropped.values()) == 0
        # Replies leave through the same interface.
        with two_networks.peer(group, LOCAL) as peer:
            peer.sendto(b"question", (group, PORT))
            (question,) = receive_all(port.rx[0], 1)
            port.tx[0].send([b"answer"], connection_id=question.connection_id)
            assert peer.recv(10) == b"answer"


@pytest.mark.parametrize("group", ["239.1.1.1", "ff15::4e24"])
def test_two_servers_have_a_network_each(
    two_networks: TwoNetworks, udp: Build, receive_all: Receive, group: str
) -> None:
    engines = [
        two_networks.host.call(Engine.open, server(udp, group, f"m{network}"))
        for network in range(2)
    ]
    try:
        queues = [engine.port("receiver").rx[0] for engine in engines]
        for network in range(2):
            two_networks.send(group, network)
            wait_for(lambda queue=queues[network]: queue.counters().received == 50)
        for network, queue in enumerate(queues):
            got = [view.tobytes() for burst in receive_all(queue, 50) for view in burst]
            assert got == [bytes([network, i]) for i in range(50)]
            assert queue.counters().received == 50
    finally:
        for engine in engines:
            engine.close()
