"""spead2, an independent sender and receiver: what it sends arrives here byte for byte, and what we
send, it takes. UDP and multicast over IPv4 and IPv6, and TCP."""

import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spead2
import spead2.recv
import spead2.send
import yaml
from free_ports import free_port
from numpy.typing import NDArray

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import Engine, RxQueue

Build = Callable[..., dict[str, Any]]
Heaps = list[NDArray[np.uint8]]

TIMEOUT = 20.0
HOSTS = ["127.0.0.1", "::1"]


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def made_heaps() -> Heaps:
    return [np.random.default_rng(i).integers(0, 256, 50_000, dtype=np.uint8) for i in range(12)]


def send_heaps(stream: Any, heaps: Heaps) -> int:
    """Return how many bytes were sent."""
    group = spead2.send.ItemGroup()
    group.add_item(0x1000, "data", "bytes of a heap", shape=heaps[0].shape, dtype=np.uint8)
    sent = 0
    for heap in heaps:
        group["data"].value = heap
        sent += stream.send_heap(group.get_heap(descriptors="all"))
    return sent + stream.send_heap(group.get_end())


def reader() -> Any:
    ring = spead2.recv.RingStreamConfig(heaps=32)
    return spead2.recv.Stream(spead2.ThreadPool(), spead2.recv.StreamConfig(max_heaps=16), ring)


def check_heaps(stream: Any, heaps: Heaps) -> None:
    group = spead2.ItemGroup()
    got = [group.update(heap)["data"].value.copy() for heap in stream if heap.get_items()]
    for one, sent in zip(got, heaps, strict=True):
        np.testing.assert_array_equal(one, sent)


def receive(queue: RxQueue, length: int) -> list[bytes]:
    packets: list[bytes] = []
    got = 0
    while got < length:
        burst = queue.receive(TIMEOUT)
        assert burst is not None, f"{got} of {length} bytes: {queue.counters()}"
        packets += [view.tobytes() for view in burst]
        got += sum(map(int, burst.lengths))
    assert got == length
    return packets


def udp_both_ways(udp: Build, address: str, group: str | None = None) -> None:
    """From its sender into our receiver, and from our sender into its receiver.

    ``address`` is where both are, ``group`` where packets go if not there.
    """
    heaps = made_heaps()
    to = group or address
    # Slow enough for any socket's buffer.
    sending = spead2.send.StreamConfig(max_packet_size=1472, rate=50e6)
    multicast: dict[str, Any] = {}
    if group is not None:
        six = ":" in group
        multicast = {"ttl": 1} | ({"interface_index": 1} if six else {"interface_address": address})
    config = udp(host=address)
    server, client = config["interfaces"]
    port = int(server["socket_config"]["local_addr"].rsplit(":", 1)[1])
    server["socket_config"]["local_addr"] = f"udp://{written(to)}:{port}"
    with Engine.open(config | {"interfaces": [server]}) as engine:
        rx = engine.ports[0].rx[0]
        stream = spead2.send.UdpStream(spead2.ThreadPool(), [(to, port)], sending, **multicast)
        packets = receive(rx, send_heaps(stream, heaps))
        assert rx.counters().dropped_total == rx.counters().truncated == 0
    # What was received is what was sent: spead2 reads it from memory.
    memory = reader()
    memory.add_buffer_reader(b"".join(packets))
    check_heaps(memory, heaps)
    wire = reader()
    multicast.pop("ttl", None)
    where = {"multicast_group": group} if group is not None else {"bind_hostname": address}
    wire.add_udp_reader(port=port, buffer_size=1 << 20, **where, **multicast)
    client["socket_config"]["remote_addr"] = f"udp://{written(to)}:{port}"
    client["tx"]["queues"][0]["pacing_mbps"] = 400
    with Engine.open(config | {"interfaces": [client]}) as engine:
        tx = engine.ports[0].tx[0]
        assert tx.send(packets) == len(packets)
        assert tx.wait_sent(TIMEOUT)
        check_heaps(wire, heaps)


