"""Accounting of TCP receive over random configurations: few buffers, small bursts, peers that end,
break off and return in mid-stream, consumers that are slow, keep what they get, or stop.

TCP drops nothing: what cannot be taken stays with the sender."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from free_ports import free_port
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import eventually

from daqiri_ophyd.engine import Burst, Engine, NotReadyError, RxQueue

Build = Callable[..., dict[str, Any]]
Watch = Callable[[Engine], AbstractContextManager[None]]

TIMEOUT = 20.0
MARK = 16

few = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(few, max_examples=300)


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@dataclass
class Life:
    """One connection of a peer: its stream begins with a mark that no other stream has."""

    data: bytes
    breaks_off: bool
    # The number of bytes that the kernel accepted.
    sent: int = 0
    whole: bool = False


@dataclass
class Peer:
    """A plain socket that connects several times, from the same address or from another one."""

    port: int
    lives: list[Life]
    piece: int
    same_address: bool

    def run(self) -> None:
        address = ("127.0.0.1", 0)
        for life in self.lives:
            with socket.socket() as peer:
                peer.settimeout(TIMEOUT)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    peer.bind(address)
                    peer.connect(("127.0.0.1", self.port))
                    if self.same_address and life.breaks_off:
                        address = peer.getsockname()
                    self.send(peer, life)
                except OSError:
                    # The engine was closed in between.
                    return
                if life.breaks_off:
                    reset(peer)
                else:
                    life.whole = True

    def send(self, peer: socket.socket, life: Life) -> None:
        for at in range(0, len(life.data), self.piece):
            rest = memoryview(life.data)[at : at + self.piece]
            while rest:
                taken = peer.send(rest)
                life.sent += taken
                rest = rest[taken:]


@dataclass
class Consumer:
    """Receives bursts in one way, and keeps the bytes of each connection."""

    queue: RxQueue
    manner: str
    streams: dict[int, bytearray] = field(default_factory=dict)
    packets: int = 0

    def run(self) -> None:
        kept: list[Burst] = []
        if self.manner == "absent":
            return
        for burst in self.queue.bursts(None):
            self.take(burst)
            if self.manner == "slow":
                time.sleep(0.0003)
            if self.manner == "keeps":
                kept.append(burst)
                del kept[:-3]
            else:
                # Before the next one is waited for: there may be no other.
                burst.release()
            if self.manner == "stops" and self.packets > 20:
                return

    def take(self, burst: Burst) -> None:
        stream = self.streams.setdefault(burst.connection_id, bytearray())
        for view in burst:
            stream += view.tobytes()
        self.packets += len(burst)

    def drain(self) -> None:
        for burst in self.queue.bursts(0.0):
            self.take(burst)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the configuration of a server and the actions of its peers and consumers."""
    numbers = st.integers
    lives = st.lists(st.tuples(numbers(0, 40_000), st.booleans()), min_size=1, max_size=3)
    peers = draw(
        st.lists(
            st.tuples(lives, st.sampled_from([100, 1500, 60_000]), st.booleans()),
            min_size=1,
            max_size=5,
        )
    )
    return {
        "batch_size": draw(numbers(1, 64)),
        "timeout_us": draw(st.sampled_from([0, 100, 1000])),
        "buf_size": draw(st.sampled_from([64, 300, 2048, 70_000])),
        "num_bufs": draw(numbers(2, 200)),
        "rx_meta_buffers": draw(numbers(1, 32)),
        "queues": draw(numbers(1, 3)),
        "peers": peers,
        "manners": draw(
            st.lists(
                st.sampled_from(["fast", "fast", "slow", "keeps", "stops", "absent"]),
                min_size=3,
                max_size=3,
            )
        ),
        "interfere": draw(st.sampled_from(["not", "not", "flush", "filter"])),
        "close_early": draw(st.booleans()),
        "seed": draw(numbers(0, 1 << 30)),
    }


def peers_of(scenario: dict[str, Any], port: int) -> list[Peer]:
    random = np.random.default_rng(scenario["seed"])
    return [
        Peer(port, [Life(random.bytes(MARK + size), breaks) for size, breaks in lives], piece, same)
        for lives, piece, same in scenario["peers"]
    ]


@contextlib.contextmanager
def disturbed(how: str, engine: Engine) -> Iterator[None]:
    """Flush or filter repeatedly in parallel to the block."""
    stopping = threading.Event()
    (port,) = engine.ports

    def run() -> None:
        with contextlib.suppress(NotReadyError):
            while not stopping.wait(0.003):
                if how == "flush":
                    port.rx[-1].flush()
                if how == "filter":
                    port.drop_all_traffic()
                    port.allow_all_traffic()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(TIMEOUT)


