"""Recorded data of an instrument arrives as frames through its profile."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import Engine, Port
from daqiri_ophyd.simulate import INSTRUMENTS, Chunk, Disturbance, Instrument, Traffic

Config = dict[str, Any]
Send = Callable[[Port, Chunk], None]
FILL = 7


def test_shuffled_packets_become_the_frames_that_were_sent(
    instrument: Instrument, loopback_config: Config, send: Send
) -> None:
    disturbance = Disturbance(shuffle=instrument.packets_per_frame)
    chunks = list(Traffic(instrument, 6, disturbance=disturbance, seed=4))
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        (plan,) = port.reorder.values()
        assert (plan.shape, plan.dtype) == (instrument.shape, instrument.dtype)
        with plan.frames(timeout=60.0) as frames:
            for chunk in chunks:
                assert (np.diff(chunk.order) < 0).any()
                send(port, chunk)
                got = {frame.batch: frame for _, frame in zip(chunk.frames, frames, strict=False)}
                for batch, sent in zip(sorted(got), chunk.frames, strict=True):
                    np.testing.assert_array_equal(got[batch].data, sent)
                del got
    assert plan.counters().complete == 6


def test_losses_and_duplicates_are_counted_as_the_generator_made_them(
    instrument: Instrument, loopback_config: Config, send: Send, expected: Callable[..., Any]
) -> None:
    (settings,) = loopback_config["interfaces"][0]["rx"]["reorder_configs"]
    settings["fill"] = FILL
    disturbance = Disturbance(loss=0.05, duplicates=0.1, shuffle=instrument.packets_per_frame)
    lossy = list(Traffic(instrument, 4, disturbance=disturbance, seed=9))
    # Two later frames close all before them.
    chunks = lossy + list(Traffic(instrument, 2, first=4))
    wanted = expected(chunks)
    lost, duplicated = (sum(getattr(c, name) for c in lossy) for name in ("lost", "duplicated"))
    assert lost and duplicated
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        (plan,) = port.reorder.values()
        got = {}
        with plan.frames(timeout=60.0) as frames:
            for chunk in chunks:
                send(port, chunk)
            for _, frame in zip(range(6), frames, strict=False):
                got[frame.batch] = frame.data.copy(), frame.packets
    counters = plan.counters()
    by_bytes = "batch_byte_offset" in settings["method"]
    elements = wanted.frames[0].size // instrument.packets_per_frame
    assert counters == wanted.counters(elements if by_bytes else 1)
    assert counters.placed == 6 * instrument.packets_per_frame - lost
    assert counters.duplicate + counters.late == duplicated
    # Without a conversion, plans handle only bytes.
    fill = np.full(instrument.dtype.itemsize, FILL, np.uint8).view(instrument.dtype)
    if "data_types" in settings:
        fill = np.asarray(FILL, instrument.dtype)
    filled = wanted.filled(instrument, fill)
    for batch, sent, valid in zip(sorted(got), filled, wanted.valid, strict=True):
        data, packets = got[batch]
        assert packets == valid.sum()
        np.testing.assert_array_equal(data, sent)


def test_the_command_sends_to_the_profile_over_udp(
    instrument: Instrument, udp_config: tuple[Config, int], capsys: pytest.CaptureFixture[str]
) -> None:
    config, port = udp_config
    config["interfaces"] = config["interfaces"][:1]
    options = ["--frames", "2", "--rate", "10", "--shuffle", "16", "--seed", "3", "--json"]
    with Engine.open(config) as engine:
        (plan,) = engine.ports[0].reorder.values()
        with plan.frames(timeout=60.0) as frames:
            assert _main._run(["simulate", instrument.name, f"127.0.0.1:{port}", *options]) == 0
            got = [next(frames).data for _ in range(2)]
    counters = plan.counters()
    said = json.loads(capsys.readouterr().out)
    packets = 2 * instrument.packets_per_frame
    assert said == {
        "frames": 2,
        "sent": packets,
        "bytes": packets * instrument.packet_size,
        "lost": 0,
        "duplicated": 0,
    }
    assert (counters.placed, counters.complete) == (packets, 2)
    chunks = Traffic(instrument, 2, disturbance=Disturbance(shuffle=16), seed=3)
    for one, sent in zip(got, np.concatenate([c.frames for c in chunks]), strict=True):
        np.testing.assert_array_equal(one, sent)


def skewed(instrument: Instrument, frames: int) -> Chunk:
    """Return frames of which every other module sends its packets with those of the next frame."""
    chunks = list(Traffic(instrument, frames, disturbance=Disturbance(shuffle=16), seed=8))
    packets = np.concatenate([chunk.packets for chunk in chunks])
    streams = np.concatenate([chunk.streams for chunk in chunks])
    number = np.repeat(np.arange(len(chunks)), [len(chunk.packets) for chunk in chunks])
    late = np.argsort(number + streams % 2, kind="stable")
    sent = np.concatenate([chunk.frames for chunk in chunks])
    return replace(chunks[0], frames=sent, packets=packets[late], streams=streams[late])


@pytest.mark.parametrize("instrument", [INSTRUMENTS["jungfrau-stack"]])
def test_modules_that_are_a_frame_apart_make_whole_frames(
    instrument: Instrument, loopback_config: Config, send: Send
) -> None:
    chunk = skewed(instrument, 3)
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        (plan,) = port.reorder.values()
        with plan.frames(timeout=60.0) as frames:
            send(port, chunk)
            got = [next(frames).data for _ in range(3)]
    # A frame can be received a moment before it is counted.
    counters = plan.counters()
    assert (counters.complete, counters.incomplete, counters.late) == (3, 0, 0)
    for one, sent in zip(got, chunk.frames, strict=True):
        np.testing.assert_array_equal(one, sent)


@pytest.mark.parametrize("instrument", [INSTRUMENTS["jungfrau-stack"]])
def test_modules_that_are_a_frame_apart_make_whole_frames_over_udp(
    instrument: Instrument, udp_config: tuple[Config, int]
) -> None:
    config, port = udp_config
    chunk = skewed(instrument, 3)
    with ExitStack() as opened, Engine.open(config) as engine:
        (plan,) = engine.ports[0].reorder.values()
        frames = opened.enter_context(plan.frames(timeout=60.0))
        modules = []
        for stream in range(instrument.streams):
            module = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            module.bind(("127.0.0.1", 50101 + stream))
            modules.append(module)
        for i, (packet, stream) in enumerate(zip(chunk.packets, chunk.streams, strict=True)):
            modules[stream].sendto(packet, ("127.0.0.1", port))
            # The kernel's buffer holds packets that the engine has not read yet.
            while i % 64 == 63 and plan.counters().packets <= i:
                time.sleep(0.001)
        got = [next(frames).data for _ in range(3)]
    counters = plan.counters()
    assert (counters.complete, counters.incomplete, counters.late) == (3, 0, 0)
    for one, sent in zip(got, chunk.frames, strict=True):
        np.testing.assert_array_equal(one, sent)


@pytest.mark.parametrize("instrument", [INSTRUMENTS["ecpri"]])
def test_sequence_numbers_of_a_radio_unit_begin_anew_between_frames(
    instrument: Instrument, loopback_config: Config, send: Send
) -> None:
    # SEQ_ID is 0 again with frame 4096.
    (chunk,) = Traffic(instrument, 8, first=4092, disturbance=Disturbance(shuffle=16))
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        (plan,) = port.reorder.values()
        with plan.frames(timeout=60.0) as frames:
            send(port, chunk)
            for sent, frame in zip(chunk.frames, frames, strict=False):
                np.testing.assert_array_equal(frame.data, sent)
    assert (plan.counters().complete, plan.counters().restarts) == (8, 0)
