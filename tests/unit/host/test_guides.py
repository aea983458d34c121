"""The guides to prepare a host name checks that there are, and leave none out."""

import re
from pathlib import Path

import pytest

from daqiri_ophyd.host import CHECKS

GUIDES = sorted((Path(__file__).parents[3] / "docs/how-to/prepare-a-host").glob("*.md"))


def steps(page: Path) -> set[str]:
    """Return the checks that a page has steps for: terms of its definition lists."""
    terms = re.findall(r"^(`.+`)\n: ", page.read_text(), re.MULTILINE)
    return {name for term in terms for name in re.findall(r"`([^`]+)`", term)}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_step_has_its_check(page):
    assert steps(page) <= set(CHECKS)


def test_every_check_is_a_step_of_a_guide():
    assert set().union(*map(steps, GUIDES)) == set(CHECKS)
