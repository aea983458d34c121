"""Devices and queueing disciplines that refuse packets: each is sent once, none is lost."""

import contextlib
import fcntl
import json
import os
import select
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from networks import Network, enlarge_buffer, packet_statistics
from waiting import wait_for

from daqiri_ophyd.engine import Engine, ethernet

Config = dict[str, Any]
pytestmark = pytest.mark.root
COUNT, SIZE, PORT = 20_000, 200, 5000
NEIGHBOUR = "02:00:00:00:00:02"


def sender(path: str, address: str, buf_size: int = 2048, batch: int = 64) -> Config:
    """A configuration of a port that sends frames (``packet``, ``dpdk``) or datagrams (``udp``)."""
    queue = {
        "name": "tx0",
        "id": 0,
        "cpu_core": "any",
        "batch_size": batch,
        "memory_regions": ["buffers"],
    }
    port: Config = {"name": "sender", "address": address, "tx": {"queues": [queue]}}
    if path == "udp":
        port["socket_config"] = {"mode": "client", "remote_addr": f"udp://10.9.0.2:{PORT}"}
    region = {"name": "buffers", "kind": "host", "num_bufs": 4096, "buf_size": buf_size}
    config: Config = {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket" if path == "udp" else "raw",
        "log_level": "error",
        "memory_regions": [region],
        "interfaces": [port],
    }
    if path == "dpdk":
        config["engine"] = "dpdk"
        port["address"] = f"net_af_packet0,iface={address}"
    return config


@pytest.fixture(params=["packet", "dpdk"])
def raw(request: pytest.FixtureRequest) -> str:
    """An engine that sends frames on an interface of the kernel."""
    if request.param == "dpdk":
        request.getfixturevalue("has_dpdk")
    return str(request.param)


@pytest.fixture(params=["packet", "dpdk", "udp"])
def path(request: pytest.FixtureRequest) -> str:
    if request.param == "dpdk":
        request.getfixturevalue("has_dpdk")
    return str(request.param)


