"""Engines over real TCP connections."""

import contextlib
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from waiting import eventually

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import (
    LINKTYPE_RAW,
    ConnectFailureError,
    Engine,
    GenericFailureError,
    InvalidParameterError,
    NotReadyError,
    NotSupportedError,
    RxQueue,
    TxQueue,
)

Config = dict[str, Any]
Build = Callable[..., Config]
TIMEOUT = 20.0


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def stream(length: int, seed: int = 0) -> bytes:
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, length, dtype="u1").tobytes()


def receive_bytes(queue: RxQueue, length: int, connection: int | None = None) -> bytes:
    """Receive so many bytes, or fewer if no more arrive."""
    got = bytearray()
    while len(got) < length:
        if connection is None:
            burst = queue.receive(TIMEOUT)
        else:
            burst = queue.receive_from(connection, TIMEOUT)
        if burst is None:
            break
        for view in burst:
            got += view.tobytes()
        burst.release()
    return bytes(got)


def send_bytes(queue: TxQueue, data: bytes, piece: int, connection: int = 0) -> None:
    packets = [data[at : at + piece] for at in range(0, len(data), piece)]
    queue.send(packets, connection_id=connection, timeout=TIMEOUT)


def read_exactly(peer: socket.socket, length: int) -> bytes:
    got = bytearray()
    while len(got) < length:
        part = peer.recv(min(1 << 16, length - len(got)))
        if not part:
            break
        got += part
    return bytes(got)


