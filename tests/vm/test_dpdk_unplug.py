"""A network card that is unplugged while engine ``dpdk`` uses it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
MODULES = CHECKOUT / "build" / "dpdk" / "native" / "daqiri-engines"
pytestmark = [pytest.mark.vm, pytest.mark.timeout(700)]


@pytest.fixture(scope="module")
def results(in_guest: Callable[..., Any]) -> dict[str, Any]:
    if not (MODULES / "daqiri_engine_dpdk.so").exists():
        pytest.skip("needs engine dpdk in build/dpdk: run `make dpdk`")
    devices = ["-device", "intel-iommu,aw-bits=48"]
    for number in (1, 2):
        devices += ["-netdev", f"hubport,hubid=1,id=wire{number}"]
        devices += ["-device", f"pcie-root-port,id=root{number},chassis={number},slot={number}"]
        card = f"e1000e,id=card{number},bus=root{number},netdev=wire{number}"
        devices += ["-device", card]
    return in_guest(
        Path(__file__).with_name("dpdk_unplug_job.py"),
        *("vfio-pci", "vfio_iommu_type1"),
        command_line="intel_iommu=on iommu=pt",
        devices=devices,
        environment={"DAQIRI_ENGINE_PATH": str(MODULES)},
    )


@pytest.mark.parametrize("card", ["first", "second"])
def test_the_port_of_a_card_that_is_unplugged_says_so_and_sends_nothing(
    results: dict[str, Any], card: str
) -> None:
    told = results[card]
    assert told["failed"] == []
    assert told["link"] == ["removed", 0, 0]
    assert told["nothing waits"]
    assert told["sent since"] == 0


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
