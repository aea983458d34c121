"""Frames from packets that are lost, twice, and out of order, in buffers that were used before."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, Frame

from .reorder_reference import Reference

Config = dict[str, Any]
Frames = Callable[..., NDArray[np.uint8]]

PACKETS, SIZE = 32, 204
"""Packets of a frame, and bytes of their payload; 4 of them are its number."""
BUFFERS, WINDOW, FRAMES = 12, 4, 60
FILL = 7
NUMBER = {"bit_offset": 0, "bit_width": 32, "byte_order": "big", "base": "udp_payload"}


def with_plan(config: Config, ports: int = 1) -> Config:
    """Return the configuration with a plan; each UDP port from 5000 on has a separate queue."""
    config["memory_regions"].append(
        {"name": "frames", "kind": "host", "num_bufs": BUFFERS, "buf_size": PACKETS * 2048}
    )
    rx = config["interfaces"][0]["rx"]
    raw = config["stream_type"] == "raw"
    rx["queues"] = [{**rx["queues"][0], "name": f"rx{i}", "id": i} for i in range(ports)]
    rx["flows"] = [
        {
            "name": f"data{i}",
            "id": 7 + i,
            "match": {"udp_dst": 5000 + i} if raw else {},
            "action": {"type": "queue", "id": i},
        }
        for i in range(ports)
    ]
    rx["reorder_configs"] = [
        {
            "name": "images",
            "reorder_type": "cpu",
            "memory_region": "frames",
            "flow_ids": [7 + i for i in range(ports)],
            "payload_base": "udp_payload",
            "payload_byte_offset": 4,
            "fill": FILL,
            "window": WINDOW,
            "timeout_us": 0,
            "method": {
                "seq_packets_per_batch": {"sequence_number": NUMBER, "packets_per_batch": PACKETS}
            },
        }
    ]
    return config


def plan_of(config: Config) -> Config:
    return config["interfaces"][0]["rx"]["reorder_configs"][0]


@pytest.fixture(params=["loopback", "udp"])
def config(request: pytest.FixtureRequest) -> Config:
    return with_plan(request.getfixturevalue(request.param)())


def disturbed(first: int, count: int, within: int) -> NDArray[np.intp]:
    """Return numbers of packets: 1 % lost, 1 % twice, shuffled within so many."""
    rng = np.random.default_rng(5)
    order = np.arange(first, first + count)
    order = order[rng.random(count) >= 0.01]
    order = np.repeat(order, 1 + (rng.random(len(order)) < 0.01))
    return order[np.argsort(np.arange(len(order)) + rng.random(len(order)) * within)]


def send(engine: Engine, config: Config, packets: NDArray[np.uint8]) -> None:
    """Send, and wait until the plan has seen it."""
    raw = config["stream_type"] == "raw"
    sent = packets if raw else np.ascontiguousarray(packets[:, 42:])
    plan = engine.ports[0].reorder["images"]
    wanted = plan.counters().packets + len(sent)
    assert engine.ports[-1].tx[0].send(sent, timeout=20.0) == len(sent)
    end = time.monotonic() + 60
    while plan.counters().packets < wanted:
        assert time.monotonic() < end, plan.counters()
        time.sleep(0.0002)


def use_all_buffers(engine: Engine, config: Config, made: NDArray[np.uint8]) -> None:
    """Leave 0xEE in every buffer of the frames; takes numbers of as many frames."""
    made[:, 46:] = 0xEE
    plan = engine.ports[0].reorder["images"]
    with plan.frames(timeout=20.0) as frames:
        for first in range(0, len(made), 2 * PACKETS):
            send(engine, config, made[first : first + 2 * PACKETS])
        held = [next(frames) for _ in range(BUFFERS)]
        assert all((frame.data == 0xEE).all() for frame in held)
        assert len({frame.data.ctypes.data for frame in held}) == BUFFERS


def seen(frame: Frame) -> tuple[int, bytes, list[bool]]:
    return frame.batch, frame.data.tobytes(), frame.valid.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_no_stale_byte_and_no_lost_count(config: Config, made_frames: Frames, workers: int) -> None:
    if workers:
        plan_of(config)["cpu_core"] = ["any"] * workers
    made = made_frames((BUFFERS + FRAMES) * PACKETS, SIZE)
    order = disturbed(BUFFERS * PACKETS, FRAMES * PACKETS, WINDOW * PACKETS // 2)
    reference = Reference(plan_of(config), 42)
    for packet in [*made[: BUFFERS * PACKETS], *made[order]]:
        reference.take(packet)
    reference.finish()
    wanted = {each.batch: each for each in reference.frames[BUFFERS:]}
    assert 0 < reference.counts["missing"] and 0 < reference.counts["duplicate"]
    got: list[tuple[int, bytes, list[bool]]] = []
    with Engine.open(config) as engine:
        use_all_buffers(engine, config, made[: BUFFERS * PACKETS].copy())
        plan = engine.ports[0].reorder["images"]
        with plan.frames(timeout=20.0) as frames:
            for first in range(0, len(order), 2 * PACKETS):
                send(engine, config, made[order[first : first + 2 * PACKETS]])
                counters = plan.counters()
                while len(got) < counters.complete + counters.incomplete - BUFFERS:
                    got.append(seen(next(frames)))
            engine.close()
            got += [seen(frame) for frame in frames]
        counters = asdict(plan.counters())
    assert counters == dict(reference.counts)
    assert counters["packets"] == sum(
        counters[name] for name in ("placed", "duplicate", "late", "malformed", "no_buffer")
    )
    assert counters["packets"] == BUFFERS * PACKETS + len(order)
    assert len(got) == len(wanted) == FRAMES
    for batch, data, valid in got:
        assert valid == wanted[batch].valid
        # What lacks nothing is what was sent, what is lost is the fill value, and nothing is 0xEE.
        assert data == wanted[batch].data


@pytest.mark.parametrize(("pollers", "workers"), [(1, 0), (3, 0), (3, 2)])
def test_several_queues_make_the_same_frames(
    loopback: Callable[..., Config], made_frames: Frames, pollers: int, workers: int
) -> None:
    config = with_plan(loopback(), ports=3)
    plan_of(config)["window"] = 8
    own = sorted(os.sched_getaffinity(0))
    queues = config["interfaces"][0]["rx"]["queues"]
    for queue, core in zip(queues[1:pollers], (own[0], own[-1]), strict=False):
        queue["cpu_core"] = core
    if workers:
        plan_of(config)["cpu_core"] = ["any"] * workers
    made = made_frames((BUFFERS + FRAMES) * PACKETS, SIZE)
    # Packets alternate between the queues.
    ports = (5000 + np.arange(len(made)) % 3).astype(">u2")
    made[:, 36:38] = ports.view(np.uint8).reshape(-1, 2)
    order = disturbed(BUFFERS * PACKETS, FRAMES * PACKETS, 2 * PACKETS)
    sent = np.unique(order)
    got: list[tuple[int, bytes, list[bool]]] = []
    with Engine.open(config) as engine:
        use_all_buffers(engine, config, made[: BUFFERS * PACKETS].copy())
        plan = engine.ports[0].reorder["images"]
        with plan.frames(timeout=20.0) as frames:
            # No queue gets ahead of another by more than the window.
            for first in range(0, len(order), 2 * PACKETS):
                send(engine, config, made[order[first : first + 2 * PACKETS]])
                counters = plan.counters()
                while len(got) < counters.complete + counters.incomplete - BUFFERS:
                    got.append(seen(next(frames)))
            engine.close()
            got += [seen(frame) for frame in frames]
        counters = plan.counters()
        queues = [queue.counters() for queue in engine.ports[0].rx]
    assert counters.packets == BUFFERS * PACKETS + len(order)
    assert counters.placed == BUFFERS * PACKETS + len(sent)
    assert counters.duplicate + counters.late == len(order) - len(sent)
    assert (counters.malformed, counters.no_buffer, counters.lost) == (0, 0, 0)
    assert counters.missing == FRAMES * PACKETS - len(sent)
    assert all(queue.received == queue.delivered > 0 for queue in queues)
    assert sorted(batch for batch, _, _ in got) == list(range(BUFFERS, BUFFERS + FRAMES))
    for batch, data, valid in got:
        numbers = np.arange(batch * PACKETS, (batch + 1) * PACKETS)
        there = np.isin(numbers, sent)
        rows = np.where(there[:, None], made[numbers, 46:], FILL)
        assert valid == there.tolist()
        assert data == rows.astype(np.uint8).tobytes()
