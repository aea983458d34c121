"""UDP with independent peers: plain sockets, and the kernel of a network namespace."""

import contextlib
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packet_bytes import packets_of

from daqiri_ophyd.engine import Burst, Engine, RxQueue

Receive = Callable[[RxQueue, int], list[Burst]]
Build = Callable[..., dict[str, Any]]

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
FAMILIES = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


@contextlib.contextmanager
def plain(host: str = "127.0.0.1", buffer: int = 0) -> Iterator[socket.socket]:
    """An ordinary socket, bound to any port."""
    with socket.socket(FAMILIES[host], socket.SOCK_DGRAM) as peer:
        if buffer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        peer.bind((host, 0))
        peer.settimeout(20.0)
        yield peer


def server_of(config: dict[str, Any], host: str) -> tuple[str, int]:
    address = config["interfaces"][0]["socket_config"]["local_addr"]
    return host, int(address.rsplit(":", 1)[1])


def datagrams(sizes: list[int], seed: int = 0) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, size, dtype=np.uint8).tobytes() for size in sizes]


def client_of(peer: socket.socket, host: str, config: dict[str, Any]) -> dict[str, Any]:
    """The sender of a configuration alone, sending to a plain socket."""
    written = f"[{host}]" if ":" in host else host
    sender = config["interfaces"][1]
    sender["socket_config"]["remote_addr"] = f"udp://{written}:{peer.getsockname()[1]}"
    config["interfaces"] = [sender]
    for region in config["memory_regions"]:
        region["buf_size"] = 16384
    return config


