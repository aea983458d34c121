"""Every frame that arrives is received, dropped by the engine, or lost before it with a reason."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waiting import eventually

from daqiri_ophyd.engine import Engine, Port, PortCounters, ethernet

from .conftest import send_fast

pytestmark = pytest.mark.root
Config = dict[str, Any]
NOTHING = PortCounters(0, 0, 0, 0, 0)
COUNT = 40_000


@contextmanager
def opened(link: Any, config: Config) -> Iterator[Port]:
    with link.call(Engine.open, config) as engine:
        yield engine.ports[0]


@pytest.mark.fills_backlog
@pytest.mark.parametrize("path", ["af_packet", "dpdk", "udp"])
def test_what_a_full_backlog_drops_is_counted(
    link: Any, receiver: Callable[..., Config], datagram: Callable[..., bytes], path: str
) -> None:
    """Of 40,000 frames the kernel drops most before any socket: RPS to a core with slow filters."""
    link.receive_on_another_core()
    link.slow_down()
    # Bursts wait for each other, so that there are few.
    with opened(link, receiver(path, timeout_us=100_000)) as port:
        before = link.counts()
        arrived = link.flood(datagram(), COUNT)
        assert arrived == COUNT
        queue = port.rx[0]

        def counted() -> int:
            return queue.counters().received + port.counters().lost_before_engine

        assert eventually(lambda: counted() == arrived), (
            queue.counters(),
            port.counters(),
            before,
            link.counts(),
        )
        lost = port.counters()
        dropped = link.counts()["dropped"] - before["dropped"]
        assert dropped > COUNT // 10
        assert lost == PortCounters(dropped, 0, dropped, 0, 0)
        assert queue.counters().received == arrived - dropped
    assert port.counters() == lost


@pytest.mark.parametrize("path", ["af_packet", "dpdk", "af_xdp", "auto", "udp"])
def test_frames_that_no_program_wants_are_no_loss(
    link: Any,
    receiver: Callable[..., Config],
    unwanted: bytes,
    unwanted_only: Any,
    path: str,
    request: pytest.FixtureRequest,
) -> None:
    """The kernel counts them in rx_dropped, unless a packet socket takes every frame."""
    if path in ("af_xdp", "auto"):
        request.getfixturevalue("has_af_xdp")
    config = receiver(path)
    if path in ("af_xdp", "auto"):
        config["interfaces"][0]["rx"]["flow_isolation"] = True  # the others go to the kernel
        link.network.run("ethtool -K far rxvlan off")  # else `auto` chooses AF_PACKET
    with link.call(Engine.open, config) as engine:
        port = engine.ports[0]
        if path == "auto":
            assert engine.snapshot().rx[0].receive_path.startswith("af_xdp")
        before = link.counts()
        assert link.flood(unwanted, 100) == 100
        taken = path in ("af_packet", "dpdk")
        assert eventually(lambda: link.counts()["received"] - before["received"] == 100)
        assert eventually(lambda: port.rx[0].counters().received == (100 if taken else 0))
        dropped = 0 if taken else 100
        assert eventually(lambda: link.counts()["dropped"] - before["dropped"] == dropped)
        assert unwanted_only(port.counters(), dropped)
    # After the end, nothing is counted, and nothing is forgotten.
    link.flood(unwanted, 100)
    assert unwanted_only(port.counters(), dropped)


@pytest.mark.parametrize("path", ["af_packet", "dpdk"])
@pytest.mark.parametrize("vlan", [0, 5])
def test_received_frames_with_a_tag_are_no_certain_loss(
    link: Any,
    receiver: Callable[..., Config],
    unwanted: bytes,
    unwanted_only: Any,
    path: str,
    vlan: int,
) -> None:
    """Of a protocol that is unknown to the kernel: it counts them as dropped, tag or priority."""
    tagged = unwanted[:12] + struct.pack("!HH", 0x8100, 0xE000 | vlan) + unwanted[12:]
    with opened(link, receiver(path)) as port:
        before = link.counts()
        assert link.flood(tagged, 100) == 100
        assert eventually(lambda: port.rx[0].counters().received == 100)
        assert eventually(lambda: link.counts()["dropped"] - before["dropped"] == 100)
        assert unwanted_only(port.counters(), 100)
        # Nor at the next reading.
        assert unwanted_only(port.counters(), 100)


@pytest.mark.parametrize("path", ["af_packet", "dpdk"])
@pytest.mark.parametrize(
    ("takes", "tag"),
    [
        ("ip link add br0 type bridge; ip link set far master br0", b"\x81\0\0\5"),
        ("tc qdisc add dev far clsact", b""),
    ],
    ids=["bridge", "clsact"],
)
def test_where_others_take_frames_drops_are_no_certain_loss(
    link: Any,
    receiver: Callable[..., Config],
    unwanted: bytes,
    unwanted_only: Any,
    path: str,
    takes: str,
    tag: bytes,
) -> None:
    """The kernel counts as dropped what the port has received, also without a tag."""
    for command in takes.split("; "):
        link.network.run(command)
    with opened(link, receiver(path)) as port:
        before = link.counts()
        assert link.flood(unwanted[:12] + tag + unwanted[12:], 100) == 100
        assert eventually(lambda: port.rx[0].counters().received == 100)
        assert eventually(lambda: link.counts()["dropped"] - before["dropped"] == 100)
        assert unwanted_only(port.counters(), 100)


@pytest.mark.parametrize("path", ["af_packet", "dpdk"])
def test_an_interface_that_was_elsewhere_stays_removed(
    link: Any,
    receiver: Callable[..., Config],
    networks: Any,
    datagram: Callable[..., bytes],
    unwanted: bytes,
    path: str,
) -> None:
    """Packet sockets lose an interface that is moved to another network namespace, for good."""
    elsewhere = networks()
    with opened(link, receiver(path)) as port:
        assert link.flood(datagram(), 10) == 10
        assert eventually(lambda: port.rx[0].counters().received == 10)
        link.network.run(f"ip link set far netns {elsewhere.thread_id}")
        assert port.link().state == "removed"
        elsewhere.up("far")
        link.call(send_fast, unwanted, 100, "near")
        elsewhere.run(f"ip link set far netns {link.network.thread_id}")
        link.network.up("far")
        link.call(send_fast, unwanted, 100, "near")
        assert port.link().state == "removed"
        assert port.rx[0].counters().received == 10
        assert port.counters().lost_dropped == 0


@pytest.mark.parametrize("path", ["af_packet", "dpdk", "udp"])
def test_an_interface_that_is_removed_and_made_anew(
    link: Any, receiver: Callable[..., Config], unwanted: bytes, unwanted_only: Any, path: str
) -> None:
    """Its counters begin at 0 again: neither a negative nor a huge number."""
    with opened(link, receiver(path)) as port:
        if path == "udp":
            link.flood(unwanted, 50)
            assert eventually(lambda: unwanted_only(port.counters(), 50))
        dropped = 50 if path == "udp" else 0
        link.remake()
        assert unwanted_only(port.counters(), dropped)
        link.flood(unwanted, 10)
        assert eventually(lambda: link.counts()["dropped"] == 10)
        # A socket belongs to its address, wherever that is; a packet socket to its interface.
        assert unwanted_only(port.counters(), dropped + (10 if path == "udp" else 0))


@pytest.mark.parametrize(
    ("local", "counted"),
    [("10.9.0.1", 100), ("0.0.0.0", 100), ("127.0.0.1", 0), ("127.0.0.2", 0)],
)
def test_a_socket_counts_the_interface_of_its_address(
    link: Any,
    receiver: Callable[..., Config],
    unwanted: bytes,
    unwanted_only: Any,
    local: str,
    counted: int,
) -> None:
    """A wildcard counts all interfaces of the host."""
    with opened(link, receiver("udp", local)) as port:
        link.flood(unwanted, 100)
        assert eventually(lambda: link.counts()["dropped"] == 100)
        assert unwanted_only(port.counters(), counted)


@pytest.mark.parametrize(("interface", "counted"), [("far", 100), ("near", 0)])
def test_a_group_is_received_on_its_interface(
    link: Any,
    receiver: Callable[..., Config],
    unwanted: bytes,
    unwanted_only: Any,
    interface: str,
    counted: int,
) -> None:
    config = receiver("udp", "239.1.2.3")
    config["interfaces"][0]["address"] = interface
    with opened(link, config) as port:
        link.flood(unwanted, 100)
        assert eventually(lambda: link.counts()["dropped"] == 100)
        assert unwanted_only(port.counters(), counted)


def test_a_client_counts_the_interface_of_its_route(
    link: Any, receiver: Callable[..., Config], unwanted: bytes, unwanted_only: Any
) -> None:
    config = receiver("udp")
    port = config["interfaces"][0]
    port["socket_config"] = {"mode": "client", "remote_addr": "udp://10.9.0.2:5000"}
    with opened(link, config) as opened_port:
        link.flood(unwanted, 100)
        assert eventually(lambda: link.counts()["dropped"] == 100)
        assert unwanted_only(opened_port.counters(), 100)


@pytest.mark.fills_backlog
def test_tcp_loses_nothing(
    link: Any, receiver: Callable[..., Config], datagram: Callable[..., bytes]
) -> None:
    """Its peers send lost packets again: reasons are shown, and no loss is reported."""
    config = receiver("udp")
    port = config["interfaces"][0]
    port["socket_config"] = {"mode": "server", "local_addr": "tcp://10.9.0.1:5000"}
    link.receive_on_another_core()
    link.slow_down()
    with opened(link, config) as opened_port:
        link.flood(datagram(), COUNT)
        lost = link.counts()["dropped"]
        assert lost > 0
        assert eventually(lambda: opened_port.counters().lost_backlog == link.counts()["dropped"])
        assert opened_port.counters().lost_before_engine == 0


def test_every_view_of_an_engine_has_the_counters(
    link: Any, receiver: Callable[..., Config], unwanted: bytes, unwanted_only: Any
) -> None:
    with link.call(Engine.open, receiver("udp")) as engine:
        link.flood(unwanted, 100)
        assert eventually(lambda: link.counts()["dropped"] == 100)
        # The copies are renewed without a call of `Port.counters`.
        assert eventually(lambda: unwanted_only(engine.snapshot().ports[0].counters, 100))
        assert engine.snapshot().ports[0].port == "receiver"
        copied = engine.counters["ports"]["receiver"]
        assert eventually(
            lambda: unwanted_only(PortCounters.of_row(engine.counters["ports"]["receiver"]), 100)
        ), copied
        assert unwanted_only(engine.ports[0].counters(), 100)


@pytest.mark.parametrize("path", ["af_packet", "dpdk", "udp"])
def test_damaged_frames_are_errors(
    networks: Callable[[], Any], receiver: Callable[..., Config], path: str
) -> None:
    """A VXLAN device counts frames whose congestion marks contradict each other (RFC 6040)."""
    network = networks()
    network.run("ip link add far mtu 1500 type vxlan id 5 dstport 4789 local 127.0.0.1 dev lo")
    network.run("ip address add 10.9.0.1/24 dev far")
    network.run("ip link set far up")
    inner = ethernet.udp_frames(
        (1, 100),
        src_mac="02:00:00:00:00:02",
        dst_mac="02:00:00:00:00:01",
        src_ip="10.9.0.2",
        dst_ip="10.9.0.1",
        src_port=4000,
        dst_port=5000,
    )[0].tobytes()
    vxlan = bytes.fromhex("0800000000000500") + inner
    with network.call(Engine.open, receiver(path)) as engine:
        (port,) = engine.ports
        with network.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
            congested = 3
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, congested)
            for _ in range(30):
                sender.sendto(vxlan, ("127.0.0.1", 4789))
        expected = PortCounters(30, 0, 0, 30, 0)
        assert eventually(lambda: port.counters() == expected), port.counters()
        assert port.rx[0].counters().received == 0


@pytest.mark.parametrize("path", ["af_packet", "dpdk", "udp"])
def test_frames_that_this_host_sends_do_not_arrive(
    link: Any, receiver: Callable[..., Config], datagram: Callable[..., bytes], path: str
) -> None:
    with opened(link, receiver(path)) as port:
        link.call(send_fast, datagram(), 100, "far")
        link.flood(datagram(), 10)
        assert eventually(lambda: port.rx[0].counters().received == 10)
        assert port.counters() == NOTHING