def segments_of(stream: bytes, lives: list[Life]) -> dict[int, bytes]:
    """Cut the bytes of a connection where streams begin; by number of the stream."""
    begins = {stream.find(life.data[:MARK]): i for i, life in enumerate(lives)}
    begins.pop(-1, None)
    if stream and 0 not in begins:
        # Only the beginning arrived.
        (begins[0],) = (i for i, life in enumerate(lives) if life.data.startswith(stream[:MARK]))
    places = sorted(begins)
    ends = [*places[1:], len(stream)]
    return {begins[b]: bytes(stream[b:e]) for b, e in zip(places, ends, strict=True)}


def is_complete(scenario: dict[str, Any], manners: list[str]) -> bool:
    """Say whether all can arrive, and be seen to have arrived, before the engine is closed."""
    if scenario["close_early"] or not set(manners) <= {"fast", "slow"}:
        return False
    # How much of a stream that breaks off arrives, only bytes that are delivered tell.
    breaks = any(life[1] for lives, _, _ in scenario["peers"] for life in lives)
    return not breaks or scenario["interfere"] == "not"


def all_arrived(consumers: list[Consumer], lives: list[Life]) -> bool:
    if all(life.whole for life in lives):
        received = sum(consumer.queue.counters().received_bytes for consumer in consumers)
        return received == sum(len(life.data) for life in lives)
    found = segments_by_life(consumers, lives)
    return all(found.get(i) == life.data for i, life in enumerate(lives) if life.whole)


def segments_by_life(consumers: list[Consumer], lives: list[Life]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for consumer in consumers:
        for stream in list(consumer.streams.values()):
            segments = segments_of(bytes(stream), lives)
            assert not found.keys() & segments.keys()
            found |= segments
    return found


def check_streams(consumers: list[Consumer], lives: list[Life], complete: bool) -> None:
    found = segments_by_life(consumers, lives)
    for i, life in enumerate(lives):
        got = found.get(i, b"")
        assert life.data[: life.sent].startswith(got)
        if complete and life.whole:
            assert got == life.data


def receive_example(scenario: dict[str, Any], tcp: Build, watch: Watch) -> None:
    port = free_port("tcp")
    config = tcp(
        "server",
        "127.0.0.1",
        port,
        buf_size=scenario["buf_size"],
        num_bufs=scenario["num_bufs"],
        batch_size=scenario["batch_size"],
        rx_meta_buffers=scenario["rx_meta_buffers"],
    )
    (queue,) = config["interfaces"][0]["rx"]["queues"]
    config["interfaces"][0]["rx"]["queues"] = [
        {**queue, "name": f"rx{i}", "id": i, "timeout_us": scenario["timeout_us"]}
        for i in range(scenario["queues"])
    ]
    peers = peers_of(scenario, port)
    lives = [life for peer in peers for life in peer.lives]
    with Engine.open(config) as engine, watch(engine):
        queues = engine.ports[0].rx
        manners = scenario["manners"][: len(queues)]
        consumers = [Consumer(q, m) for q, m in zip(queues, manners, strict=True)]
        complete = is_complete(scenario, manners)
        senders = [threading.Thread(target=peer.run) for peer in peers]
        others = [threading.Thread(target=consumer.run) for consumer in consumers]
        try:
            with disturbed(scenario["interfere"], engine):
                for thread in (*senders, *others):
                    thread.start()
                for sender in senders:
                    sender.join(TIMEOUT if complete else 0.02)
            if complete:
                assert not any(sender.is_alive() for sender in senders)
                assert eventually(lambda: all_arrived(consumers, lives))
        finally:
            engine.close()
            for thread in (*senders, *others):
                thread.join(TIMEOUT)
    for consumer in consumers:
        consumer.drain()
    for consumer in consumers:
        counters = consumer.queue.counters()
        assert counters.held == 0
        assert counters.delivered == consumer.packets
        assert counters.received == counters.delivered + counters.dropped_total
        got = sum(map(len, consumer.streams.values()))
        if scenario["interfere"] == "not":
            assert counters.dropped_total == 0
            assert counters.received_bytes == got
        else:
            reason = {"flush": "flushed", "filter": "filtered"}[scenario["interfere"]]
            assert counters.dropped_total == counters.dropped[reason]
            assert counters.received_bytes >= got
    received = sum(consumer.queue.counters().received_bytes for consumer in consumers)
    assert received <= sum(life.sent for life in lives)
    if complete and all(life.whole for life in lives):
        assert received == sum(len(life.data) for life in lives)
    if scenario["interfere"] == "not":
        check_streams(consumers, lives, complete)


@few
@given(scenario=scenarios())
def test_receiving(scenario: dict[str, Any], tcp: Build, watch: Watch) -> None:
    receive_example(scenario, tcp, watch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(scenario=scenarios())
def test_receiving_at_length(scenario: dict[str, Any], tcp: Build, watch: Watch) -> None:
    receive_example(scenario, tcp, watch)
