import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.engine import Lateness, RxCounters, TxCounters


def lateness(counts: list[int], maximum: int) -> Lateness:
    return Lateness(maximum, np.arange(len(counts) + 1) * 10, np.array(counts, np.int64))


def test_nothing_counted() -> None:
    empty = lateness([], 0)
    assert (empty.count, empty.p50, empty.p999, empty.maximum) == (0, 0, 0, 0)
    edges, counts = empty.histogram()
    assert (len(edges), len(counts)) == (1, 0)


def test_quantiles_are_ends_of_buckets() -> None:
    late = lateness([50, 40, 9, 1], 33)
    assert late.count == 100
    assert (late.p50, late.p90, late.p99, late.p999) == (9, 19, 29, 33)
    assert late.quantile(0.0) == 9
    assert late.quantile(1.0) == late.maximum == 33
    assert "p99=29" in repr(late)


@given(st.lists(st.integers(0, 100), max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_quantiles_grow(counts: list[int], a: float, b: float) -> None:
    late = lateness(counts, 10 * len(counts))
    assert late.quantile(min(a, b)) <= late.quantile(max(a, b)) <= late.maximum


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan")])
def test_a_fraction_is_from_0_to_1(q: float) -> None:
    with pytest.raises(ValueError, match="accepted is 0 to 1"):
        lateness([1], 1).quantile(q)


def test_drops_are_summed() -> None:
    assert RxCounters(10, 100, 5, 2, 1, 0, 1, {"kernel": 2, "nic": 1}).dropped_total == 3
    assert TxCounters(10, 7, 100, 0, 1, 0, {"send_error": 3}).dropped_total == 3
