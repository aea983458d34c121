"""A TCP peer that is cut off without a word: keep-alive ends the connection, and the peer's return
finds its old id."""

import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from waiting import eventually

from daqiri_ophyd.engine import Connection, Engine, Port

Build = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.root
TIMEOUT = 30.0
OURS, THEIRS = "192.0.2.1", "192.0.2.2"
PORT, THEIR_PORT = 47_000, 47_001


class Cable:
    """Two hosts with a cable between them."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.ours, self.theirs = make(), make()
        self.ours.run(f"ip link add cable type veth peer name cable netns {self.theirs.thread_id}")
        for network, address in ((self.ours, OURS), (self.theirs, THEIRS)):
            network.run(f"ip addr add {address}/24 dev cable")
        self.ours.run("ip link set cable up")
        self.plug()

    def plug(self) -> None:
        self.theirs.run("ip link set cable up")

    def unplug(self) -> None:
        """Our side is not notified: no reset, no end of the stream."""
        self.theirs.run("ip link set cable down")


def end_soon(engine: Engine, connection: int) -> None:
    """Set keep-alive to a second of silence and two unanswered questions; 3 s for what is sent."""
    for option, value in (
        (socket.TCP_KEEPIDLE, 1),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, 2),
        (socket.TCP_USER_TIMEOUT, 3000),
    ):
        engine.set_socket_option(connection, socket.IPPROTO_TCP, option, value)


def peer_of(port: Port) -> Connection:
    return port.connections()[-1]


def receive(port: Port, length: int, connection: int) -> bytes:
    got = b""
    while len(got) < length:
        burst = port.rx[0].receive_from(connection, TIMEOUT)
        assert burst is not None, port.connections()
        got += b"".join(view.tobytes() for view in burst)
    return got


def connected(listener: socket.socket | None) -> socket.socket:
    """Return a plain peer of a server, from always the same address, or of a client."""
    if listener is not None:
        peer, _ = listener.accept()
    else:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        peer.bind((THEIRS, THEIR_PORT))
        peer.settimeout(TIMEOUT)
        peer.connect((OURS, PORT))
    peer.settimeout(TIMEOUT)
    return peer


def vanish(peer: socket.socket) -> None:
    """Forget a connection; the reset meets a cable that is not plugged in."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def listen() -> socket.socket:
    listener = socket.create_server((THEIRS, PORT))
    listener.settimeout(TIMEOUT)
    return listener


@pytest.mark.parametrize(("mode", "busy"), [("server", False), ("server", True), ("client", False)])
def test_a_silent_peer(mode: str, busy: bool, tcp: Build, networks: Callable[[], Any]) -> None:
    cable = Cable(networks)
    listener = cable.theirs.call(listen) if mode == "client" else None
    config = tcp(mode, OURS if mode == "server" else THEIRS, PORT)
    config["interfaces"][0]["address"] = OURS
    with cable.ours.call(Engine.open, config) as engine:
        (port,) = engine.ports
        peer = cable.theirs.call(connected, listener)
        peer.sendall(b"before")
        assert eventually(lambda: peer_of(port).state == "connected")
        before = peer_of(port)
        assert receive(port, 6, before.id) == b"before"
        end_soon(engine, before.id)
        cable.unplug()
        if busy:
            # Keep-alive sends no probes while an acknowledgement is due.
            port.tx[0].send([b"unheard"] * 10, connection_id=before.id)
        assert eventually(lambda: peer_of(port).state != "connected")
        lost = peer_of(port)
        assert (lost.id, lost.state) == (
            before.id,
            "closed" if mode == "server" else "connecting",
        )
        assert lost.error
        vanish(peer)
        cable.plug()
        with cable.theirs.call(connected, listener) as again:
            again.sendall(b"after")
            assert eventually(lambda: peer_of(port).state == "connected")
            back = peer_of(port)
            assert (back.id == before.id) == (mode == "client")
            assert back.error == ""
            assert receive(port, 5, back.id) == b"after"
            port.tx[0].send([b"answer"], connection_id=back.id)
            assert again.recv(6, socket.MSG_WAITALL) == b"answer"
        counters = port.rx[0].counters()
        assert (counters.received_bytes, counters.dropped_total) == (11, 0)
        sent = port.tx[0].counters()
        assert sent.submitted == sent.sent + sent.held + sent.dropped_total == 1 + 10 * busy
    if listener is not None:
        listener.close()