@contextlib.contextmanager
def in_thread(target: Callable[[], object]) -> Iterator[None]:
    """Run in parallel to the block; exceptions are raised at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            target()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(TIMEOUT)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def peer_of(host: str, port: int) -> socket.socket:
    peer = socket.create_connection((host, port), timeout=TIMEOUT)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("size", [1, 999, 65537])
def test_plain_client_to_server(tcp: Build, host: str, size: int) -> None:
    data = stream(20_003 if size == 1 else 3_000_017)
    port = free_port("tcp", host)
    with (
        Engine.open(tcp("server", host, port)) as engine,
        peer_of(host, port) as peer,
    ):

        def send() -> None:
            for at in range(0, len(data), size):
                peer.sendall(data[at : at + size])

        with in_thread(send):
            assert receive_bytes(engine.ports[0].rx[0], len(data)) == data
        counters = engine.ports[0].rx[0].counters()
        assert counters.received_bytes == len(data)
        assert sum(counters.dropped.values()) == 0
        assert engine.ports[0].link_type == LINKTYPE_RAW


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("piece", [1, 777, 4096])
def test_client_to_plain_server(tcp: Build, host: str, piece: int) -> None:
    data = stream(20_003 if piece == 1 else 3_000_017)
    with socket.create_server((host, 0), family=family_of(host)) as listener:
        listener.settimeout(TIMEOUT)
        with Engine.open(tcp("client", host, listener.getsockname()[1])) as engine:
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(TIMEOUT)
                with in_thread(lambda: send_bytes(engine.ports[0].tx[0], data, piece)):
                    assert read_exactly(peer, len(data)) == data
                assert engine.ports[0].tx[0].wait_sent(TIMEOUT)
                assert engine.ports[0].tx[0].counters().sent_bytes == len(data)
                engine.close()
                assert peer.recv(1) == b""


def test_slow_consumer_loses_nothing(tcp: Build) -> None:
    data = stream(2_000_000)
    port = free_port("tcp")
    settings = tcp("server", "127.0.0.1", port, buf_size=512, num_bufs=64, batch_size=8)
    with Engine.open(settings) as engine, peer_of("127.0.0.1", port) as peer:
        rx = engine.ports[0].rx[0]
        with in_thread(lambda: peer.sendall(data)):
            got = bytearray()
            for _ in range(10):
                time.sleep(0.02)
                counters = rx.counters()
                assert counters.received == counters.delivered + counters.held
                got += receive_bytes(rx, 2000)
            got += receive_bytes(rx, len(data) - len(got))
        assert bytes(got) == data


def test_connections_come_go_and_return(tcp: Build) -> None:
    port = free_port("tcp")
    with Engine.open(tcp("server", "127.0.0.1", port)) as engine:
        where = engine.ports[0]
        (own,) = where.connections()
        assert own.state == "listening"
        assert own.local == f"127.0.0.1:{port}"
        assert own.id == engine.server_connection("127.0.0.1", port)
        with peer_of("127.0.0.1", port) as peer:
            mine = peer.getsockname()
            peer.sendall(b"hello")
            assert receive_bytes(where.rx[0], 5) == b"hello"
            _, found = where.connections()
            assert found.peer == f"{mine[0]}:{mine[1]}"
            assert found.state == "connected"
            peer.settimeout(TIMEOUT)
            where.tx[0].send([b"welcome"], connection_id=found.id)
            assert read_exactly(peer, 7) == b"welcome"
            reset(peer)
        assert eventually(lambda: where.connections()[1].state == "closed")
        assert where.connections()[1].error == "Connection reset by peer"
        with socket.socket() as back:
            back.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            back.bind(mine)
            back.connect(("127.0.0.1", port))
            back.sendall(b"again")
            assert eventually(lambda: len(where.connections()) == 3)
            _, gone, returned = where.connections()
            assert (gone.id, gone.state) == (found.id, "closed")
            assert returned.peer == found.peer
            assert receive_bytes(where.rx[0], 5, returned.id) == b"again"
    assert {each.state for each in where.connections()} == {"closed"}


def test_client_comes_back_to_a_restarted_server(tcp: Build) -> None:
    port = free_port("tcp")
    with Engine.open(tcp("client", "127.0.0.1", port)) as engine:
        where = engine.ports[0]
        (waiting,) = where.connections()
        assert waiting.state == "connecting"
        assert waiting.error == "Connection refused"
        for round_ in range(2):
            with socket.create_server(("127.0.0.1", port)) as listener:
                listener.settimeout(TIMEOUT)
                peer, _ = listener.accept()
                peer.sendall(b"round %d" % round_)
                # The kernel connects; the engine may learn of it later.
                assert eventually(lambda: where.connections()[0].state == "connected")
                assert receive_bytes(where.rx[0], 7, waiting.id) == b"round %d" % round_
                reset(peer)
            assert eventually(lambda: where.connections()[0].state == "connecting")


def test_connecting_again_to_a_peer_that_was_lost(tcp: Build) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        Engine.open(tcp("client", "127.0.0.1", own.getsockname()[1])) as engine,
    ):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(TIMEOUT)
            port = listener.getsockname()[1]
            made = engine.connect("127.0.0.1", port)
            peer, _ = listener.accept()
        reset(peer)

        def state() -> str:
            return next(c.state for c in engine.ports[0].connections() if c.id == made)

        assert eventually(lambda: state() == "connecting")
        with pytest.raises(ConnectFailureError, match="Connection refused"):
            engine.connect("127.0.0.1", port)
        assert state() == "connecting"
        with socket.create_server(("127.0.0.1", port)) as listener:
            listener.settimeout(TIMEOUT)
            assert engine.connect("127.0.0.1", port) == made
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(TIMEOUT)
                engine.ports[0].tx[0].send([b"back"], connection_id=made)
                assert read_exactly(peer, 4) == b"back"


def test_threads_that_share_a_refused_attempt_are_both_told(tcp: Build) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        Engine.open(tcp("client", "127.0.0.1", own.getsockname()[1])) as engine,
        ThreadPoolExecutor(4) as pool,
    ):
        for _ in range(20):
            port = free_port("tcp")
            for attempt in [pool.submit(engine.connect, "127.0.0.1", port) for _ in range(4)]:
                assert isinstance(attempt.exception(), ConnectFailureError)
        assert [c.state for c in engine.ports[0].connections()].count("connecting") == 0


def test_run_time_connections_and_options(tcp: Build) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        port = second.getsockname()[1]
        for listener in (first, second):
            listener.settimeout(TIMEOUT)
        with Engine.open(tcp("client", "127.0.0.1", first.getsockname()[1])) as engine:
            made = engine.connect("127.0.0.1", port, source="127.0.0.3")
            peer, address = second.accept()
            peer.settimeout(TIMEOUT)
            assert address[0] == "127.0.0.3"
            engine.set_socket_option(made, socket.IPPROTO_IP, socket.IP_TOS, 0x10)
            engine.set_socket_option(
                made, socket.IPPROTO_TCP, socket.TCP_NODELAY, struct.pack("i", 0)
            )
            engine.ports[0].tx[0].send([b"here"], connection_id=made)
            assert read_exactly(peer, 4) == b"here"
            peer.close()
            with pytest.raises(GenericFailureError, match="12345"):
                engine.set_socket_option(made, socket.IPPROTO_IP, 12345, 1)
            with pytest.raises(InvalidParameterError, match="does not fit"):
                engine.set_socket_option(made, socket.IPPROTO_IP, socket.IP_TOS, 1 << 40)
            with pytest.raises(InvalidParameterError, match="no connection 999999"):
                engine.set_socket_option(999999, socket.IPPROTO_IP, socket.IP_TOS, 1)
            with pytest.raises(ConnectFailureError, match="Connection refused"):
                engine.connect("127.0.0.1", free_port("tcp"))
            with pytest.raises(InvalidParameterError, match="no server"):
                engine.server_connection("127.0.0.1", port)
        with pytest.raises(NotReadyError):
            engine.connect("127.0.0.1", port)


def test_raw_streams_have_no_connections(loopback: Callable[..., Config]) -> None:
    with Engine.open(loopback()) as engine:
        assert engine.ports[0].connections() == []
        with pytest.raises(NotSupportedError, match="socket streams only"):
            engine.connect("127.0.0.1", 5000)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_captures_follow_the_stream(tcp: Build, host: str, tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    assert tshark, "tshark is in packages.apt"
    port = free_port("tcp", host)
    data = stream(300_000)
    with Engine.open(tcp("server", host, port, buf_size=70_000, num_bufs=64)) as engine:
        rx = engine.ports[0].rx[0]
        with rx.record(str(tmp_path), prefix="tcp") as recorder, peer_of(host, port) as peer:
            peer.sendall(data)
            assert eventually(lambda: rx.counters().received_bytes == len(data))
            assert eventually(lambda: rx.counters().held == 0)
        (file,) = recorder.files()
    shown = subprocess.run(
        [tshark, "-r", str(file.path), "-q", "-z", "follow,tcp,raw,0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    digits = set("0123456789abcdef")
    followed = [bytes.fromhex(line) for line in shown.splitlines() if set(line) <= digits]
    assert b"".join(followed) == data
    fields = subprocess.run(
        [tshark, "-r", str(file.path), "-o", "tcp.check_checksum:TRUE", "-T", "fields"]
        + ["-e", "tcp.dstport", "-e", "tcp.checksum.status", "-e", "tcp.analysis.flags"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {line.split("\t")[0] for line in fields} == {str(port)}
    assert {line.split("\t")[1] for line in fields} == {"1"}
    assert {line.split("\t")[2] for line in fields} == {""}


def test_profile_moves_a_stream() -> None:
    data = stream(1_000_000)
    with Engine.open(profiles.path("tcp")) as engine:
        with in_thread(lambda: send_bytes(engine.port("sender").tx[0], data, 8192)):
            assert receive_bytes(engine.port("receiver").rx[0], len(data)) == data
