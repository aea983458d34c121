"""Reports: results, files, limits, and what is compared with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import load_config
from daqiri_ophyd.field_test import StepResult, StepStatus, _search
from daqiri_ophyd.field_test._budget import Budget
from daqiri_ophyd.field_test._page import page_of
from daqiri_ophyd.field_test._published import published_figures, published_rate
from daqiri_ophyd.field_test._report import outcome_of, part_of, read_report, write_text
from daqiri_ophyd.field_test._step import StepSkippedError
from daqiri_ophyd.field_test._traffic import Outcome, Traffic


def step(status: StepStatus, *, again: bool = False) -> StepResult:
    return StepResult("flow a", "flow", status, "text", again=again)


@pytest.mark.parametrize(
    ("steps", "planned", "result"),
    [
        ([step(StepStatus.PASSED)], 1, "passed"),
        ([step(StepStatus.PASSED), step(StepStatus.SKIPPED)], 2, "passed"),
        ([step(StepStatus.PASSED)], 2, "incomplete"),
        ([step(StepStatus.SKIPPED, again=True)], 1, "incomplete"),
        ([step(StepStatus.FAILED), step(StepStatus.SKIPPED, again=True)], 9, "failed"),
    ],
)
def test_a_result_is_that_of_all_steps(steps: list[StepResult], planned: int, result: str) -> None:
    assert outcome_of(steps, planned)[0] == result


def test_results_go_to_json_and_back() -> None:
    result = StepResult("rate", "rate", StepStatus.FAILED, "x", {"lost": 1}, seconds=0.5)
    assert StepResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_a_file_is_whole_or_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert read_report(path) is None
    write_text(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "one"
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]
    with pytest.raises(ValueError, match="is no JSON document"):
        read_report(path)


def test_a_part_of_a_killed_test_is_overwritten_and_a_link_is_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "report.html", tmp_path / "other"
    other.write_text("of others")
    part_of(path).symlink_to(other)
    write_text(path, "one")
    assert (path.read_text(), other.read_text()) == ("one", "of others")
    assert not part_of(path).exists()


def test_limits_stop_the_steps_that_are_left() -> None:
    budget = Budget(100, 1000)
    budget.require()
    assert budget.packets_left(100, 2) == 5
    budget.spend(1000)
    with pytest.raises(StepSkippedError, match="was reached") as stopped:
        budget.require()
    assert stopped.value.again
    with pytest.raises(StepSkippedError, match="time limit of 0 s"):
        Budget(0, 1000).require()


def test_traffic_that_was_cut_is_not_whole_whatever_the_clock_says() -> None:
    traffic = Traffic.__new__(Traffic)
    traffic._budget, traffic._cut = Budget(100, 1000), False
    traffic._require_whole()
    traffic._cut = True
    with pytest.raises(StepSkippedError, match="time limit of 100 s") as stopped:
        traffic._require_whole()
    assert stopped.value.again


class Lossy:
    """Traffic whose link carries so many packets per second."""

    def __init__(self, most: float, sender: float) -> None:
        self.most, self.sender, self.asked = most, sender, list[float | None]()

    def run(self, *, seconds: float, rate: float | None = None, hurries: bool) -> Outcome:
        self.asked.append(rate)
        offered = min(rate or self.sender, self.sender)
        lost = max(0, round((offered - self.most) * seconds))
        sent = round(offered * seconds)
        return Outcome(sent, sent, 64 * sent, sent - lost, sent - lost, lost, seconds=seconds)


@pytest.mark.parametrize("most", [100.0, 1_000.0, 77_777.0, 900_000.0])
def test_a_search_ends_near_the_rate_that_a_link_carries(most: float) -> None:
    traffic: Any = Lossy(most, 1e6)
    found = _search.rate_without_loss(traffic, 1.0)
    assert len(traffic.asked) == len(found.trials) <= 8
    assert found.best is not None
    assert not found.by_sender
    assert 0.85 * most <= found.best.packet_rate <= most


def test_a_search_of_a_link_that_keeps_up_needs_one_trial() -> None:
    traffic: Any = Lossy(1e6, 1e5)
    found = _search.rate_without_loss(traffic, 1.0)
    assert found.by_sender
    assert len(traffic.asked) == 1


def test_a_search_of_a_link_that_carries_nothing_ends_early() -> None:
    traffic: Any = Lossy(0.0, 1e5)
    found = _search.rate_without_loss(traffic, 1.0)
    assert found.best is None
    assert "packets lost" in found.last_losses
    assert len(traffic.asked) == 2


def test_trials_in_which_nothing_is_sent_are_not_without_loss() -> None:
    assert "no packet was sent" in Outcome().faults


def test_published_figures_have_a_source_and_are_not_invented() -> None:
    figures = published_figures()
    assert figures["url"].startswith("https://github.com/NVIDIA/daqiri/")
    raw = load_config(profiles.path("loopback"))
    assert published_rate(raw, 4096 + 42, 1) == figures["raw"]["Gb_per_s"]["4096"]
    assert published_rate(raw, 4096, 1) is None
    assert published_rate(raw, 4096, 2) is None
    assert published_rate(raw, 1500, 1) is None
    assert published_rate(load_config(profiles.path("udp")), 4096, 1) is None


def test_texts_of_others_are_no_markup_of_the_page() -> None:
    report = report_of("<script>alert(1)</script>")
    page = page_of(report)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def report_of(evil: str) -> dict[str, Any]:
    """A report in which each text of others is this one."""
    return {
        "configuration": {"name": evil, "sha256": "0" * 64, "text": evil},
        "settings": {"seconds": 1, "limit_s": 1, "traffic_bytes": 1},
        "result": "failed",
        "counts": {"failed": 1},
        "started": evil,
        "updated": evil,
        "interrupted": True,
        "version": "1",
        "host": {evil: evil},
        "ports": [{"port": evil, "address": evil}],
        "published": published_figures(),
        "steps": [
            {
                **StepResult(evil, "rate", StepStatus.FAILED, evil).to_dict(),
                "figures": {"losses": {evil: 1}},
            }
        ],
    }


def test_characters_that_change_how_a_page_is_shown_are_escaped() -> None:
    evil = "a\x1b[31m\u202eb\nc\udcff"
    report = report_of(evil)
    report["configuration"]["text"] = "one: 1\ntwo: \u202e2\n"
    page = page_of(report)
    page.encode()
    assert r"a\x1b[31m\u202eb\nc\udcff" in page
    assert "one: 1\ntwo: \\u202e2\n" in page
    assert not [c for c in page if not c.isprintable() and c != "\n"]
