"""RSS of a network card that engine ``dpdk`` drives: an emulated igb, which has several queues."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(700)]


def test_a_card_spreads_flows_over_the_queues_that_the_engine_predicts(
    with_cards: Callable[..., Any],
) -> None:
    result = with_cards(Path(__file__).with_name("dpdk_rss_job.py"), "igb")
    assert "All tests passed" in result["suite"], result["suite"]
    assert "skipped" not in result["suite"], result["suite"]
