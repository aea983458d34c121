"""What engines tell of themselves."""

import json
from typing import Any

import pytest

from daqiri_ophyd.engine import (
    EngineSnapshot,
    FlowCounters,
    FlowState,
    PortCounters,
    PortState,
    QueueLevels,
    ReorderCounters,
)

RX: dict[str, Any] = {
    "port": "p",
    "queue": "r",
    "id": 0,
    "received": 10,
    "received_bytes": 1000,
    "delivered": 5,
    "held": 3,
    "bursts": 1,
    "truncated": 0,
    "ring_high_water": 1,
    "dropped": {"kernel": 2},
    "ring": 1,
    "ring_capacity": 64,
    "bursts_free": 7,
    "bursts_total": 8,
    "receive_path": "af_xdp native",
}
PORT: dict[str, Any] = {
    "port": "p",
    "lost_before_engine": 6,
    "lost_card": 1,
    "lost_backlog": 2,
    "lost_errors": 3,
    "lost_dropped": 4,
}
SNAPSHOT: dict[str, Any] = {
    "engine": "loopback",
    "pid": 7,
    "opened_ns": 1,
    "time_ns": 2,
    "steady_ns": 3,
    "ports": [PORT],
    "rx": [RX],
    "tx": [],
    "flows": [{"port": "p", "flow": "f", "packets": 6, "bytes": 600}],
    "reorder": [
        {"port": "p", "plan": "r"} | dict.fromkeys(ReorderCounters.__annotations__, 3),
    ],
    "regions": [{"name": "m", "free": 1, "buffers": 2, "buf_size": 3}],
}


def test_a_snapshot_is_what_the_text_says() -> None:
    snapshot = EngineSnapshot.from_json(json.dumps(SNAPSHOT))
    assert snapshot.ports == (PortState("p", PortCounters(6, 1, 2, 3, 4)),)
    (queue,) = snapshot.rx
    assert (queue.port, queue.queue) == ("p", "r")
    assert queue.counters.dropped_total == 2
    assert queue.receive_path == "af_xdp native"
    assert queue.levels == QueueLevels(1, 64, 7, 8)
    assert snapshot.flows == (FlowState("p", "f", FlowCounters(packets=6, bytes=600)),)
    assert (snapshot.reorder[0].plan, snapshot.reorder[0].counters.complete) == ("r", 3)
    assert snapshot.regions[0].buffers == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("[]", "there is a list where an object is expected"),
        ("{}", "engine is missing"),
        ("[" * 100_000, "recursion"),
        (json.dumps(SNAPSHOT | {"rx": [{}]}), "dropped is missing"),
        (json.dumps(SNAPSHOT | {"ports": [PORT | {"lost_card": -0.5}]}), "lost_card is -0.5"),
        (json.dumps(SNAPSHOT | {"tx": 1}), "tx is 1, expected a list"),
        (
            json.dumps(SNAPSHOT | {"tx": [{"lateness_counts": [1, 2]}]}),
            "lateness_counts is [1, 2], expected a list of 13 integers",
        ),
        (json.dumps(SNAPSHOT | {"steady_ns": None}), "steady_ns is None, expected an integer"),
        (json.dumps(SNAPSHOT | {"rx": [RX | {"received": "many"}]}), "received is 'many'"),
        (json.dumps(SNAPSHOT | {"flows": [{"port": "p", "flow": "f"}]}), "packets is missing"),
        (json.dumps(SNAPSHOT | {"reorder": [{"port": "p"}]}), "plan is missing"),
        (json.dumps(SNAPSHOT | {"rx": [RX | {"dropped": {"x": True}}]}), "x is True"),
    ],
)
def test_other_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="not a snapshot of an engine of this version") as error:
        EngineSnapshot.from_json(text)
    assert said in str(error.value)


def test_keys_of_a_later_version_are_ignored() -> None:
    region = SNAPSHOT["regions"][0] | {"node": 1}
    later = SNAPSHOT | {"rx": [RX | {"more": 1}], "regions": [region], "new": []}
    assert EngineSnapshot.from_json(json.dumps(later)) == EngineSnapshot.from_json(
        json.dumps(SNAPSHOT)
    )


def test_losses_of_a_port_are_told_by_reason_and_since_a_moment() -> None:
    before, now = PortCounters(6, 1, 2, 3, 4), PortCounters(16, 1, 12, 3, 5)
    assert now.by_reason == {"card": 1, "backlog": 12, "errors": 3, "dropped": 5}
    assert now.since(before) == PortCounters(10, 0, 10, 0, 1)
