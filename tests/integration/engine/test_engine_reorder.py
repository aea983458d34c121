"""Reorder plans: packets of a flow become frames."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    Burst,
    Engine,
    NotReadyError,
    PcapFile,
    ReorderCounters,
    RxQueue,
)

Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]
Build = Callable[..., dict[str, Any]]

PACKETS, FILL = 8, 7
"""Packets of a frame; the value of what is missing."""


def with_plan(config: dict[str, Any]) -> dict[str, Any]:
    config["memory_regions"].append(
        {"name": "frames", "kind": "host", "num_bufs": 16, "buf_size": 16384}
    )
    rx = config["interfaces"][0]["rx"]
    rx.setdefault(
        "flows",
        [{"name": "data", "id": 7, "match": {}, "action": {"type": "queue", "id": 0}}],
    )
    rx["reorder_configs"] = [
        {
            "name": "images",
            "reorder_type": "cpu",
            "memory_region": "frames",
            "flow_ids": [7],
            "payload_base": "udp_payload",
            "payload_byte_offset": 4,
            "fill": FILL,
            "method": {
                "seq_packets_per_batch": {
                    "sequence_number": {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"},
                    "packets_per_batch": PACKETS,
                }
            },
        }
    ]
    return config


@pytest.fixture(params=["loopback", "dpdk", "udp"])
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return with_plan(request.getfixturevalue(request.param)())


def sent_over(config: dict[str, Any], packets: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the data that is passed to the engine: frames, or their payloads on a socket."""
    return packets if config["stream_type"] == "raw" else np.ascontiguousarray(packets[:, 42:])


def shuffled(count: int) -> NDArray[np.intp]:
    """Return numbers of packets: out of order within two frames, one lost, one twice."""
    order = np.random.default_rng(3).permutation(2 * PACKETS)
    order = np.concatenate([order + first for first in range(0, count, 2 * PACKETS)])
    order = order[order != PACKETS + 3]
    return np.insert(order, 5, order[0])


def counted(sent: int, frames: int) -> ReorderCounters:
    """Return the counters for packets of `shuffled`."""
    return ReorderCounters(
        packets=sent,
        placed=sent - 1,
        duplicate=1,
        late=0,
        early=0,
        malformed=0,
        left_out=0,
        no_buffer=0,
        complete=frames - 1,
        incomplete=1,
        missing=1,
        lost=0,
        skipped=0,
        untaken=0,
        restarts=0,
    )


