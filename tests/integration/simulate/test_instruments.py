"""Recorded data of an instrument arrives as frames through its profile."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from instrument_profiles import plan_in, plan_of

from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import Engine, Port, ReorderPlan
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
        plan = plan_of(engine)
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
    settings = plan_in(loopback_config)
    settings["fill"] = FILL
    # All frames wait until they are taken.
    for region in loopback_config["memory_regions"]:
        if region["name"] == settings["memory_region"]:
            region["num_bufs"] = max(region["num_bufs"], 12)
    # Two frames at most are mixed, also where more packets are sent twice than lost.
    shuffle = instrument.packets_per_frame // 2
    disturbance = Disturbance(loss=0.1, duplicates=0.1, shuffle=shuffle)
    lossy = list(Traffic(instrument, 6, restart=3, disturbance=disturbance, seed=9))
    assert sum(chunk.begins_anew for chunk in lossy) == 1
    assert sum(c.lost for c in lossy) and sum(c.duplicated for c in lossy)
    # Two later frames close all before them.
    chunks = lossy + list(Traffic(instrument, 2, first=3))
    wanted = expected(chunks)
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        plan = plan_of(engine)
        got = []
        with plan.frames(timeout=60.0) as frames:
            for chunk in chunks:
                send(port, chunk)
            for _, frame in zip(range(8), frames, strict=False):
                got.append((frame.batch, frame.data.copy(), frame.packets, frame.valid.copy()))
    counters = plan.counters()
    by_bytes = "batch_byte_offset" in settings["method"]
    elements = wanted.frames[0].size // instrument.packets_per_frame
    assert counters == replace(wanted.counters(elements if by_bytes else 1), restarts=1)
    numbers = [batch for batch, *_ in got]
    begin = numbers[0]
    assert [number - begin for number in numbers] == [0, 1, 2, 0, 1, 2, 3, 4]
    # Without a conversion, plans handle only bytes.
    fill = np.full(instrument.dtype.itemsize, FILL, np.uint8).view(instrument.dtype)
    if "data_types" in settings:
        fill = np.asarray(FILL, instrument.dtype)
    for (_, data, packets, valid), sent, slots in zip(
        got, wanted.filled(fill), wanted.slots, strict=True
    ):
        assert packets == slots.sum()
        np.testing.assert_array_equal(data, sent)
        np.testing.assert_array_equal(valid, np.repeat(slots, len(valid) // len(slots)))


def test_the_command_sends_to_the_profile_over_udp(
    instrument: Instrument, udp_config: tuple[Config, int], capsys: pytest.CaptureFixture[str]
) -> None:
    config, port = udp_config
    config["interfaces"] = [each for each in config["interfaces"] if "rx" in each]
    last = f"-{port + instrument.streams - 1}" if instrument.needs_own_ports else ""
    command = ["simulate", instrument.name, f"127.0.0.1:{port}{last}", "--frames", "2"]
    command += ["--rate", "4", "--shuffle", "16", "--seed", "3", "--json"]
    with Engine.open(config) as engine:
        plan = plan_of(engine)
        with plan.frames(timeout=60.0) as frames:
            assert _main._run(command) == 0
            got = [next(frames).data for _ in range(2)]
    counters = plan.counters()
    said = json.loads(capsys.readouterr().out)
    packets = 2 * instrument.packets_per_frame
    assert said == {
        "frames": 2,
        "sent": packets,
        "bytes": 2 * int(instrument.sizes().sum()),
        "lost": 0,
        "duplicated": 0,
    }
    other = 2 * (instrument.leaders + instrument.trailers)
    assert (counters.placed, counters.left_out) == (packets - other, other)
    assert counters.complete == 2
    chunks = Traffic(instrument, 2, disturbance=Disturbance(shuffle=16), seed=3)
    for one, sent in zip(got, np.concatenate([c.frames for c in chunks]), strict=True):
        np.testing.assert_array_equal(one, sent)


def skewed(instrument: Instrument, frames: int) -> Chunk:
    """Return frames of which every other module sends its packets with those of the next frame."""
    chunks = list(Traffic(instrument, frames, disturbance=Disturbance(shuffle=16), seed=8))
    packets = np.concatenate([chunk.packets for chunk in chunks])
    sizes = np.concatenate([chunk.sizes for chunk in chunks])
    streams = np.concatenate([chunk.streams for chunk in chunks])
    number = np.repeat(np.arange(len(chunks)), [len(chunk.packets) for chunk in chunks])
    late = np.argsort(number + streams % 2, kind="stable")
    sent = np.concatenate([chunk.frames for chunk in chunks])
    parts = {"packets": packets[late], "sizes": sizes[late], "streams": streams[late]}
    return replace(chunks[0], frames=sent, **parts)


@pytest.mark.parametrize("instrument", [INSTRUMENTS["jungfrau-stack"]])
def test_modules_that_are_a_frame_apart_make_whole_frames(
    instrument: Instrument, loopback_config: Config, send: Send
) -> None:
    chunk = skewed(instrument, 3)
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        plan = plan_of(engine)
        with plan.frames(timeout=60.0) as frames:
            send(port, chunk)
            got = [next(frames).data for _ in range(3)]
    # A frame can be received a moment before it is counted.
    counters = plan.counters()
    assert (counters.complete, counters.incomplete, counters.late) == (3, 0, 0)
    for one, sent in zip(got, chunk.frames, strict=True):
        np.testing.assert_array_equal(one, sent)


def send_over_udp(chunks: list[Chunk], instrument: Instrument, plan: ReorderPlan, to: int) -> None:
    """Send packets, each stream from a port of its own, as fast as the plan takes them.

    Streams with a port each to send to may come from any.
    """
    sent = plan.counters().packets
    with ExitStack() as opened:
        streams = []
        for number in range(instrument.streams):
            stream = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            if not instrument.needs_own_ports:
                stream.bind(("127.0.0.1", instrument.source_port + number))
            stream.connect(("127.0.0.1", to + number * instrument.needs_own_ports))
            streams.append(stream)
        for chunk in chunks:
            for packet, size, number in zip(chunk.packets, chunk.sizes, chunk.streams, strict=True):
                streams[number].send(packet[:size])
                sent += 1
                # The kernel's buffers hold packets that the engine has not read yet.
                while sent % 64 == 0 and plan.counters().packets < sent:
                    time.sleep(0.001)
        while plan.counters().packets < sent:
            time.sleep(0.001)


@pytest.mark.parametrize(
    "instrument", [INSTRUMENTS[name] for name in ("jungfrau-stack", "jungfrau-2m")]
)
def test_modules_that_are_a_frame_apart_make_whole_frames_over_udp(
    instrument: Instrument, udp_config: tuple[Config, int]
) -> None:
    config, port = udp_config
    chunk = skewed(instrument, 3)
    with Engine.open(config) as engine:
        plan = plan_of(engine)
        with plan.frames(timeout=60.0) as frames:
            send_over_udp([chunk], instrument, plan, port)
            got = [next(frames).data for _ in range(3)]
    counters = plan.counters()
    assert (counters.complete, counters.incomplete, counters.late) == (3, 0, 0)
    for one, sent in zip(got, chunk.frames, strict=True):
        np.testing.assert_array_equal(one, sent)


@pytest.mark.parametrize(
    "instrument", [INSTRUMENTS[name] for name in ("eiger-12bit", "jungfrau-2m")]
)
def test_losses_on_several_ports_are_missing_where_they_were(
    instrument: Instrument, udp_config: tuple[Config, int], expected: Callable[..., Any]
) -> None:
    config, port = udp_config
    plan_in(config).update(window=2, fill=FILL)
    disturbance = Disturbance(loss=0.05, duplicates=0.1, shuffle=16)
    lossy = list(Traffic(instrument, 4, disturbance=disturbance, seed=9))
    chunks = lossy + list(Traffic(instrument, 2, first=4))
    wanted = expected(chunks)
    with Engine.open(config) as engine:
        plan = plan_of(engine)
        with plan.frames(timeout=60.0) as frames:
            send_over_udp(chunks, instrument, plan, port)
            got = [(f.data.copy(), f.valid.copy()) for f in islice(frames, 6)]
    assert plan.counters() == wanted.counters()
    fill = np.full(instrument.dtype.itemsize, FILL, np.uint8).view(instrument.dtype)
    if "data_types" in plan_in(config):
        fill = np.asarray(FILL, instrument.dtype)
    for (data, valid), sent, slots in zip(got, wanted.filled(fill), wanted.slots, strict=True):
        np.testing.assert_array_equal(data, sent)
        np.testing.assert_array_equal(valid, slots)


@pytest.mark.parametrize(
    ("instrument", "stack"),
    [
        (INSTRUMENTS["eiger-16bit"], (4, 256, 512)),
        (INSTRUMENTS["jungfrau-500k"], (512, 1024)),
        (INSTRUMENTS["jungfrau-2m"], (4, 512, 1024)),
        (INSTRUMENTS["jungfrau-4m"], (8, 512, 1024)),
    ],
)
def test_profiles_without_modules_have_the_raw_stack(
    instrument: Instrument, stack: tuple[int, ...], loopback_config: Config, send: Send
) -> None:
    frame = plan_in(loopback_config)["frame"]
    del frame["modules"]
    frame["shape"] = list(stack)
    (chunk,) = Traffic(instrument, 1)
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        plan = plan_of(engine)
        with plan.frames(timeout=60.0) as frames:
            send(port, chunk)
            raw = next(frames).data
    # Chips by hand: the second one of the first row of pixels, behind a gap of two.
    flat = raw.reshape(-1)
    np.testing.assert_array_equal(flat[:256], chunk.frames[0, 0, :256])
    np.testing.assert_array_equal(flat[256:512], chunk.frames[0, 0, 258:514])
    assert raw.shape == stack
    np.testing.assert_array_equal(raw.reshape(1, -1), instrument.in_packets(chunk.frames))


@pytest.mark.parametrize("instrument", [INSTRUMENTS["ecpri"]])
def test_sequence_numbers_of_a_radio_unit_begin_anew_between_frames(
    instrument: Instrument, loopback_config: Config, send: Send
) -> None:
    # SEQ_ID is 0 again with frame 4096.
    (chunk,) = Traffic(instrument, 8, first=4092, disturbance=Disturbance(shuffle=16))
    with Engine.open(loopback_config) as engine:
        (port,) = engine.ports
        plan = plan_of(engine)
        with plan.frames(timeout=60.0) as frames:
            send(port, chunk)
            for sent, frame in zip(chunk.frames, frames, strict=False):
                np.testing.assert_array_equal(frame.data, sent)
    assert (plan.counters().complete, plan.counters().restarts) == (8, 0)
