"""Receive times of a network card: what engine `packet` switches on, puts back and refuses.

The card of the guest has a clock, and the setting, but stamps no frames.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(300)]

FILTER_NONE, FILTER_ALL, FILTER_PTP = 0, 1, 12
CARD = (
    "-netdev",
    "hubport,id=first,hubid=0",
    "-device",
    "e1000e,netdev=first",
    "-netdev",
    "hubport,id=second,hubid=0",
    "-device",
    "e1000e,netdev=second",
)


@pytest.fixture(scope="module")
def results(in_guest: Callable[..., Any]) -> dict[str, Any]:
    return in_guest(Path(__file__).with_name("card_times_job.py"), "e1000e", devices=CARD)


def test_the_card_stamps_while_an_engine_is_open(results: dict[str, Any]) -> None:
    assert results["before"] == [0, 0, FILTER_NONE]
    assert results["off"]["during"] == [0, 0, FILTER_ALL]
    assert results["after_off"] == results["before"]


def test_what_another_program_changes_meanwhile_stays(results: dict[str, Any]) -> None:
    assert results["changed"] == [[0, 1, FILTER_NONE], [0, 0, FILTER_PTP]]


def test_a_setting_that_is_on_stays(results: dict[str, Any]) -> None:
    assert results["on"]["during"] == results["after_on"] == [0, 1, FILTER_ALL]


@pytest.mark.parametrize("setting", ["off", "on"])
def test_frames_without_a_stamp_have_the_kernel_s_time(
    results: dict[str, Any], setting: str
) -> None:
    case = results[setting]
    assert len(case["times"]) == 20
    assert all(case["begun"] <= each <= case["ended"] for each in case["times"])
    assert "'eth0' delivers frames without the time of the network card" in results["log"]


def test_clocks_that_are_apart_are_refused(results: dict[str, Any]) -> None:
    """By whole seconds they may be apart."""
    assert results["apart"].startswith("NotReadyError: interface 'port0': hardware_timestamps")
    assert "the clock of 'eth0' (/dev/ptp0) differs from the system clock by " in results["apart"]
    assert "phc2sys -s CLOCK_REALTIME -c eth0 -O 0" in results["apart"]


def test_an_interface_without_a_card_is_refused(results: dict[str, Any]) -> None:
    assert results["without"] == (
        "NotSupportedError: interface 'port0': hardware_timestamps: true, which 'lo' does not "
        "have; set it to false, for timestamps in software"
    )


def test_the_privilege_is_named(results: dict[str, Any]) -> None:
    assert "switching them on needs CAP_NET_ADMIN" in results["unprivileged"]