def numbered(count: int, size: int) -> np.ndarray:
    """Payloads that begin with their number."""
    payloads = np.zeros((count, size), np.uint8)
    payloads[:, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(count, 4)
    return payloads


def packets_of(path: str, count: int, size: int) -> np.ndarray:
    """Packets as a queue of the path sends them."""
    payloads = numbered(count, size)
    if path == "udp":
        return payloads
    return ethernet.udp_frames(
        payloads,
        src_mac="02:00:00:00:00:01",
        dst_mac=NEIGHBOUR,
        src_ip="10.9.0.1",
        dst_ip="10.9.0.2",
        src_port=4000,
        dst_port=PORT,
    )


def numbers_in(frame: bytes) -> list[int]:
    """The number that a frame of a test carries; none in other frames."""
    if frame[23:24] != b"\x11" or frame[36:38] != PORT.to_bytes(2, "big"):
        return []
    return [int.from_bytes(frame[42:46], "big")]


class Taken:
    """What a thread reads from a device or a socket, as numbers; it pauses after each 64 frames."""

    def __init__(
        self, read: Callable[[], bytes], pause: float, dropped: Callable[[], int] = lambda: 0
    ) -> None:
        self.numbers: list[int] = []
        self._lost = 0
        self._read, self._pause, self._dropped = read, pause, dropped
        self._thread = threading.Thread(target=self._take)
        self._ends = False
        self._thread.start()

    def _take(self) -> None:
        for taken in range(1, 1 << 30):
            try:
                frame = self._read()
            except OSError:  # nothing for now, or the device is down
                time.sleep(0.001)
                frame = b""
            if self._ends and not frame:
                return
            self.numbers += numbers_in(frame)
            if taken % 64 == 0:
                time.sleep(self._pause)

    def lost(self) -> int:
        """Frames for which its socket had no place."""
        self._lost += self._dropped()
        return self._lost

    def end(self) -> None:
        self._ends = True
        self._thread.join()


@pytest.fixture
def network(networks: Callable[[], Network]) -> Network:
    return networks()


@pytest.fixture
def tap(network: Network) -> Iterator[Taken]:
    """The device ``tap0``, whose queue of 256 frames is emptied slowly."""
    tunsetiff, iff_tap, iff_no_pi = 0x400454CA, 0x0002, 0x1000
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK
    device = network.call(os.open, "/dev/net/tun", flags)
    request = struct.pack("16sH22x", b"tap0", iff_tap | iff_no_pi)
    fcntl.ioctl(device, tunsetiff, request)
    network.run("ip link set tap0 txqueuelen 256")
    _prepare(network, "tap0")
    taken = Taken(partial(os.read, device, 65536), 0.001)
    yield taken
    taken.end()
    os.close(device)


@pytest.fixture
def far(network: Network) -> Iterator[Taken]:
    """The end of a veth pair whose other end is ``near``, to which datagrams come one by one."""
    network.run("ip link add near type veth peer name far")
    network.run("ethtool -K near tx-udp-segmentation off")
    network.without_ipv6("far")
    network.run("ip link set far up")
    _prepare(network, "near")
    network.up("far")
    wire = network.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
    enlarge_buffer(wire, socket.SO_RCVBUF)
    wire.setblocking(False)
    wire.bind(("far", 3))
    # Without root, its buffer is small.
    taken = Taken(partial(wire.recv, 65536), 0, lambda: packet_statistics(wire)[1])
    yield taken
    taken.end()
    wire.close()


def _prepare(network: Network, device: str) -> None:
    network.without_ipv6(device)
    network.run(f"ip address add 10.9.0.1/24 dev {device}")
    network.up(device)
    network.run(f"ip neighbour add 10.9.0.2 lladdr {NEIGHBOUR} dev {device}")


def counts(network: Network, device: str) -> dict[str, dict[str, int]]:
    """The kernel's counters of an interface, by direction."""
    shown = partial(subprocess.run, check=True, capture_output=True, text=True)
    command = ["ip", "-json", "-s", "link", "show", device]
    return json.loads(network.call(shown, command).stdout)[0]["stats64"]


def arrive_once(network: Network, far: Taken, sent: int) -> None:
    """Wait until all have arrived, but for what a full backlog or socket dropped; in any order.

    Each processor that takes packets from the discipline has a backlog of its own at the far end.
    """

    def lost() -> int:
        return counts(network, "far")["rx"]["dropped"] + far.lost()

    wait_for(lambda: len(far.numbers) + lost() >= sent)
    arrived = sorted(far.numbers)
    assert len(arrived) == len(set(arrived)) == sent - lost()
    assert set(arrived) <= set(range(sent))


def send_all(network: Network, config: Config, packets: np.ndarray) -> Any:
    """Send packets; return the queue's counters once all are sent or dropped."""
    with network.call(Engine.open, config) as engine:
        queue = engine.ports[0].tx[0]
        queue.send(packets)
        assert queue.wait_sent(60)
        return queue.counters()


def test_a_full_device_takes_each_frame_later(network: Network, tap: Taken, raw: str):
    counters = send_all(network, sender(raw, "tap0"), packets_of(raw, COUNT, SIZE))
    assert (counters.sent, any(counters.dropped.values())) == (COUNT, False)
    wait_for(lambda: len(tap.numbers) >= COUNT)
    assert tap.numbers == list(range(COUNT))


def test_a_device_without_a_queue_drops_datagrams_that_were_sent(network: Network, tap: Taken):
    """Behind the queueing discipline nothing is refused: only the device's own counter knows."""
    before = counts(network, "tap0")["tx"]["dropped"]
    counters = send_all(network, sender("udp", "10.9.0.1"), packets_of("udp", COUNT, SIZE))
    assert (counters.sent, any(counters.dropped.values())) == (COUNT, False)
    lost = counts(network, "tap0")["tx"]["dropped"] - before
    wait_for(lambda: len(tap.numbers) >= COUNT - lost)
    assert len(tap.numbers) == COUNT - lost
    assert tap.numbers == sorted(tap.numbers)


DISCIPLINES = {
    "tbf": ["qdisc replace dev near root tbf rate 400mbit burst 100kb limit 100kb"],
    # Less than a message of 64 datagrams, which tbf would cut.
    "tbf of small bursts": ["qdisc replace dev near root tbf rate 400mbit burst 10kb limit 100kb"],
    "htb with pfifo": [
        "qdisc replace dev near root handle 1: htb default 1",
        "class add dev near parent 1: classid 1:1 htb rate 400mbit",
        "qdisc add dev near parent 1:1 pfifo limit 4",
    ],
}


# Frames of engine packet go around disciplines, as those of DPDK's driver unless told otherwise.
THROUGH_DISCIPLINE = "near,qdisc_bypass=0"


@pytest.mark.parametrize("path", ["udp", "dpdk"])
@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_full_queueing_discipline_takes_each_packet_later(
    network: Network,
    far: Taken,
    discipline: str,
    path: str,
    request: pytest.FixtureRequest,
):
    if path == "dpdk":
        request.getfixturevalue("has_dpdk")
    for command in DISCIPLINES[discipline]:
        network.run(f"tc {command}")
    address = "10.9.0.1" if path == "udp" else THROUGH_DISCIPLINE
    counters = send_all(network, sender(path, address), packets_of(path, COUNT, 1000))
    assert (counters.sent, any(counters.dropped.values())) == (COUNT, False)
    arrive_once(network, far, COUNT)


def test_frames_that_a_discipline_never_takes_are_counted_at_the_end(
    network: Network, far: Taken, has_dpdk: None
):
    """They wait in the ring of a device of DPDK's, which keeps their order."""
    network.run("tc qdisc replace dev near root tbf rate 400mbit burst 1000 limit 100kb")
    with network.call(Engine.open, sender("dpdk", THROUGH_DISCIPLINE)) as engine:
        queue = engine.ports[0].tx[0]
        queue.send(packets_of("dpdk", 20, SIZE))
        assert queue.wait_sent(60)
        queue.send(packets_of("dpdk", 20, 1400))
        assert not queue.wait_sent(0.2)
        assert queue.counters().held == 20
    counters = queue.counters()
    assert (counters.sent, counters.dropped["send_error"], counters.held) == (20, 20, 0)
    arrive_once(network, far, 20)


def test_a_server_sends_single_datagrams_where_a_discipline_would_cut_messages(
    network: Network, far: Taken
):
    """A server learns its peers later: the disciplines of all interfaces count."""
    for command in DISCIPLINES["tbf of small bursts"]:
        network.run(f"tc {command}")
    config = sender("udp", "10.9.0.1")
    config["interfaces"][0]["socket_config"] = {
        "mode": "server",
        "local_addr": "udp://10.9.0.1:4000",
    }
    with network.call(Engine.open, config) as engine:
        peer = engine.connect("10.9.0.2", PORT)
        queue = engine.ports[0].tx[0]
        queue.send(packets_of("udp", COUNT, 1000), connection_id=peer)
        assert queue.wait_sent(60)
        counters = queue.counters()
    assert (counters.sent, any(counters.dropped.values())) == (COUNT, False)
    arrive_once(network, far, COUNT)


def test_errors_of_a_dead_peer_are_read(networks: Callable[[], Network], network: Network):
    """The far host limits its errors, so that one is read with none behind it."""
    far = networks()
    network.run("ip link add near type veth peer name far")
    network.run(f"ip link set far netns /proc/{os.getpid()}/task/{far.thread_id}/ns/net")
    network.run("ip address add 10.9.0.1/24 dev near")
    far.run("ip address add 10.9.0.2/24 dev far")
    far.run("ip link set far up")
    network.run("ip link set near up")
    network.up("near")
    config = sender("udp", "10.9.0.1")
    port = config["interfaces"][0]
    port["rx"] = {"queues": [port["tx"]["queues"][0] | {"name": "rx0"}]}
    with network.call(Engine.open, config) as engine:
        queue = engine.ports[0].tx[0]
        for _ in range(5):
            queue.send([bytes(100 + n) for n in range(20)])
            assert queue.wait_sent(60)
        # A socket with an unread error would wake the poller again and again.
        wait_for(lambda: not sockets_with_errors())
        counters = queue.counters()
    assert (counters.sent, any(counters.dropped.values())) == (100, False)


def sockets_with_errors() -> list[int]:
    """Descriptors of this process with an unread error."""
    poll = select.poll()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.stat(int(name)).st_mode):
                poll.register(int(name), 0)
    return [fd for fd, events in poll.poll(0) if events & select.POLLERR]