@pytest.mark.parametrize("host", FAMILIES)
@pytest.mark.parametrize("segment", [0, 100, 1000, 1999])
def test_a_plain_sender(udp: Build, receive_all: Receive, host: str, segment: int) -> None:
    config = udp(host=host)
    with Engine.open(config) as engine, plain(host) as peer:
        rx = engine.port("receiver").rx[0]
        peer.connect(server_of(config, host))
        sent: list[bytes] = []
        for i in range(30):
            if segment:
                peer.setsockopt(SOL_UDP, UDP_SEGMENT, segment)
                row = datagrams([segment] * (i % 20) + [1 + i * segment // 40], i)
                peer.send(b"".join(row))
            else:
                row = datagrams(list(range(1, 1 + i * 60, 60)), i)
                for datagram in row:
                    peer.send(datagram)
            assert packets_of(receive_all(rx, len(row))) == row if row else True
            sent += row
        counters = rx.counters()
        assert counters.received == counters.delivered == len(sent)
        assert counters.received_bytes == sum(map(len, sent))
        assert counters.truncated == 0


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 2500), st.integers(1, 60), st.integers(1, 2500)), min_size=1
    )
)
def test_rows_of_any_make(
    udp: Build, receive_all: Receive, rows: list[tuple[int, int, int]]
) -> None:
    """Datagrams of any size and number: all bytes that fit are correct."""
    config = udp()
    with Engine.open(config) as engine, plain() as peer:
        rx = engine.port("receiver").rx[0]
        peer.connect(server_of(config, "127.0.0.1"))
        cut = 0
        for i, (segment, count, last) in enumerate(rows):
            count = min(count, 60000 // segment)
            row = datagrams([segment] * (count - 1) + [min(segment, last)], i)
            peer.setsockopt(SOL_UDP, UDP_SEGMENT, segment)
            peer.send(b"".join(row))
            assert packets_of(receive_all(rx, count)) == [datagram[:2048] for datagram in row]
            cut += sum(len(datagram) > 2048 for datagram in row)
        assert rx.counters().truncated == cut
        assert rx.counters().dropped_total == 0


@pytest.mark.parametrize("host", FAMILIES)
@pytest.mark.parametrize("together", [False, True])
def test_a_plain_receiver(udp: Build, host: str, together: bool) -> None:
    sent = datagrams([1000] * 40 + [7, 1000, 1001, 1002] + [8000] * 9 + [0, 1], 5)
    with plain(host, 1 << 20) as peer:
        if together:
            peer.setsockopt(SOL_UDP, UDP_GRO, 1)
        with Engine.open(client_of(peer, host, udp(host=host))) as engine:
            tx = engine.port("sender").tx[0]
            assert tx.send(sent) == len(sent)
            got: list[bytes] = []
            messages = 0
            while len(got) < len(sent):
                data, control, _, _ = peer.recvmsg(65536, 1024)
                messages += 1
                sizes = [
                    int.from_bytes(value, sys.byteorder)
                    for level, kind, value in control
                    if (level, kind) == (SOL_UDP, UDP_GRO)
                ]
                step = sizes[0] if sizes else max(len(data), 1)
                got += [data[i : i + step] for i in range(0, max(len(data), 1), step)]
            assert got == sent
            assert (messages < len(sent) // 4) == together
            assert tx.wait_sent(20.0)
            assert tx.counters().sent == len(sent)
            assert tx.counters().sent_bytes == sum(map(len, sent))


NAMESPACE = """
    import subprocess, sys
    import numpy as np
    from daqiri_ophyd.engine import Engine
    for command in (
        "ip link set lo up mtu 1500",
        "ip -6 route add local ff00::/8 dev lo table local",
    ):
        subprocess.run(command.split(), check=True)

    def queue(name, region):
        return {"name": name, "id": 0, "cpu_core": "any", "batch_size": 64,
                "memory_regions": [region]}

    def interface(name, address, **sockets):
        return {"name": name, "address": address, "socket_config": sockets,
                "rx": {"queues": [queue(name + "-rx", "rx") | {"timeout_us": 500}]},
                "tx": {"queues": [queue(name + "-tx", "tx")]}}

    def config(*interfaces):
        region = {"kind": "host", "num_bufs": 1024, "buf_size": 4096}
        return {"version": 1, "master_core": 0, "stream_type": "socket", "log_level": "error",
                "memory_regions": [region | {"name": "rx"}, region | {"name": "tx"}],
                "interfaces": list(interfaces)}

    def carry(group, address):
        receivers = [interface(f"receiver{i}", address, mode="server", local_addr=group)
                     for i in range(2)]
        sender = interface("sender", address, mode="client", remote_addr=group.replace("%lo", ""))
        # Longer than the path carries in one piece at the end, so that rows are refused there.
        for size in (500, 1400, 3000):
            packets = np.random.default_rng(size).integers(0, 256, (200, size), dtype=np.uint8)
            with Engine.open(config(*receivers, sender)) as engine:
                tx = engine.port("sender").tx[0]
                assert tx.send(packets) == 200
                for i in range(2):
                    rx = engine.port(f"receiver{i}").rx[0]
                    got = []
                    while len(got) < 200:
                        burst = rx.receive(20.0)
                        assert burst is not None, rx.counters()
                        got += [view.tobytes() for view in burst]
                    assert got == [row.tobytes() for row in packets]
                # The peer has a packet before its sender has counted it.
                assert tx.wait_sent(20.0), tx.counters()
                assert tx.counters().sent == 200, tx.counters()
                assert tx.counters().dropped_total == 0, tx.counters()
        print("carried", group)

    carry(sys.argv[1], sys.argv[2])
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("group", "address"),
    [
        ("udp://239.255.78.40:45000", "127.0.0.1"),
        ("udp://[ff15::4e40]:45000", "lo"),
        ("udp://[ff15::4e40%lo]:45000", "::1"),
    ],
)
def test_groups_in_a_namespace(group: str, address: str) -> None:
    """Multicast, and datagrams that need fragments, over a loopback interface with MTU 1500."""
    script = [sys.executable, "-c", textwrap.dedent(NAMESPACE), group, address]
    done = subprocess.run(
        ["unshare", "--net", *script], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"carried {group}\n"


@pytest.mark.parametrize("timeout_us", [0, 600_000_000])
def test_open_bursts_of_many_peers_do_not_hold_every_buffer(udp: Build, timeout_us: int) -> None:
    """A burst waits until it is full, and none of these can be."""
    config = udp(rx={"batch_size": 64, "timeout_us": timeout_us})
    config["memory_regions"][0]["num_bufs"] = 1024
    rows, peers = 60, 20
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(Engine.open(config))
        sockets = [stack.enter_context(plain()) for _ in range(peers)]
        rx = engine.port("receiver").rx[0]
        for peer in sockets:
            peer.connect(server_of(config, "127.0.0.1"))
        for row in range(rows):
            for peer in sockets:
                peer.send(row.to_bytes(4, "little"))
        seen = False
        for _ in range(100):
            for _ in range(64):
                sockets[0].send(b"again")
            while (burst := rx.receive(timeout=0.02)) is not None:
                seen = seen or b"again" in packets_of([burst])
                burst.release()
            if seen:
                break
        assert seen
        counters = rx.counters()
        assert counters.received == counters.delivered + counters.held + counters.dropped_total
