"""Launch times that the kernel keeps: fq and etf, in a guest whose kernel has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.timeout(300)]

Result = dict[str, Any]


@pytest.fixture(scope="module")
def results(in_guest: Callable[..., Any]) -> dict[str, Any]:
    """What came through each discipline."""
    job = Path(__file__).with_name("launch_times_job.py")
    return in_guest(job, "veth", "sch_fq", "sch_etf", "sch_tbf")


def require_exact(case: Result) -> None:
    """Every packet is counted once, in order, and none came before its launch time."""
    numbers = [number for number, _ in case["received"]]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(numbers) == case["sent"]
    assert case["sent_bytes"] == 1000 * case["sent"]
    assert case["held"] == 0
    assert case["submitted"] == case["sent"] + sum(case["dropped"].values())
    for number, stamp in case["received"]:
        if number < len(case["launch"]):
            assert stamp >= case["launch"][number]


@pytest.mark.parametrize(
    ("name", "kept_by"), [("fq", "fq on v0"), ("etf", "etf on v0"), ("mq", "mq with fq on v0")]
)
def test_packets_that_the_kernel_has_wait_for_their_time(
    results: dict[str, Result], name: str, kept_by: str
) -> None:
    case = results[name]
    require_exact(case)
    assert case["launch_times"] == kept_by
    assert case["late"] == 0
    # The kernel had them before: what kept them apart is the discipline.
    assert case["handed_over_in_time"] > 0
    assert case["counted_at"] >= case["launch"][-1]
    if name != "etf":
        assert case["sent"] == len(case["launch"])


@pytest.mark.parametrize(
    ("name", "timed", "untimed"), [("fq_past", 300, 50), ("etf_untimed", 0, 50)]
)
def test_packets_without_a_time_to_wait_for_go_at_once(
    results: dict[str, Result], name: str, timed: int, untimed: int
) -> None:
    case = results[name]
    require_exact(case)
    assert case["late"] == timed
    assert case["submitted"] == len(case["launch"]) + untimed
    # etf may still be faster than a guest that is not given its turn.
    assert name == "etf_untimed" or case["sent"] == case["submitted"]


def test_fq_is_given_no_more_than_it_holds(results: dict[str, Result]) -> None:
    case = results["fq_short"]
    require_exact(case)
    assert case["sent"] == case["submitted"] == 500


def test_packets_of_a_flow_that_fq_refuses_are_sent_later(results: dict[str, Any]) -> None:
    """Without launch times: each is sent once, and fq has refused some before."""
    case = results["fq_many"]
    assert case["refused"] > 0
    assert case["sent"] == 4000
    assert not any(case["dropped"].values())
    assert case["came"] == [1] * 4000


@pytest.mark.parametrize("name", ["etf_late", "etf_late_ipv6"])
def test_what_etf_drops_is_counted_as_missed(results: dict[str, Result], name: str) -> None:
    case = results[name]
    require_exact(case)
    assert case["sent"] > 0
    assert case["dropped"]["missed_launch"] > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("half", ["mq with", "'v0'", "tc qdisc replace dev v0 root fq"]),
        ("pfifo", ["'pfifo'", "sends immediately", "[fd77::2]:5000"]),
        ("no_delta", ["delta of 0 ns"]),
        ("deadline", ["deadline mode"]),
    ],
)
def test_other_disciplines_are_refused(
    results: dict[str, Any], name: str, words: list[str]
) -> None:
    for word in words:
        assert word in results[name]