def test_datagrams_that_a_discipline_never_takes_are_counted(network: Network, far: Taken):
    """A shaper refuses what is longer than its burst: after a while, it is no full device."""
    network.run("tc qdisc replace dev near root tbf rate 400mbit burst 1000 limit 100kb")
    short, long = packets_of("udp", 20, SIZE), packets_of("udp", 20, 1400)
    with network.call(Engine.open, sender("udp", "10.9.0.1")) as engine:
        queue = engine.ports[0].tx[0]
        queue.send(long)
        queue.send(short)
        assert queue.wait_sent(60)
        counters = queue.counters()
    assert (counters.sent, counters.dropped["send_error"]) == (20, 20)
    arrive_once(network, far, 20)


def test_a_link_that_is_switched_off_counts_what_it_did_not_send(
    network: Network, far: Taken, path: str
):
    """Packets are sent, then the sender's own end is down, then it is up again."""
    packets = packets_of(path, 3000, SIZE)
    address = "10.9.0.1" if path == "udp" else "near"
    with network.call(Engine.open, sender(path, address)) as engine:
        queue = engine.ports[0].tx[0]
        queue.send(packets[:1000])
        assert queue.wait_sent(60)
        network.run("ip link set near down")
        queue.send(packets[1000:2000])
        assert queue.wait_sent(60)
        network.up("near")
        network.run(f"ip neighbour replace 10.9.0.2 lladdr {NEIGHBOUR} dev near")
        queue.send(packets[2000:])
        assert queue.wait_sent(60)
        counters = queue.counters()
    assert (counters.sent, counters.dropped["send_error"]) == (2000, 1000)
    wait_for(lambda: len(far.numbers) >= 2000)
    assert far.numbers == [*range(1000), *range(2000, 3000)]


