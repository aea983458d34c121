"""Counters of capture files, read from their metadata."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.catalog._adapter import CounterSequenceAdapter
from daqiri_ophyd.documents import SUMMARY_DTYPE, sidecar_path

FILES: list[dict[str, Any]] = [
    {"packets": 3, "bytes": 30, "t_first_ns": 1, "t_last_ns": 2, "dropped": 0},
    {"packets": 4, "bytes": 40, "t_first_ns": 3, "t_last_ns": 4, "dropped": 5},
    {
        **{"packets": 6, "bytes": 60, "t_first_ns": 5, "t_last_ns": 6, "dropped": 0},
        **{"lost_before_engine": 7, "lost_before_engine_by_reason": {"card": 7}},
    },
]


@pytest.fixture
def uris(tmp_path: Path) -> list[str]:
    """Files whose metadata is all that is read."""
    for number, content in enumerate(FILES):
        file = tmp_path / f"a_{number:06d}.pcap"
        file.write_bytes(b"")
        sidecar_path(file).write_text(json.dumps(content))
    return [f"file://localhost{path}" for path in sorted(tmp_path.glob("*.pcap"))]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("packets", [3, 4, 6]),
        ("dropped", [0, 5, 0]),
        ("lost_before_engine", [0, 0, 7]),
        ("lossy", [False, True, True]),
        ("t_last_ns", [2, 4, 6]),
    ],
)
def test_a_counter_of_each_file(uris: list[str], field: str, expected: list[Any]) -> None:
    adapter = CounterSequenceAdapter.from_uris(*uris, field=field)
    values = adapter.read()
    assert values.dtype == (bool if field == "lossy" else np.int64)
    assert values.tolist() == expected
    assert adapter.read(slice(1, 3)).tolist() == expected[1:]


def test_the_record_of_a_file_is_unchanged() -> None:
    """Catalogs have stored its type."""
    assert SUMMARY_DTYPE.names == ("packets", "bytes", "t_first_ns", "t_last_ns", "dropped")
