"""Interfaces under a device of engine ``dpdk`` that go down, or away, while packets cross them."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from networks import Network, packet_statistics
from waiting import wait_for

from daqiri_ophyd.engine import Engine, Port, ethernet

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("has_dpdk")]
Config = dict[str, Any]
BURST = 64
ETH_P_ALL = 3
# Address of the device, the interface that ends, and the one at which its frames arrive.
DEVICES = {
    "net_af_packet": ("net_af_packet0,iface=near", "near", "far"),
    "net_tap": ("net_tap0,iface=dtap0", "dtap0", "dtap0"),
}
ENDS = {"down": "ip link set {} down", "removed": "ip link delete {}"}


def configuration(address: str) -> Config:
    def queue(name: str) -> Config:
        return {
            "name": name,
            "id": 0,
            "cpu_core": "any",
            "batch_size": BURST,
            "memory_regions": [f"{name}_buffers"],
        }

    regions = [
        {"name": f"{name}_buffers", "kind": "host", "num_bufs": 4096, "buf_size": 2048}
        for name in ("rx", "tx")
    ]
    port = {
        "name": "port0",
        "address": address,
        "rx": {"queues": [queue("rx") | {"timeout_us": 1000}]},
        "tx": {"queues": [queue("tx")]},
    }
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "engine": "dpdk",
        "log_level": "error",
        "memory_regions": regions,
        "interfaces": [port],
    }


FRAMES = ethernet.udp_frames(
    (BURST, 200),
    src_mac="02:00:00:00:00:01",
    dst_mac="02:00:00:00:00:02",
    src_ip="192.0.2.1",
    dst_ip="192.0.2.2",
    src_port=4000,
    dst_port=5000,
)


@contextlib.contextmanager
def repeated(action: Callable[[], object]) -> Iterator[None]:
    """Do something again and again in a thread; the kernel may refuse it."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            with contextlib.suppress(OSError):
                action()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def packet_socket(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.bind((interface, ETH_P_ALL))
    made.setblocking(False)
    return made


def consume(port: Port) -> None:
    if (burst := port.rx[0].receive(0.01)) is not None:
        burst.release()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    return DEVICES[request.param]


@pytest.fixture
def network(card: Callable[..., Network], device: tuple[str, str, str]) -> Network:
    made = card(mtu=1500)
    if device[1] == "dtap0":
        made.add_tap("dtap0")
        made.run("ip link set dtap0 up")
    return made


@pytest.mark.parametrize("end", ENDS)
def test_an_interface_ends_while_packets_cross_it(
    network: Network, device: tuple[str, str, str], end: str
) -> None:
    """Nothing blocks, and each packet is sent, or counted; also those that are sent later."""
    address, interface, far = device
    with network.call(Engine.open, configuration(address)) as engine:
        (port,) = engine.ports
        rx, tx = port.rx[0], port.tx[0]
        wire = network.call(packet_socket, far)
        with wire, repeated(lambda: consume(port)):
            with repeated(lambda: tx.send(FRAMES)), repeated(lambda: wire.send(FRAMES[0])):
                wait_for(lambda: tx.counters().sent > 5000 and rx.counters().received > 1000)
                network.run(ENDS[end].format(interface))
                wait_for(lambda: tx.counters().dropped["send_error"] > 1000)
            assert port.link().state == end
            if end == "down":
                network.up(interface)
                wait_for(lambda: port.link().state == "up")
            assert tx.wait_sent(20)
            counters = tx.counters()
            assert counters.held == 0
            assert counters.submitted == counters.sent + counters.dropped_total
            assert counters.dropped_total == counters.dropped["send_error"]
            arrived, _ = packet_statistics(wire)
            if end == "down":
                assert arrived == counters.sent
            assert tx.send(FRAMES) == BURST
            assert tx.wait_sent(20)
            after = tx.counters()
            if end == "down":
                assert (after.sent, after.dropped_total) == (
                    counters.sent + BURST,
                    counters.dropped_total,
                )
                assert packet_statistics(wire)[0] == BURST
                before = rx.counters().received
                # The first call would fail: the interface was down.
                wire.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                for frame in FRAMES:
                    wire.send(frame)
                wait_for(lambda: rx.counters().received == before + BURST)
            else:
                assert (after.sent, after.dropped_total) == (
                    counters.sent,
                    counters.dropped_total + BURST,
                )
    counters = rx.counters()
    assert counters.received == counters.delivered + counters.dropped_total
    assert counters.dropped_total == counters.dropped["flushed"]
