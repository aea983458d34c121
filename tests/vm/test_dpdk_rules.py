"""Rules of engine ``dpdk`` for flows, on a ``net_tap``: a kernel with the filters that it needs."""

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
    return in_guest(
        Path(__file__).with_name("dpdk_rules_job.py"),
        *("tun", "veth", "sch_multiq", "sch_ingress", "cls_flower", "act_skbedit", "act_gact"),
        environment={"DAQIRI_ENGINE_PATH": str(MODULES)},
    )


def test_each_flow_tells_whether_hardware_steers_it(results: dict[str, Any]) -> None:
    told = results["offload"]
    assert told["one"] == ["hardware", ""]
    assert told["two"] == ["hardware", ""]
    assert told["ports"][0] == ""
    assert "udp_dst is a range of ports (6000-6010)" in told["ports"][1]
    assert told["length"][0] == ""
    assert "item not supported" in told["length"][1]


def test_packets_arrive_with_their_flows_whatever_steers_them(results: dict[str, Any]) -> None:
    assert results["arrived"] == {
        "5001 0 1": 100,
        "5002 1 2": 100,
        "6005 1 3": 100,
        "7000 0 4": 100,
        "8000 0 0": 100,
    }


def test_the_rules_have_seen_the_packets_that_tshark_sees(results: dict[str, Any]) -> None:
    assert results["tshark"] == dict.fromkeys(("5001", "5002", "6005", "7000", "8000"), 100)
    assert results["rules"] == {"ipv4 5001": 100, "ipv6 5001": 0, "ipv4 10.0.0.1 5002": 100}


def test_rules_follow_changes_of_flows(results: dict[str, Any]) -> None:
    assert "All tests passed" in results["suite"], results["suite"]
    assert "left out" not in results["suite"]
