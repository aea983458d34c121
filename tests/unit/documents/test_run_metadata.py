from typing import Any

import jmespath
import pytest

from daqiri_ophyd.documents import SAMPLE_QUERY, run_metadata

START: dict[str, Any] = {"uid": "5c09", "time": 1_700_000_000.25}


def test_without_a_run():
    assert run_metadata(None, "camera") == {"detector": "camera"}


def test_the_keys_of_a_start_document():
    start = START | {"scan_id": 3, "plan_name": "count", "sample": "Si", "proposal_id": 42}
    assert run_metadata(start, "camera") == {
        "detector": "camera",
        "uid": "5c09",
        "scan_id": 3,
        "plan_name": "count",
        "start_time": "2023-11-14T22:13:20.250000+00:00",
        "title": "scan 3 count",
        "sample": "Si",
        "experiment_identifier": "42",
    }


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        ("Si", "Si"),
        ({"name": "Si", "mass": 3}, "Si"),
        ({"sample_name": "Ge"}, "Ge"),
        ({"mass": 3}, '{"mass": 3}'),
        (17, "17"),
        (None, None),
        ("", None),
    ],
)
def test_samples(sample: Any, text: str | None) -> None:
    start = START | {"sample": sample}
    assert run_metadata(start, "camera").get("sample") == text
    shown = jmespath.search(SAMPLE_QUERY, {"start": start})
    assert (shown or None) == (sample if text and text.startswith(("{", "1")) else text)


def test_another_key_of_samples() -> None:
    start = START | {"sample": "", "sample_name": {"sample_id": "Ge"}}
    assert run_metadata(start, "camera")["sample"] == "Ge"
    assert jmespath.search(SAMPLE_QUERY, {"start": start}) == "Ge"


def test_values_that_files_cannot_have_are_left_out() -> None:
    described = {"count_time": float("nan"), "x_pixel_size": "75 um", "distance": 2, "gain": 3}
    start = START | {"scan_id": "first", "detector_metadata": {"camera": described, "other": 3}}
    found = run_metadata(start, "camera")
    assert "scan_id" not in found
    assert {key: found.get(key) for key in described} == {
        "count_time": None,
        "x_pixel_size": None,
        "distance": 2.0,
        "gain": None,
    }
    assert run_metadata(start, "other")["detector"] == "other"