def test_packets_that_a_smaller_mtu_does_not_let_out_are_counted(
    network: Network, far: Taken, path: str
):
    """UDP datagrams are cut into fragments; frames are refused."""
    packets = packets_of(path, 2000, 1400)
    address = "10.9.0.1" if path == "udp" else "near"
    with network.call(Engine.open, sender(path, address)) as engine:
        queue = engine.ports[0].tx[0]
        queue.send(packets[:1000])
        assert queue.wait_sent(60)
        network.run("ip link set near mtu 1000")
        queue.send(packets[1000:])
        assert queue.wait_sent(60)
        counters = queue.counters()
    arrived = 2000 if path == "udp" else 1000
    assert (counters.sent, counters.dropped["send_error"]) == (arrived, 2000 - arrived)
    wait_for(lambda: len(far.numbers) >= arrived)
    assert sorted(set(far.numbers)) == list(range(arrived))


def test_an_interface_that_is_removed_counts_what_it_did_not_send(
    network: Network, far: Taken, raw: str
):
    packets = packets_of(raw, 2000, SIZE)
    with network.call(Engine.open, sender(raw, "near")) as engine:
        queue = engine.ports[0].tx[0]
        queue.send(packets[:1000])
        assert queue.wait_sent(60)
        wait_for(lambda: len(far.numbers) >= 1000)
        network.run("ip link delete near")
        queue.send(packets[1000:])
        assert queue.wait_sent(60)
        counters = queue.counters()
    assert (counters.sent, counters.dropped["send_error"]) == (1000, 1000)
    assert far.numbers == list(range(1000))


def test_the_longest_frames_are_those_of_the_mtu_and_a_tag(network: Network, far: Taken, raw: str):
    """Frames of the MTU, and one byte more; the same with an 802.1Q tag, four bytes longer."""
    frames = [packets_of(raw, 1, 1500 + more - 28)[0].tobytes() for more in (0, 1)]
    frames += [frame[:12] + b"\x81\x00\x00\x05" + frame[12:] for frame in frames]
    assert [len(frame) for frame in frames] == [1514, 1515, 1518, 1519]
    with network.call(Engine.open, sender(raw, "near")) as engine:
        queue = engine.ports[0].tx[0]
        queue.send(frames)
        assert queue.wait_sent(60)
        counters = queue.counters()
    assert (counters.sent, counters.dropped["send_error"]) == (2, 2)
    assert counters.sent_bytes == 1514 + 1518
    # The kernel takes the tag out before it gives the frame to packet sockets.
    wait_for(lambda: far.numbers == [0, 0])