@pytest.mark.parametrize("host", HOSTS)
def test_udp(udp: Build, host: str) -> None:
    udp_both_ways(udp, host)


@pytest.mark.root
@pytest.mark.parametrize(
    ("address", "group"), [("127.0.0.1", "239.255.78.41"), ("::1", "ff15::4e41")]
)
def test_multicast(udp: Build, networks: Callable[[], Any], address: str, group: str) -> None:
    network = networks()
    network.run("ip -6 route add local ff00::/8 dev lo table local")
    network.call(udp_both_ways, udp, address, group)


def test_heaps_of_a_sender_in_default_settings_become_frames() -> None:
    # Interleaved, with descriptors and the end of the stream as heaps of their own. Only the first
    # packet of a heap has all items, so that its header is longer.
    config = yaml.safe_load(profiles.path("spead").read_text())["daqiri"]["cfg"]
    receiver = config["interfaces"][0]
    port = free_port("udp", "127.0.0.1")
    receiver["socket_config"]["local_addr"] = f"udp://127.0.0.1:{port}"
    receiver["rx"]["reorder_configs"][0]["window"] = 4
    random = np.random.default_rng(2)
    sent = random.integers(-128, 128, (12, 64, 512, 2), dtype=np.int8)
    with Engine.open(config | {"interfaces": [receiver]}) as engine:
        plan = engine.ports[0].reorder["heaps"]
        stream = spead2.send.UdpStream(
            spead2.ThreadPool(),
            [("127.0.0.1", port)],
            spead2.send.StreamConfig(max_packet_size=1472, max_heaps=8, rate=100e6),
        )
        group = spead2.send.ItemGroup()
        group.add_item(0x1000, "voltages", "of channels", shape=sent[0].shape, dtype=np.int8)
        group.add_item(0x1001, "time", "of the heap", shape=(), format=[("u", 40)])
        with plan.frames(timeout=TIMEOUT) as frames:
            stream.send_heap(group.get_heap(descriptors="all", data="none"))
            for first in range(0, len(sent), 4):
                heaps = []
                for number in range(first, first + 4):
                    group["voltages"].value, group["time"].value = sent[number], number
                    heaps.append(group.get_heap(descriptors="none", data="all"))
                stream.send_heaps(
                    [spead2.send.HeapReference(heap) for heap in heaps],
                    spead2.send.GroupMode.ROUND_ROBIN,
                )
            stream.send_heap(group.get_end())
            got = [next(frames) for _ in sent]
            for frame, heap in zip(got, sent, strict=True):
                np.testing.assert_array_equal(frame.data, heap)
            assert [frame.batch for frame in got] == list(range(2, 14))
            end = time.monotonic() + TIMEOUT
            while plan.counters().left_out < 2 and time.monotonic() < end:
                time.sleep(0.001)
        counters = plan.counters()
    assert (counters.complete, counters.incomplete, counters.skipped) == (12, 0, 0)
    assert counters.packets == counters.placed + counters.left_out
    assert counters.left_out == 2


@pytest.mark.parametrize("host", HOSTS)
def test_tcp(tcp: Build, host: str) -> None:
    heaps = made_heaps()
    port = free_port("tcp", host)
    with Engine.open(tcp("server", host, port)) as engine:
        stream = spead2.send.TcpStream(
            spead2.ThreadPool(), [(host, port)], spead2.send.StreamConfig(max_packet_size=1472)
        )
        data = b"".join(receive(engine.ports[0].rx[0], send_heaps(stream, heaps)))
        del stream
    with socket.create_server((host, 0), family=family_of(host)) as listener:
        wire = reader()
        wire.add_tcp_reader(listener)
        with Engine.open(tcp("client", host, listener.getsockname()[1])) as engine:
            # Cut anywhere: the stream is what counts.
            pieces = [data[at : at + 1009] for at in range(0, len(data), 1009)]
            assert engine.ports[0].tx[0].send(pieces, timeout=TIMEOUT) == len(pieces)
            check_heaps(wire, heaps)
