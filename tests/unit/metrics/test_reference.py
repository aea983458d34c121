"""The reference of metrics has what an engine gives."""

import re
from pathlib import Path

from daqiri_ophyd.metrics._instruments import INSTRUMENTS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_the_page_has_every_metric_with_kind_unit_and_meaning() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (\w+) \| (\S+) \| [^|]+ \| ([^|]+) \|$", PAGE.read_text(), re.M
    )
    assert rows == [(i.name, i.kind, i.unit, i.description.rstrip(".")) for i in INSTRUMENTS]
