"""A network card that is unplugged while engine ``dpdk`` uses it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(700)]


@pytest.fixture(scope="module", params=["e1000e", "igb"])
def results(request: pytest.FixtureRequest, with_cards: Callable[..., Any]) -> dict[str, Any]:
    return with_cards(Path(__file__).with_name("dpdk_unplug_job.py"), request.param)


@pytest.mark.parametrize("card", ["first", "second"])
def test_the_port_of_a_card_that_is_unplugged_says_so_and_sends_nothing(
    results: dict[str, Any], card: str
) -> None:
    told = results[card]
    assert told["failed"] == []
    assert told["link"] == ["removed", 0, 0]
    assert told["nothing waits"]
    assert told["sent since"] == 0
    # The engine is told while it is open: for a button of the slot, the kernel waits 5 s.
    assert 0 <= told["removed after"] < 30


def test_a_card_that_is_gone_counts_no_other_losses(results: dict[str, Any]) -> None:
    """Registers that cannot be read any more have all bits set.

    Before, a card loses at most what it has no buffers for: two queues with 1024 descriptors each.
    """
    assert all(0 <= count <= 2 * 1024 for count in results["lost"]), results["lost"]


def test_the_log_names_the_card_and_the_queue(results: dict[str, Any]) -> None:
    for card, address in (("first", "0000:01:00.0"), ("second", "0000:02:00.0")):
        assert any(
            line.startswith(f"WARNING interface '{card}': device '{address}' was removed: ")
            for line in results["log"]
        )
        assert (
            f"WARNING transmit queue 'tx0' of interface '{card}': packets cannot be sent and are "
            "counted as send_error: No such device"
        ) in results["log"]


def test_packets_that_were_received_before_stay_whole(results: dict[str, Any]) -> None:
    assert results["kept"]


def test_the_other_port_goes_on(results: dict[str, Any]) -> None:
    assert results["other"] == ["up", 0]


def test_pollers_without_a_card_sleep(results: dict[str, Any]) -> None:
    """In two seconds, two of them would take two to four."""
    assert results["poller seconds"] < 0.5


def test_the_engine_closes_and_nothing_is_held(results: dict[str, Any]) -> None:
    assert results["closed after"] < 10
    assert results["held"] == 0


def test_the_same_process_opens_cards_that_are_plugged_in_again(results: dict[str, Any]) -> None:
    assert results["again"] == "exchanged"
