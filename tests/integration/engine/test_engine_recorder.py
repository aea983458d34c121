"""Recorders in Python; tcpdump and tshark read their files in other tests."""

import gc
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpdk_devices import on_dpdk_too
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    Engine,
    EventPump,
    InvalidParameterError,
    NotReadyError,
    PcapFile,
    Recorder,
)

Frames = Callable[..., NDArray[np.uint8]]
Build = Callable[..., dict[str, Any]]
WaitUntilIdle = Callable[[Engine], None]


def wait_for_end(recorder: Recorder) -> None:
    while recorder.snapshot().running:
        assert recorder.wait(60)


@on_dpdk_too
def test_files_hold_what_was_sent(
    loopback: Build, made_frames: Frames, tmp_path: Path, wait_until_idle: WaitUntilIdle
) -> None:
    sent = made_frames(1000)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        with rx.record(tmp_path, "run", first_number=3, roll_packets=400) as recorder:
            assert recorder.snapshot().running
            tx.send(sent)
            wait_until_idle(engine)
        state = recorder.snapshot()
        assert (state.packets, state.bytes, state.dropped) == (1000, sent.size, 0)
        assert (state.files, state.running, state.error) == (3, False, "")
        files = recorder.files()
        assert [file.path for file in files] == [
            tmp_path / f"run_{number:06}.pcap" for number in (3, 4, 5)
        ]
        assert [file.packets for file in files] == [400, 400, 200]
        assert recorder.files(2) == files[2:]
        assert recorder.files(3) == []
        rows = []
        for file in files:
            with PcapFile(file.path) as pcap:
                rows.append(pcap.gather())
                assert file.t_first_ns == pcap.timestamps[0]
                assert file.t_last_ns == pcap.timestamps[-1]
                assert file.bytes == pcap.lengths.sum()
            assert json.loads(file.path.with_suffix(".pcap.json").read_text())
            run = subprocess.run(
                ["tcpdump", "-r", str(file.path), "-nn"], capture_output=True, check=True
            )
            assert len(run.stdout.splitlines()) == file.packets
        assert np.array_equal(np.concatenate(rows), sent)
        recorder.stop()
        assert "ended, 1000 packets" in repr(recorder)


def test_nobody_else_receives_meanwhile(
    loopback: Build, made_frames: Frames, tmp_path: Path
) -> None:
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        with rx.record(tmp_path):
            with pytest.raises(NotReadyError, match=r"rx0.*being recorded to .*capture"):
                rx.receive()
            with pytest.raises(NotReadyError, match="being recorded"):
                next(rx.bursts(1.0))
            with pytest.raises(NotReadyError, match="being recorded"):
                rx.record(tmp_path, "other")
        tx.send(made_frames(64))
        burst = rx.receive(20)
        assert burst is not None


def test_a_recording_that_begins_ends_a_wait(
    loopback: Build, made_frames: Frames, tmp_path: Path
) -> None:
    with Engine.open(loopback()) as engine:
        rx = engine.ports[0].rx[0]
        errors: list[NotReadyError] = []

        def wait() -> None:
            try:
                rx.receive(None)
            except NotReadyError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        with rx.record(tmp_path):
            thread.join(60)
            assert not thread.is_alive()
        assert "being recorded" in str(errors[0])


@on_dpdk_too
def test_it_stops_at_its_limit(
    loopback: Build, made_frames: Frames, tmp_path: Path, wait_until_idle: WaitUntilIdle
) -> None:
    sent = made_frames(1000)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        recorder = rx.record(tmp_path, max_packets=500, nanosecond=False)
        tx.send(sent)
        wait_for_end(recorder)
        assert recorder.snapshot().packets == 500
        (file,) = recorder.files()
        with PcapFile(file.path) as pcap:
            assert not pcap.nanosecond
            assert np.array_equal(pcap.gather(), sent[:500])
        with pytest.raises(NotReadyError):
            recorder.roll()


def test_it_stops_after_its_time(
    loopback: Build, made_frames: Frames, tmp_path: Path, wait_until_idle: WaitUntilIdle
) -> None:
    sent = made_frames(64)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        recorder = rx.record(tmp_path, max_seconds=3600.0)
        tx.send(sent)
        wait_until_idle(engine)
        assert not recorder.snapshot().limit_reached
        with pytest.raises(InvalidParameterError, match="accepted is 0 or more, up to 3e9"):
            recorder.end_in(-1.0)
        recorder.end_in(0.01)
        wait_for_end(recorder)
        state = recorder.snapshot()
        assert (state.limit_reached, state.packets, state.files) == (True, 64, 1)
        with rx.record(tmp_path, "stopped", max_seconds=3600.0) as stopped:
            pass
        assert not stopped.snapshot().limit_reached


