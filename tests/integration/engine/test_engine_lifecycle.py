"""Opening and closing: leaks, several engines, interrupted waits, interpreter exit, fork."""

import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from waiting import wait_for

from daqiri_ophyd.engine import (
    Burst,
    ConfigError,
    Engine,
    InvalidParameterError,
    NetworkConfig,
    NoFreeBurstBuffersError,
    NoFreePacketBuffersError,
    NotReadyError,
    NotSupportedError,
    RxQueue,
    load_config,
)

Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]
Build = Callable[..., dict[str, Any]]
Python = Callable[[str], subprocess.Popen[str]]


def usage() -> tuple[int, int]:
    """Threads and descriptors of this process."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    return threads, len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def nothing_left(build: Build) -> Iterator[None]:
    """Wait for the threads and descriptors that the block made to end."""
    Engine.open(build()).close()  # what the first engine of a process makes stays
    before = usage()
    yield
    wait_for(lambda: all(now <= was for now, was in zip(usage(), before, strict=True)))


def result_of(child: subprocess.Popen[str]) -> str:
    """The output of a script, which must end without errors."""
    output, errors = child.communicate(timeout=200)
    assert (child.returncode, errors) == (0, "")
    return output


def test_engines_side_by_side(
    loopback: Build, udp: Build, made_frames: Frames, receive_all: Receive
) -> None:
    sent = [made_frames(100 + i) for i in range(3)]
    engines = [Engine.open(config) for config in (loopback(), loopback(), udp())]
    try:
        assert [engine.name for engine in engines] == ["loopback", "loopback", "socket"]
        for engine, packets in zip(engines, sent, strict=True):
            engine.ports[-1].tx[0].send(packets)
        for engine, packets in zip(engines, sent, strict=True):
            bursts = receive_all(engine.ports[0].rx[0], len(packets))
            assert np.array_equal(np.concatenate([b.gather() for b in bursts]), packets)
        engines[0].close()
        engines[1].ports[0].tx[0].send(sent[0])
        receive_all(engines[1].ports[0].rx[0], len(sent[0]))
    finally:
        for engine in engines:
            engine.close()


def test_the_tree_of_an_engine(loopback: Build) -> None:
    config = loopback()
    with Engine.open(config) as engine:
        assert not engine.closed
        port = engine.port("port0")
        assert port is engine.port(0) is engine.port("loopback") is engine.ports[0]
        assert (port.name, port.id, port.address) == ("port0", 0, "loopback")
        assert port.mac_address == "02:00:00:00:00:00"
        assert port.rx_queue("rx0") is port.rx_queue(0) is port.rx[0]
        assert port.tx_queue("tx0") is port.tx_queue(0) is port.tx[0]
        assert port.rx[0].port is port.tx[0].port is port
        assert port.rx[0].config == engine.config.interfaces[0].rx.queues[0]
        assert port.tx[0].batch_size == 64
        assert port.rx[0].ring_capacity == 256
        assert port.rx[0].max_packet_size == port.tx[0].max_packet_size == 2048
        for find, text in (
            (lambda: engine.port("port1"), r"no port 'port1'; it has 'port0' \(0\)"),
            (lambda: engine.port(1), "no port 1"),
            (lambda: port.rx_queue("x"), r"no receive queue 'x'; it has 'rx0' \(0\)"),
            (lambda: port.tx_queue(-1), "no transmit queue -1"),
        ):
            with pytest.raises(InvalidParameterError, match=text):
                find()
        assert "open" in repr(engine)
    assert engine.closed
    assert "closed" in repr(engine)
    engine.close()


def test_configurations_in_every_form(loopback: Build, tmp_path: Path) -> None:
    config = load_config(loopback())
    path = tmp_path / "some.yaml"
    path.write_text(config.to_yaml())
    sources = [loopback(), config, config.to_yaml(), path, str(path), config.to_dict()]
    for source in sources:
        with Engine.open(source) as engine:
            assert isinstance(engine.config, NetworkConfig)
            assert engine.config == config
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ConfigError, match="stream_type"):
        Engine.open({**loopback(), "stream_type": "cooked"})


def test_adjustments_are_told(loopback: Build) -> None:
    config = loopback()
    config["memory_regions"][0]["num_bufs"] = 16
    with Engine.open(config) as engine:
        adjusted = engine.config.memory_regions[0].num_bufs
        assert adjusted > 16
        (warning,) = engine.warnings
        assert warning.startswith("memory_regions[0].num_bufs: ")
        assert str(adjusted) in warning


def test_what_cannot_be_had_leaves_nothing(loopback: Build) -> None:
    config = loopback()
    config["memory_regions"][0]["kind"] = "device"
    with nothing_left(loopback):
        with pytest.raises(NotSupportedError, match="CUDA"):
            Engine.open(config)
        with pytest.raises(InvalidParameterError, match="8191"):
            Engine.open(loopback(rx={"cpu_core": 8191}))


def test_sizes_beyond_this_machine_are_refused_by_their_keys(loopback: Build) -> None:
    bursts = loopback(rx={"batch_size": 2**20}, rx_meta_buffers=2**20)
    with pytest.raises(NoFreeBurstBuffersError, match="rx_meta_buffers 1048576 x batch_size"):
        Engine.open(bursts)
    packets = loopback()
    packets["memory_regions"][0] |= {"num_bufs": 2**31, "buf_size": 2**32 - 1}
    name = packets["memory_regions"][0]["name"]
    with pytest.raises(NoFreePacketBuffersError, match=f"'{name}' of num_bufs 2147483648 x"):
        Engine.open(packets)


def test_a_dropped_engine_complains_and_closes(loopback: Build) -> None:
    with nothing_left(loopback):
        engine = Engine.open(loopback())
        rx = engine.ports[0].rx[0]
        with pytest.warns(ResourceWarning, match="was dropped; close"):
            del engine
        assert rx.closed
        with pytest.raises(NotReadyError, match="rx0.*was dropped"):
            _ = rx.port
        del rx


def test_close_wakes_who_waits(loopback: Build) -> None:
    engine = Engine.open(loopback())
    rx = engine.ports[0].rx[0]
    errors: list[NotReadyError] = []

    def wait() -> None:
        try:
            rx.receive(None)
        except NotReadyError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    closers = [threading.Thread(target=engine.close) for _ in range(3)]
    for thread in closers:
        thread.start()
    for thread in (*threads, *closers):
        thread.join(60)
        assert not thread.is_alive()
    assert len(errors) == 3


@pytest.mark.parametrize("wait", ["rx.receive(None)", "list(rx.bursts(None))", "recorder.wait()"])
def test_ctrl_c_ends_a_wait(loopback: Build, python: Python, tmp_path: Path, wait: str) -> None:
    script = f"""
        import threading, time
        from daqiri_ophyd.engine import Engine

        def announce():
            time.sleep(0.3)
            print("waiting", flush=True)

        with Engine.open({loopback()!r}) as engine:
            rx = engine.ports[0].rx[0]
            try:
                if "recorder" in {wait!r}:
                    recorder = rx.record({str(tmp_path)!r})
                threading.Thread(target=announce).start()
                {wait}
            except KeyboardInterrupt:
                print("interrupted")
    """
    with python(script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        assert result_of(child) == "interrupted\n"


def test_ctrl_c_that_nobody_catches(loopback: Build, python: Python) -> None:
    script = f"""
        from daqiri_ophyd.engine import Engine
        engine = Engine.open({loopback()!r})
        tx, rx = engine.ports[0].tx[0], engine.ports[0].rx[0]
        tx.send([bytes([i]) * 60 for i in range(100)])
        kept = rx.receive(10)
        views = kept[:]
        print("waiting", flush=True)
        rx.receive(None) and rx.receive(None) and rx.receive(None)
    """
    with python(script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
        assert child.returncode == -signal.SIGINT
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert "Fatal" not in errors


AT_EXIT = {
    "engine open": "",
    "bursts held": "kept = [b for b in rx.bursts(0.5)]",
    "views held": "kept = [b[0] for b in rx.bursts(0.5)]; kept.append(kept)",
    "views held by a cycle with the engine": """
        engine.kept = [b[0] for b in rx.bursts(0.5)]
        engine.me = engine
    """,
    "generator suspended": "bursts = rx.bursts(0.5); next(bursts)",
    "daemon thread waits": """
        threading.Thread(target=lambda: list(rx.bursts(None)), daemon=True).start()
        time.sleep(0.2)
    """,
    "daemon threads wait in short steps": """
        def spin():
            while True:
                try:
                    rx.receive(0.0001)
                except NotReadyError:
                    pass
        for _ in range(4):
            threading.Thread(target=spin, daemon=True).start()
        time.sleep(0.2)
    """,
    "daemon threads send": """
        def spin():
            while True:
                try:
                    tx.send([bytes(60)] * 500)
                except NotReadyError:
                    pass
        for _ in range(2):
            threading.Thread(target=spin, daemon=True).start()
        time.sleep(0.2)
    """,
    "daemon threads gather": """
        burst = rx.receive(10)
        def spin():
            while True:
                burst.gather()
        for _ in range(2):
            threading.Thread(target=spin, daemon=True).start()
        time.sleep(0.2)
    """,
    "thread waits, another closes": """
        waiting = threading.Thread(target=lambda: list(rx.bursts(None)))
        waiting.start()
        threading.Timer(0.2, engine.close).start()
    """,
    "recorder runs": "recorder = rx.record(folder)",
    "recorder watched": """
        recorder = rx.record(folder)
        default_pump().add(recorder.fileno(), lambda: None)
    """,
    "packets scheduled": """
        far = engine.ports[0].now() + 3600 * 10**9
        tx.send([bytes(60)] * 10, launch_times=[far] * 10)
    """,
    "closed late": """
        import atexit
        atexit.register(engine.close)
        kept = rx.receive(10)
        atexit.register(lambda: kept.gather())
    """,
    "opened too late": """
        def late():
            while True:
                try:
                    Engine.open(config).close()
                except NotReadyError as error:
                    assert "exiting" in str(error)
        threading.Thread(target=late, daemon=True).start()
        time.sleep(0.2)
    """,
}


@pytest.mark.parametrize("body", AT_EXIT.values(), ids=AT_EXIT.keys())
def test_the_interpreter_exits_cleanly(
    loopback: Build, python: Python, tmp_path: Path, body: str
) -> None:
    script = f"""
        import threading, time
        from daqiri_ophyd.engine import Engine, NotReadyError, default_pump
        config, folder = {loopback()!r}, {str(tmp_path)!r}
        engine = Engine.open(config)
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send([bytes([i]) * 60 for i in range(100)])
    """
    lines = [line.removeprefix(" " * 8) for line in script.splitlines()]
    lines += [line.removeprefix(" " * 8) for line in body.splitlines()]
    with python("\n".join([*lines, "print('end')"])) as child:
        assert result_of(child) == "end\n"
    for file in tmp_path.glob("*.pcap"):
        assert file.stat().st_size == 24 + 100 * (16 + 60)
        assert file.with_suffix(".pcap.json").exists()


def test_a_forked_child_leaves_the_parents_engine_alone(
    loopback: Build, python: Python, tmp_path: Path
) -> None:
    script = f"""
        import gc, os, sys, warnings
        from daqiri_ophyd.engine import Engine, NotReadyError, default_pump
        config = {loopback()!r}
        engine = Engine.open(config)
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        tx.send([bytes([i]) * 60 for i in range(64)])
        burst = rx.receive(10)
        recorder = rx.record({str(tmp_path)!r})
        pump = default_pump()
        pump.add(recorder.fileno(), lambda: None)
        child = os.fork()
        if child == 0:
            assert engine.closed and rx.closed
            for call in (rx.receive, rx.counters, lambda: tx.send([bytes(60)]), recorder.stop,
                         recorder.snapshot, recorder.wait, engine.ports[0].now):
                try:
                    call()
                except NotReadyError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError(call)
            engine.close()
            assert burst[63][0] == 63
            assert pump.closed and default_pump() is not pump and not default_pump().closed
            with Engine.open(config) as own:
                own.ports[0].tx[0].send([bytes(60)])
                assert len(own.ports[0].rx[0].receive(10)) == 1
            del engine, rx, tx, recorder, burst, call
            gc.collect()
            print("child", flush=True)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        tx.send([bytes(60)] * 10)
        assert tx.wait_sent(10)
        engine.close()
        print("parent", recorder.snapshot().packets)
    """
    with python(script) as child:
        assert result_of(child) == "child\nparent 10\n"


def test_programs_that_are_started_inherit_nothing(udp: Build) -> None:
    with Engine.open(udp()) as engine:
        with engine.ports[0].rx[0].record("/tmp", prefix=f"daqiri-{os.getpid()}") as recorder:
            listing = subprocess.run(
                ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True
            )
    for file in recorder.files():
        file.path.unlink()
        file.path.with_suffix(".pcap.json").unlink()
    assert "socket" not in listing.stdout
    assert "eventfd" not in listing.stdout
    assert "pcap" not in listing.stdout
