"""Reorder plans: packets of a flow become frames."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.engine import Burst, Engine, NotSupportedError, ReorderCounters, RxQueue

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


@pytest.mark.parametrize("kind", ["loopback", "udp"])
def test_shuffled_and_lossy_packets_become_frames(
    kind: str, request: pytest.FixtureRequest, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(4 * PACKETS, 68)
    order = np.random.default_rng(3).permutation(2 * PACKETS)
    order = np.concatenate([order, order + 2 * PACKETS])
    order = order[order != PACKETS + 3]  # lost
    order = np.insert(order, 5, order[0])  # twice
    payloads = sent[:, 42 + 4 :]
    if kind == "udp":
        sent = sent[:, 42:]
    with Engine.open(with_plan(request.getfixturevalue(kind)())) as engine:
        rx, tx = engine.ports[0], engine.ports[-1]
        assert tx.tx[0].send(np.ascontiguousarray(sent[order])) == len(order)
        frames = [burst.gather() for burst in receive_all(rx.rx[0], 4)]
        counters = rx.reorder_plan("images").counters()
        queue = rx.rx[0].counters()
        snapshot = engine.snapshot().reorder[0]
    assert counters == ReorderCounters(
        packets=len(order),
        placed=len(order) - 1,
        duplicate=1,
        late=0,
        malformed=0,
        no_buffer=0,
        complete=3,
        incomplete=1,
        missing=1,
        lost=0,
        restarts=0,
    )
    assert (snapshot.port, snapshot.plan, snapshot.counters) == (rx.name, "images", counters)
    assert queue.dropped["reorder"] == 1
    assert queue.received == queue.delivered + 1 == len(order)
    wanted = payloads.reshape(4, -1).copy()
    wanted[1, 3 * 64 : 4 * 64] = FILL
    assert {frame.tobytes() for frame in frames} == {frame.tobytes() for frame in wanted}


def test_packets_cannot_be_recorded_where_frames_are_made(loopback: Build, tmp_path: Path) -> None:
    with (
        Engine.open(with_plan(loopback())) as engine,
        pytest.raises(NotSupportedError, match="'rx0' hands out frames of a reorder config"),
    ):
        engine.ports[0].rx[0].record(tmp_path)
    assert list(tmp_path.iterdir()) == []


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