@on_dpdk_too
def test_roll_pause_and_resume(
    loopback: Build, made_frames: Frames, tmp_path: Path, wait_until_idle: WaitUntilIdle
) -> None:
    sent = made_frames(640)
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        with rx.record(tmp_path) as recorder:
            for part in (slice(0, 64), slice(64, 128)):
                tx.send(sent[part])
                wait_until_idle(engine)
                recorder.roll()
            assert [file.packets for file in recorder.files()] == [64, 64]
            recorder.pause()
            tx.send(sent[128:256])
            wait_until_idle(engine)
            while recorder.snapshot().left_out < 128:
                recorder.wait(0.01)
            recorder.resume()
            tx.send(sent[256:])
            wait_until_idle(engine)
        state = recorder.snapshot()
        assert (state.packets, state.left_out, state.dropped) == (128 + 384, 128, 0)
        assert recorder.files()[-1].left_out == 128


def test_waiting_for_news(
    loopback: Build, made_frames: Frames, tmp_path: Path, wait_until_idle: WaitUntilIdle
) -> None:
    with Engine.open(loopback()) as engine:
        rx = engine.ports[0].rx[0]
        with rx.record(tmp_path) as recorder:
            assert not recorder.wait(0.0)
            assert not recorder.wait(0.05)
            recorder.roll()
            assert recorder.wait(60)
            assert not recorder.wait(0.05)
            timer = threading.Timer(0.1, recorder.roll)
            timer.start()
            assert recorder.wait(None)
            timer.join()
        assert recorder.wait(60)
        with pytest.raises(InvalidParameterError, match="timeout is -1"):
            recorder.wait(-1.0)


def test_news_through_a_pump(loopback: Build, tmp_path: Path) -> None:
    pump = EventPump("test-pump")
    seen: list[int] = []
    changed = threading.Condition()
    with Engine.open(loopback()) as engine:
        with engine.ports[0].rx[0].record(tmp_path) as recorder:

            def look() -> None:
                with changed:
                    seen.append(len(recorder.files()))
                    changed.notify_all()

            pump.add(recorder.fileno(), look)
            for number in (1, 2, 3):
                recorder.roll()
                # Waiting here as well does not take events from the pump.
                assert recorder.wait(60)
                with changed:
                    assert changed.wait_for(lambda n=number: n in seen[-1:], 20), seen
        pump.remove(recorder.fileno())
    pump.close()


def test_a_dropped_recorder_complains_and_completes_its_file(
    loopback: Build, made_frames: Frames, tmp_path: Path, wait_until_idle: WaitUntilIdle
) -> None:
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        recorder = rx.record(tmp_path)
        tx.send(made_frames(64))
        wait_until_idle(engine)
        with pytest.warns(ResourceWarning, match="was dropped; stop"):
            del recorder
            gc.collect()
        with PcapFile(tmp_path / "capture_000000.pcap") as pcap:
            assert len(pcap) == 64
        assert rx.receive() is None


@on_dpdk_too
def test_closing_the_engine_completes_the_recording(
    loopback: Build, made_frames: Frames, tmp_path: Path
) -> None:
    sent = made_frames(500)
    # Without a timeout, the last packets arrive only at the end.
    engine = Engine.open(loopback(rx={"timeout_us": 0}))
    recorder = engine.ports[0].rx[0].record(tmp_path)
    engine.ports[0].tx[0].send(sent)
    engine.close()
    assert not recorder.snapshot().running
    (file,) = recorder.files()
    with PcapFile(file.path) as pcap:
        assert np.array_equal(pcap.gather(), sent)
    with pytest.raises(NotReadyError):
        engine.ports[0].rx[0].record(tmp_path, "late")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"first_number": -1}, "first_number is -1"),
        ({"roll_packets": -1}, "roll_packets is -1"),
        ({"roll_bytes": -5}, "roll_bytes is -5"),
        ({"max_packets": -2}, "max_packets is -2"),
        ({"roll_seconds": -1.0}, "roll_seconds is -1"),
        ({"max_seconds": -1.0}, "max_seconds is -1"),
        ({"max_seconds": float("nan")}, "max_seconds is nan"),
        ({"prefix": "a/b"}, "a/b"),
        ({"prefix": ""}, "prefix"),
        ({"directory": "/nowhere/at/all"}, "/nowhere/at/all"),
    ],
)
def test_what_is_refused(loopback: Build, tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    with Engine.open(loopback()) as engine:
        rx = engine.ports[0].rx[0]
        with pytest.raises(InvalidParameterError, match=text):
            rx.record(**{"directory": tmp_path, **keys})
        # The queue is free again.
        assert rx.receive() is None
    assert not list(tmp_path.iterdir())


def test_relative_directories_are_of_this_process(
    loopback: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    with Engine.open(loopback()) as engine:
        with engine.ports[0].rx[0].record("data") as recorder:
            pass
    assert recorder.files()[0].path == tmp_path / "data" / "capture_000000.pcap"
