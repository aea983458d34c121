"""Network cards that engine ``dpdk`` drives: emulated ones on one wire, behind an IOMMU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(700)]


@pytest.fixture(scope="module")
def results(with_cards: Callable[..., Any]) -> dict[str, Any]:
    return with_cards(Path(__file__).with_name("dpdk_cards_job.py"), "e1000e", "e1000e")


def test_a_card_of_the_kernel_is_refused_with_both_ways_out(results: dict[str, Any]) -> None:
    said = results["by the kernel"]
    assert "belongs to the kernel's driver 'e1000e', as network interface 'eth0'" in said
    assert "driverctl set-override 0000:01:00.0 vfio-pci" in said
    assert "or use engine 'packet' with address: eth0" in said
    assert "or use engine 'packet' with address: eth1" in said


def test_a_card_that_is_not_there_is_named(results: dict[str, Any]) -> None:
    assert "device '0000:7f:00.0' is not on this host's PCI bus" in results["absent"]


@pytest.mark.parametrize("memory", ["without hugepages", "with hugepages"])
def test_frames_arrive_whole_at_the_queues_of_their_flows(
    results: dict[str, Any], memory: str
) -> None:
    assert results[memory] == {
        "queues": [[1600, 0], [1000, 0]],
        "mac": "02:00:00:00:00:01",
        "speed": 1000,
        "lost": 0,
    }


def test_the_suite_of_all_engines_passes_on_cards(results: dict[str, Any]) -> None:
    assert "All tests passed" in results["suite"], results["suite"]
