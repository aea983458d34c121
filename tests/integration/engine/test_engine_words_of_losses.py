"""The page about losses has what engines count, and no other words."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import Engine, PortCounters, RxCounters, TxCounters

PAGE = Path(__file__).parents[3] / "docs/explanations/loss-accounting.md"


def words_of(heading: str) -> list[str]:
    """The names in the first column of the tables between a heading and the next one."""
    section = PAGE.read_text().split(f"{heading}\n", 1)[1]
    section = re.split(r"\n#+ ", section, maxsplit=1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_queues_drop_for_the_reasons_of_the_page(loopback: Callable[..., dict[str, Any]]) -> None:
    with Engine.open(loopback()) as engine:
        port = engine.ports[0]
        reasons = {*port.rx[0].counters().dropped, *port.tx[0].counters().dropped}
    assert sorted(words_of("## Reasons")) == sorted(reasons)


def test_queues_count_what_the_page_says() -> None:
    counted = {field.name for kind in (RxCounters, TxCounters) for field in fields(kind)}
    words = words_of("# Loss accounting")
    assert words == ["received", "delivered", "held", "submitted", "sent"]
    assert counted.issuperset(words)


def test_ports_lose_for_the_reasons_of_the_page() -> None:
    reasons = list(PortCounters(0, 0, 0, 0, 0).by_reason)
    assert words_of("## Before the engine")[: len(reasons)] == reasons
