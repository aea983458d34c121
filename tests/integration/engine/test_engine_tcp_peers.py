"""TCP with peers that have nothing of ours: socat and netcat; of spead2 there is
a module of its own.

iperf3 is not among them: its client and its server agree on a test over a control connection with a
protocol of its own first, and carry bytes for nobody else. The benchmarks run it against itself."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_port

from daqiri_ophyd.engine import Engine, RxQueue, TxQueue

Build = Callable[..., dict[str, Any]]

TIMEOUT = 20.0
HOSTS = ["127.0.0.1", "::1"]


def stream(length: int, seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(length)


def receive_bytes(queue: RxQueue, length: int) -> bytes:
    got = bytearray()
    while len(got) < length:
        burst = queue.receive(TIMEOUT)
        assert burst is not None, f"{len(got)} of {length} bytes: {queue.counters()}"
        for view in burst:
            got += view.tobytes()
    return bytes(got)


def send_bytes(queue: TxQueue, data: bytes, piece: int, connection: int = 0) -> None:
    packets = [data[at : at + piece] for at in range(0, len(data), piece)]
    assert queue.send(packets, connection_id=connection, timeout=TIMEOUT) == len(packets)
    assert queue.wait_sent(TIMEOUT)


def tool(name: str, mode: str, host: str, port: int) -> list[str]:
    """Return a command that connects or listens, and carries its own input or output only."""
    if name == "nc":
        six = "-6" if ":" in host else "-4"
        return (
            ["nc", six, "-l", host, str(port)]
            if mode == "listen"
            else ["nc", six, "-N", host, str(port)]
        )
    kind = "TCP6" if ":" in host else "TCP4"
    where = f"[{host}]" if ":" in host else host
    if mode == "listen":
        return ["socat", "-u", f"{kind}-LISTEN:{port},bind={where}", "-"]
    return ["socat", "-u", "-", f"{kind}:{where}:{port}"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", ["socat", "nc"])
def test_a_tool_sends_to_our_server(tcp: Build, name: str, host: str) -> None:
    data = stream(2_000_003, 1)
    port = free_port("tcp", host)
    with Engine.open(tcp("server", host, port)) as engine:
        with subprocess.Popen(tool(name, "connect", host, port), stdin=subprocess.PIPE) as peer:
            assert peer.stdin is not None
            sender = threading.Thread(target=lambda: (peer.stdin.write(data), peer.stdin.close()))
            sender.start()
            assert receive_bytes(engine.ports[0].rx[0], len(data)) == data
            sender.join(TIMEOUT)
            # netcat also waits for our end of the stream.
            engine.close()
            assert peer.wait(TIMEOUT) == 0
        counters = engine.ports[0].rx[0].counters()
        assert (counters.received_bytes, counters.dropped_total) == (len(data), 0)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", ["socat", "nc"])
def test_our_client_sends_to_a_tool(tcp: Build, name: str, host: str, tmp_path: Path) -> None:
    data = stream(2_000_003, 2)
    port = free_port("tcp", host)
    output = tmp_path / "received"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            tool(name, "listen", host, port), stdin=subprocess.DEVNULL, stdout=file
        ) as peer,
    ):
        # Even if the tool does not listen yet: a client tries again.
        with Engine.open(tcp("client", host, port)) as engine:
            send_bytes(engine.ports[0].tx[0], data, 3001)
        assert peer.wait(TIMEOUT) == 0
    assert output.read_bytes() == data


@pytest.mark.parametrize("host", HOSTS)
def test_a_tool_sends_back_what_it_gets(tcp: Build, host: str) -> None:
    """Both directions of one connection together."""
    data = stream(1_000_001, 3)
    port = free_port("tcp", host)
    kind = "TCP6" if ":" in host else "TCP4"
    where = f"[{host}]" if ":" in host else host
    command = ["socat", f"{kind}-LISTEN:{port},bind={where}", "PIPE"]
    with subprocess.Popen(command) as peer:
        try:
            with Engine.open(tcp("client", host, port)) as engine:
                (at,) = engine.ports
                sender = threading.Thread(target=send_bytes, args=(at.tx[0], data, 1000))
                sender.start()
                assert receive_bytes(at.rx[0], len(data)) == data
                sender.join(TIMEOUT)
                assert not sender.is_alive()
            assert peer.wait(TIMEOUT) == 0
        finally:
            peer.kill()
