"""Engines over real UDP sockets."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    LINKTYPE_RAW,
    Burst,
    DaqiriError,
    Engine,
    InvalidParameterError,
    PcapFile,
    RxQueue,
    ethernet,
)

Receive = Callable[[RxQueue, int], list[Burst]]
Build = Callable[..., dict[str, Any]]


def numbered(count: int, size: int = 200) -> NDArray[np.uint8]:
    return np.random.default_rng(count).integers(0, 256, (count, size), dtype=np.uint8)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_datagrams_arrive_as_they_were_sent(udp: Build, receive_all: Receive, host: str) -> None:
    sent = numbered(500)
    with Engine.open(udp(host=host)) as engine:
        assert engine.name == "socket"
        receiver, sender = engine.port("receiver"), engine.port("sender")
        assert receiver.link_type == sender.link_type == LINKTYPE_RAW
        before = receiver.now()
        lengths = np.arange(500) % 200 + 1
        assert sender.tx[0].send(sent, lengths=lengths) == 500
        bursts = receive_all(receiver.rx[0], 500)
        got = [view.tobytes() for burst in bursts for view in burst]
        assert got == [row[:n].tobytes() for row, n in zip(sent, lengths, strict=True)]
        stamps = np.concatenate([burst.timestamps for burst in bursts])
        assert before <= stamps.min() <= stamps.max() <= receiver.now()


def test_answers_go_back_by_connection(udp: Build, receive_all: Receive) -> None:
    with Engine.open(udp()) as engine:
        receiver, sender = engine.port("receiver"), engine.port("sender")
        sender.tx[0].send([b"question"])
        (question,) = receive_all(receiver.rx[0], 1)
        assert question.connection_id != 0
        receiver.tx[0].send([b"answer"], connection_id=question.connection_id)
        (answer,) = receive_all(sender.rx[0], 1)
        assert answer[0].tobytes() == b"answer"


def test_one_peer_among_many(udp: Build, receive_all: Receive) -> None:
    config = udp()
    where = config["interfaces"][0]["socket_config"]["local_addr"].rsplit(":", 1)
    address = ("127.0.0.1", int(where[1]))
    with Engine.open(config) as engine:
        rx = engine.port("receiver").rx[0]
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as a,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as b,
        ):
            ids: dict[bytes, int] = {}
            for peer, name in ((a, b"a"), (b, b"b")):
                peer.sendto(name, address)
                (burst,) = receive_all(rx, 1)
                ids[burst[0].tobytes()] = burst.connection_id
            assert ids.keys() == {b"a", b"b"}
            assert len(set(ids.values())) == 2
            a.sendto(b"from a", address)
            b.sendto(b"from b", address)
            for name in (b"b", b"a"):
                burst = rx.receive_from(ids[name], 20.0)
                assert burst is not None
                assert burst[0].tobytes() == b"from " + name
            # A wait for one peer ends in time even if the other has sent.
            b.sendto(b"more", address)
            assert rx.receive_from(ids[b"a"], 0.1) is None
            with pytest.raises(InvalidParameterError, match="no connection 12345"):
                rx.receive_from(12345)


def test_more_peers_than_bursts(udp: Build, receive_all: Receive) -> None:
    config = udp()
    where = config["interfaces"][0]["socket_config"]["local_addr"].rsplit(":", 1)
    address = ("127.0.0.1", int(where[1]))
    count = 1200
    sources = [f"127.9.{1 + i // 250}.{1 + i % 250}" for i in range(count)]

    def send(i: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            # The same source port each time: a peer that reconnects is the same one.
            peer.bind((sources[i], address[1]))
            peer.sendto(i.to_bytes(4, "big"), address)

    with Engine.open(config) as engine:
        receiver = engine.port("receiver")
        rx = receiver.rx[0]
        ids: dict[int, int] = {}
        for start in range(0, count, 100):
            for i in range(start, start + 100):
                send(i)
            for burst in receive_all(rx, 100):
                for view in burst:
                    ids[int.from_bytes(view, "big")] = burst.connection_id
                burst.release()
        assert len(ids) == len(set(ids.values())) == count
        assert 0 not in ids.values()
        listed = {c.id for c in receiver.connections()} - {
            engine.server_connection(*address),
        }
        assert listed == set(ids.values())
        assert rx.receive_from(ids[0], timeout=0) is None
        send(0)
        (burst,) = receive_all(rx, 1)
        assert burst.connection_id == ids[0]
        assert burst[0].tobytes() == bytes(4)
        counters = rx.counters()
        assert counters.received == counters.delivered == count + 1
        assert sum(counters.dropped.values()) == 0


def test_long_datagrams_are_cut_and_counted(udp: Build, receive_all: Receive) -> None:
    config = udp()
    config["memory_regions"][0]["buf_size"] = 100
    with Engine.open(config) as engine:
        rx, tx = engine.port("receiver").rx[0], engine.port("sender").tx[0]
        tx.send([bytes(100), bytes(101), bytes(99)])
        lengths = [len(view) for burst in receive_all(rx, 3) for view in burst]
        assert lengths == [100, 100, 99]
        assert rx.counters().truncated == 1


def test_the_payload_limit_is_known_before_sending(udp: Build) -> None:
    config = udp()
    config["interfaces"][1]["socket_config"]["max_payload_size"] = 512
    with Engine.open(config) as engine:
        tx = engine.port("sender").tx[0]
        assert tx.max_packet_size == 512
        with pytest.raises(InvalidParameterError, match="has 513 bytes; .* up to 512"):
            tx.send([bytes(513)])
        assert tx.send([bytes(512)]) == 1


def test_a_recording_has_the_payloads_and_the_headers(
    udp: Build, receive_all: Receive, tmp_path: Path
) -> None:
    sent = numbered(300)
    with Engine.open(udp()) as engine:
        rx, tx = engine.port("receiver").rx[0], engine.port("sender").tx[0]
        with rx.record(tmp_path, max_packets=300) as recorder:
            tx.send(sent)
            while recorder.snapshot().running:
                assert recorder.wait(60)
        (file,) = recorder.files()
        with PcapFile(file.path) as pcap:
            assert pcap.link_type == LINKTYPE_RAW
            offsets, lengths = ethernet.udp_payload(pcap)
            assert (lengths == 200).all()
            # Sent again, without unpacking in Python.
            assert tx.send(pcap.data, offsets=offsets, lengths=lengths) == 300
        again = np.concatenate([burst.gather() for burst in receive_all(rx, 300)])
        assert np.array_equal(again, sent)


def test_an_address_that_is_taken(udp: Build) -> None:
    config = udp()
    with Engine.open(config):
        with pytest.raises(DaqiriError, match="in use"):
            Engine.open(config)
    with Engine.open(config):
        pass


def test_several_threads_wait_and_close_wakes_them(udp: Build) -> None:
    engine = Engine.open(udp())
    rx = engine.port("receiver").rx[0]
    ended: list[list[Burst]] = []
    threads = [
        threading.Thread(target=lambda: ended.append(list(rx.bursts(None)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    engine.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert ended == [[]] * 4
