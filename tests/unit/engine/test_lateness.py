import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.engine import LATENESS_EDGES, Lateness, RxCounters, TxCounters


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


def test_bins_are_the_same_for_all_and_lose_nothing() -> None:
    # The engine's buckets: 32 per octave.
    edges = np.array([*range(64), *((32 + k) << e for e in range(1, 58) for k in range(32))])
    counts = np.arange(len(edges) - 1)
    binned = Lateness(0, edges, counts).binned()
    assert binned.shape == (len(LATENESS_EDGES) - 1,)
    assert binned.sum() == counts.sum()
    for i in (0, 1, 40, len(binned) - 1):
        inside = (edges[:-1] >= LATENESS_EDGES[i]) & (edges[:-1] < LATENESS_EDGES[i + 1])
        assert binned[i] == counts[inside].sum()


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
