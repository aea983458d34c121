"""Accounting of TCP transmit over random configurations: few buffers, small bursts, a server that
is slow and breaks connections off in the middle of packets."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daqiri_ophyd.engine import Engine, NotReadyError, TxQueue

Build = Callable[..., dict[str, Any]]
Watch = Callable[[Engine], AbstractContextManager[None]]

TIMEOUT = 20.0
NUMBER = struct.Struct(">Q")

few = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(few, max_examples=300)


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@dataclass
class Receiver:
    """A plain server that resets its connections, one after the other, and reads the last."""

    listener: socket.socket
    breaks_after: list[int]
    pause: float
    streams: list[bytearray] = field(default_factory=list)

    def run(self) -> None:
        for most in (*self.breaks_after, None):
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(TIMEOUT)
                self.streams.append(bytearray())
                if not self.read(peer, most):
                    return
                reset(peer)

    def read(self, peer: socket.socket, most: int | None) -> bool:
        """Return whether so many bytes were there before the end."""
        stream = self.streams[-1]
        while most is None or len(stream) < most:
            part = peer.recv(1 << 16 if most is None else most - len(stream))
            if not part:
                return False
            stream += part
            time.sleep(self.pause)
        return True


sendings = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 64),
        "num_bufs": st.integers(64, 300),
        "tx_meta_buffers": st.integers(1, 32),
        "size": st.integers(NUMBER.size, 4000),
        "count": st.integers(1, 1500),
        "step": st.integers(1, 500),
        "breaks_after": st.lists(st.integers(1, 200_000), max_size=3),
        "pause": st.sampled_from([0.0, 0.001]),
        "close_early": st.booleans(),
    }
)


def send_all(tx: TxQueue, packets: list[bytes], step: int) -> None:
    with contextlib.suppress(NotReadyError):
        for first in range(0, len(packets), step):
            tx.send(packets[first : first + step], timeout=TIMEOUT)


def numbers_in(stream: bytes, packets: list[bytes]) -> list[int]:
    """Numbers of the packets of a connection, complete except for the last one."""
    size = len(packets[0])
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    if pieces and len(pieces[-1]) < NUMBER.size:
        pieces.pop()
    numbers = [NUMBER.unpack_from(piece)[0] for piece in pieces]
    for number, piece in zip(numbers, pieces, strict=True):
        assert number < len(packets)
        assert packets[number].startswith(piece)
    return numbers


def send_example(sending: dict[str, Any], tcp: Build, watch: Watch) -> None:
    random = np.random.default_rng(sending["size"])
    packets = [
        NUMBER.pack(i) + random.bytes(sending["size"] - NUMBER.size)
        for i in range(sending["count"])
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        receiver = Receiver(listener, sending["breaks_after"], sending["pause"])
        config = tcp(
            "client",
            "127.0.0.1",
            listener.getsockname()[1],
            num_bufs=sending["num_bufs"],
            batch_size=sending["batch_size"],
            tx_meta_buffers=sending["tx_meta_buffers"],
        )
        with Engine.open(config) as engine, watch(engine):
            tx = engine.ports[0].tx[0]
            sender = threading.Thread(target=send_all, args=(tx, packets, sending["step"]))
            other = threading.Thread(target=receiver.run)
            sender.start()
            other.start()
            try:
                sender.join(0.005 if sending["close_early"] else TIMEOUT)
                if not sending["close_early"]:
                    assert not sender.is_alive()
                    assert tx.wait_sent(TIMEOUT)
            finally:
                engine.close()
                if not sending["close_early"] and not sending["breaks_after"]:
                    other.join(TIMEOUT)
                # Closing alone would not wake the accepting thread.
                listener.shutdown(socket.SHUT_RDWR)
                sender.join(TIMEOUT)
                other.join(TIMEOUT)
            assert not sender.is_alive() and not other.is_alive()
    counters = tx.counters()
    assert counters.held == 0
    assert counters.submitted == counters.sent + counters.dropped_total
    assert counters.dropped_total == counters.dropped["send_error"] + counters.dropped["flushed"]
    numbers = [number for s in receiver.streams for number in numbers_in(bytes(s), packets)]
    # In order, none twice, and none continued on the next connection.
    assert (np.diff(numbers) > 0).all()
    assert sum(map(len, receiver.streams)) <= counters.submitted * sending["size"]
    if not sending["close_early"] and not sending["breaks_after"]:
        assert counters.sent == len(packets)
        assert b"".join(receiver.streams) == b"".join(packets)


@few
@given(sending=sendings)
def test_sending(sending: dict[str, Any], tcp: Build, watch: Watch) -> None:
    send_example(sending, tcp, watch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(sending=sendings)
def test_sending_at_length(sending: dict[str, Any], tcp: Build, watch: Watch) -> None:
    send_example(sending, tcp, watch)
