"""Servers without a peer, and ended connections: packets without a destination are rejected."""

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from free_ports import free_port
from waiting import wait_for

from daqiri_ophyd.engine import ConnectFailureError, Engine

Build = Callable[..., dict[str, Any]]


def test_a_udp_server_sends_once_it_has_a_peer(udp: Build) -> None:
    with Engine.open(udp()) as engine:
        server, client = engine.ports
        with pytest.raises(ConnectFailureError, match="0 of 1 packets: no client has sent") as e:
            server.tx[0].send([b"too early"])
        assert "transmit queue 'tx0' rejected connection 0" in str(e.value)
        with pytest.raises(ConnectFailureError, match="rejected connection 999999 .* no such"):
            server.tx[0].send([b"nowhere"], connection_id=999999)
        client.tx[0].send([b"hello"])
        burst = server.rx[0].receive(20)
        assert burst is not None
        for connection in (0, burst.connection_id):
            server.tx[0].send([b"welcome"], connection_id=connection)
            answer = client.rx[0].receive(20)
            assert answer is not None
            assert bytes(answer[0]) == b"welcome"
        counters = server.tx[0].counters()
        assert (counters.submitted, counters.dropped_total) == (2, 0)


def test_a_small_region_serves_both_directions(udp: Build) -> None:
    config = udp()
    (first, _) = config["memory_regions"]
    config["memory_regions"] = [first | {"num_bufs": 64}]
    for interface in config["interfaces"]:
        for side in ("rx", "tx"):
            interface[side]["queues"][0]["memory_regions"] = [first["name"]]
    with Engine.open(config) as engine:
        server, client = engine.ports
        for number in range(200):
            client.tx[0].send([b"%d" % number], timeout=20)
            burst = server.rx[0].receive(20)
            assert burst is not None
            assert bytes(burst[0]) == b"%d" % number
            server.tx[0].send([bytes(burst[0])], connection_id=burst.connection_id, timeout=20)
            burst.release()
            answer = client.rx[0].receive(20)
            assert answer is not None
            with answer:
                assert bytes(answer[0]) == b"%d" % number


def test_a_tcp_server_sends_while_it_has_a_peer(tcp: Build) -> None:
    port = free_port("tcp")
    with Engine.open(tcp("server", "127.0.0.1", port)) as engine:
        (queue,) = engine.ports[0].tx
        with pytest.raises(ConnectFailureError, match="no client is connected to the server"):
            queue.send([b"too early"])
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"hello")
            burst = engine.ports[0].rx[0].receive(20)
            assert burst is not None
            queue.send([b"welcome"], connection_id=burst.connection_id)
            assert peer.recv(7, socket.MSG_WAITALL) == b"welcome"
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: engine.ports[0].connections()[1].state == "closed")
        with pytest.raises(ConnectFailureError, match="the peer has closed the connection"):
            queue.send([b"too late"], connection_id=burst.connection_id)
        with pytest.raises(ConnectFailureError, match="no client is connected"):
            queue.send([b"too late"])
        assert queue.counters().dropped_total == 0


def test_a_send_that_loses_its_peer_tells_how_much_went(tcp: Build) -> None:
    port = free_port("tcp")
    with Engine.open(tcp("server", "127.0.0.1", port)) as engine:
        (queue,) = engine.ports[0].tx
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"hello")
            burst = engine.ports[0].rx[0].receive(20)
            assert burst is not None
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

            def leave() -> None:
                peer.recv(1_000_000, socket.MSG_WAITALL)
                peer.close()

            thread = threading.Thread(target=leave)
            thread.start()
            # More than the buffers of the kernel and the engine hold.
            with pytest.raises(ConnectFailureError, match=r"of 100000 packets: ") as e:
                queue.send(np.zeros((100_000, 1000), np.uint8), timeout=20)
            thread.join()
        counters = queue.counters()
        assert 0 < e.value.submitted == counters.submitted < 100_000


def test_what_a_tcp_client_sends_waits_for_its_server(tcp: Build) -> None:
    port = free_port("tcp")
    with Engine.open(tcp("client", "127.0.0.1", port)) as client:
        client.ports[0].tx[0].send([b"early"])
        assert client.ports[0].tx[0].counters().held == 1
        with Engine.open(tcp("server", "127.0.0.1", port)) as server:
            burst = server.ports[0].rx[0].receive(20)
            assert burst is not None
            assert bytes(burst[0]) == b"early"