def test_shuffled_and_lossy_packets_become_frames(
    config: dict[str, Any], made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(4 * PACKETS, 68)
    order = shuffled(len(sent))
    with Engine.open(config) as engine:
        rx, tx = engine.ports[0], engine.ports[-1]
        assert tx.tx[0].send(sent_over(config, sent[order])) == len(order)
        frames = [burst.gather() for burst in receive_all(rx.rx[0], 4)]
        # A frame can be received a moment before it is counted.
        engine.close()
        counters = rx.reorder["images"].counters()
        queue = rx.rx[0].counters()
        snapshot = engine.snapshot().reorder[0]
    assert counters == counted(len(order), 4)
    assert (snapshot.port, snapshot.plan, snapshot.counters) == (rx.name, "images", counters)
    assert queue.received == queue.delivered == len(order)
    wanted = sent[:, 42 + 4 :].reshape(4, -1).copy()
    wanted[1, 3 * 64 : 4 * 64] = FILL
    assert {frame.tobytes() for frame in frames} == {frame.tobytes() for frame in wanted}


def test_frames_are_arrays_without_a_copy(config: dict[str, Any], made_frames: Frames) -> None:
    plan = config["interfaces"][0]["rx"]["reorder_configs"][0]
    plan["frame"] = {"shape": [PACKETS, 32], "dtype": "uint16"}
    plan["cpu_core"] = ["any", "any"]
    sent = made_frames(4 * PACKETS, 68)
    order = shuffled(len(sent))
    wanted = np.ascontiguousarray(sent[:, 42 + 4 :]).view(np.uint16).reshape(4, PACKETS, 32).copy()
    wanted[1, 3] = FILL * 0x0101
    with Engine.open(config) as engine:
        rx, tx = engine.ports[0], engine.ports[-1]
        plan = rx.reorder["images"]
        frames = plan.frames(timeout=20.0)
        with pytest.raises(NotReadyError, match="frames of reorder plan 'images' go to"):
            plan.frames()
        before = rx.now()
        tx.tx[0].send(sent_over(config, sent[order]))
        got = {frame.batch: frame for _, frame in zip(range(4), frames, strict=False)}
        after = rx.now()
        for batch, frame in got.items():
            assert (frame.data.shape, frame.data.dtype) == ((PACKETS, 32), np.uint16)
            assert not frame.data.flags.writeable and not frame.data.flags.owndata
            assert frame.missing == (batch == 1)
            assert frame.packets == PACKETS - frame.missing
            assert frame.valid.tolist() == [batch != 1 or slot != 3 for slot in range(PACKETS)]
            assert before <= frame.timestamp <= frame.last_timestamp <= after
            assert not frame.timed_out
        frames.close()
        assert next(frames, None) is None
        with plan.frames() as others:
            engine.close()
            assert list(others) == []
        assert rx.rx[0].counters().delivered == len(order)
    # A frame that is held keeps its buffer.
    for batch in range(4):
        np.testing.assert_array_equal(got[batch].data, wanted[batch])


def test_who_is_too_slow_loses_frames(loopback: Build, made_frames: Frames) -> None:
    sent = made_frames(20 * PACKETS, 68)
    # Open frames stay open.
    with Engine.open(with_plan(loopback(rx={"timeout_us": 0}))) as engine:
        (port,) = engine.ports
        plan = port.reorder["images"]
        with plan.frames(timeout=20.0) as frames:
            port.tx[0].send(sent)
            assert port.tx[0].wait_sent(20.0)
            held = [next(frames) for _ in range(16)]
            while (counters := plan.counters()).packets < len(sent):
                time.sleep(0.001)
            # Two of them are open, without a buffer.
            assert (counters.complete, counters.lost) == (16, 4)
            assert counters.no_buffer == len(sent) - counters.placed
            assert [frame.batch for frame in held] == list(range(16))
            del held
            port.tx[0].send(made_frames(21 * PACKETS, 68)[20 * PACKETS :])
            assert next(frames).batch == 20


def test_packets_are_recorded_beside_their_frames(
    loopback: Build, made_frames: Frames, tmp_path: Path
) -> None:
    sent = made_frames(4 * PACKETS, 68)
    with Engine.open(with_plan(loopback())) as engine:
        (port,) = engine.ports
        with (
            port.reorder["images"].frames(timeout=20.0) as frames,
            port.rx[0].record(tmp_path, max_packets=len(sent)) as recorder,
        ):
            port.tx[0].send(sent)
            got = [next(frames).data.tobytes() for _ in range(4)]
            assert recorder.wait(60)
    assert got == [each.tobytes() for each in sent[:, 42 + 4 :].reshape(4, -1)]
    with PcapFile(recorder.files()[0].path) as pcap:
        assert [packet.tobytes() for packet in pcap] == [packet.tobytes() for packet in sent]


def test_stats_show_plans(loopback: Build, tmp_path: Path) -> None:
    config = tmp_path / "frames.yaml"
    config.write_text(json.dumps(with_plan(loopback())))
    command = [Path(sys.executable).with_name("daqiri-ophyd"), "stats", str(config)]
    text = subprocess.run(
        [*command, "--count", "1"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert "reorder plan" in text and "port0/images" in text
    text = subprocess.run(
        [*command, "--count", "1", "--json"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert json.loads(text.splitlines()[0])["reorder"][0]["frames_per_s"] == 0
