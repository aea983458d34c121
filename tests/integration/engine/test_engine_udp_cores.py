"""Receive queues of one UDP server on several cores."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_port
from packet_bytes import packets_of
from waiting import eventually

from daqiri_ophyd.engine import Burst, ConnectFailureError, Engine, PcapFile, RxQueue

Config = dict[str, Any]
Receive = Callable[[RxQueue, int], list[Burst]]
QUEUES, EACH = 3, 200


class Peers:
    """Sockets that send numbered datagrams."""

    def __init__(self, count: int, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sockets = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(count)]
        for each in self.sockets:
            each.bind((host, 0))
            each.connect((host, port))
        self.ports = [each.getsockname()[1] for each in self.sockets]

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sockets:
            each.close()

    def send(self, count: int) -> list[list[bytes]]:
        """Send from all in turn; the datagrams of each."""
        sent = [
            [bytes([i]) + n.to_bytes(4, "big") for n in range(count)]
            for i in range(len(self.sockets))
        ]
        for n in range(count):
            for each, datagrams in zip(self.sockets, sent, strict=True):
                each.send(datagrams[n])
        return sent


def configuration(host: str, port: int, sources: list[int], **keys: Any) -> Config:
    """Queues on separate threads, each with a region and a flow from one source port."""
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    on = [cores[0], "any", cores[-1]]
    at = f"[{host}]" if ":" in host else host
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket",
        "log_level": "error",
        "memory_regions": [
            {"name": f"region{i}", "kind": "host", "num_bufs": 4096, "buf_size": 2048}
            for i in range(QUEUES)
        ],
        "interfaces": [
            {
                "name": "server",
                "address": host,
                "socket_config": {"mode": "server", "local_addr": f"udp://{at}:{port}"},
                "rx": {
                    "queues": [
                        {
                            "name": f"rx{i}",
                            "id": i,
                            "cpu_core": on[i],
                            "batch_size": 64,
                            "timeout_us": 500,
                            "memory_regions": [f"region{i}"],
                        }
                        | keys
                        for i in range(QUEUES)
                    ],
                    "flows": [
                        {
                            "name": f"flow{i}",
                            "id": 7 + i,
                            "match": {"udp_src": source},
                            "action": {"type": "queue", "id": i % QUEUES},
                        }
                        for i, source in enumerate(sources)
                    ],
                },
            }
        ],
    }


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_each_queue_gets_its_own_in_order(host: str, receive_all: Receive, watch: Any) -> None:
    port = free_port("udp", host)
    with (
        Peers(QUEUES + 1, host, port) as peers,
        # The last peer has no flow.
        Engine.open(configuration(host, port, peers.ports[:QUEUES])) as engine,
        watch(engine),
    ):
        (server,) = engine.ports
        for _ in range(5):
            sent = peers.send(EACH)
            for i, queue in enumerate(server.rx):
                expected = {7 + i: sent[i]} | ({0: sent[QUEUES]} if i == 0 else {})
                found: dict[int, list[bytes]] = {}
                for burst in receive_all(queue, EACH * len(expected)):
                    for flow, packet in zip(burst.flow_ids, packets_of([burst]), strict=True):
                        found.setdefault(int(flow), []).append(packet)
                assert found == expected
        for i, (queue, flow) in enumerate(zip(server.rx, server.flows, strict=True)):
            counters = queue.counters()
            count = 5 * EACH * (2 if i == 0 else 1)
            assert (counters.received, counters.delivered, counters.dropped_total) == (
                count,
                count,
                0,
            )
            assert counters.received_bytes == 5 * count
            assert (flow.counters().packets, flow.counters().bytes) == (5 * EACH, 25 * EACH)


def test_a_slow_queue_loses_only_its_own(receive_all: Receive) -> None:
    port = free_port("udp")
    with Peers(QUEUES, "127.0.0.1", port) as peers:
        config = configuration("127.0.0.1", port, peers.ports)
        config["memory_regions"][1]["num_bufs"] = 300
        with Engine.open(config) as engine:
            (server,) = engine.ports
            for _ in range(10):
                sent = peers.send(EACH)
                for i in (0, 2):
                    assert packets_of(receive_all(server.rx[i], EACH)) == sent[i]
            slow = server.rx[1]
            assert eventually(lambda: slow.counters().received == 10 * EACH)
            counters = slow.counters()
            lost = counters.dropped["no_packet_buffer"]
            assert lost == counters.dropped_total > 0
            kept = packets_of(receive_all(slow, 10 * EACH - lost))
            assert kept == (10 * sent[1])[: len(kept)]
            assert server.flows[1].counters().packets == 10 * EACH
            assert sum(server.rx[i].counters().dropped_total for i in (0, 2)) == 0


def test_a_recorder_of_a_queue(receive_all: Receive, tmp_path: Path) -> None:
    port = free_port("udp")
    with (
        Peers(QUEUES, "127.0.0.1", port) as peers,
        Engine.open(configuration("127.0.0.1", port, peers.ports)) as engine,
    ):
        (server,) = engine.ports
        with server.rx[1].record(tmp_path, "capture", max_packets=EACH) as recorder:
            sent = peers.send(EACH)
            assert recorder.wait(30.0)
        (file,) = recorder.files()
        for i in (0, 2):
            assert packets_of(receive_all(server.rx[i], EACH)) == sent[i]
    with PcapFile(file.path) as capture:
        # Behind the headers of IPv4 and UDP.
        assert [bytes(each)[28:] for each in capture] == sent[1]


def test_the_port_is_not_shared(receive_all: Receive) -> None:
    port = free_port("udp")
    with Peers(QUEUES, "127.0.0.1", port) as peers:
        config = configuration("127.0.0.1", port, peers.ports)
        with (
            Engine.open(config) as engine,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief,
        ):
            for other in (config, configuration("127.0.0.1", port, [1])):
                with pytest.raises(ConnectFailureError, match="another socket has this port"):
                    Engine.open(other)
            # The kernel lets programs of the same user in; they get nothing.
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            thief.bind(("127.0.0.1", port))
            thief.setblocking(False)
            sent = peers.send(EACH)
            for i, queue in enumerate(engine.ports[0].rx):
                assert packets_of(receive_all(queue, EACH)) == sent[i]
            with pytest.raises(BlockingIOError):
                thief.recv(100)


def test_lengths_reach_their_queue_in_order(receive_all: Receive) -> None:
    """The kernel does not know them: another core hands these datagrams over."""
    port = free_port("udp")
    with Peers(1, "127.0.0.1", port) as peers:
        config = configuration("127.0.0.1", port, [1, 2, 3])
        for i, flow in enumerate(config["interfaces"][0]["rx"]["flows"]):
            flow["match"] = {"ipv4_len": 28 + 100 + i}
        with Engine.open(config) as engine:
            (server,) = engine.ports
            (wire,) = peers.sockets
            made = np.random.default_rng(1).integers(0, 256, (EACH, 100 + QUEUES), np.uint8)
            rows = [row.tobytes() for row in made]
            for row in rows:
                for i in range(QUEUES):
                    wire.send(row[: 100 + i])
            for i, queue in enumerate(server.rx):
                assert packets_of(receive_all(queue, EACH)) == [row[: 100 + i] for row in rows]
                assert queue.counters().dropped_total == 0
