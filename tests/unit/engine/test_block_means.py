"""Means of blocks of pixels."""

from typing import Any

import numpy as np
import pytest
from binned_previews import means, same_bits
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from daqiri_ophyd.engine._block_means import block_means

INF = np.inf


def test_rows_and_columns_that_fill_no_block_are_left_out() -> None:
    pixels = np.array([[1, 2, 3, 4, 90], [5, 6, 7, 9, 90], [10, 10, 10, 11, 99]], np.uint8)
    assert block_means(pixels, 2).tolist() == [[3.5, 5.75]]
    assert block_means(pixels, 3).tolist() == [[6.0]]


def test_each_image_has_its_blocks() -> None:
    pixels = np.array([-1, -2, -3, -5, 10, 20, 30, 40, 0, 0, 0, 1], np.int16).reshape(3, 2, 2)
    found = block_means(pixels, 2)
    assert found.dtype == np.float32
    assert found.tolist() == [[[-2.75]], [[25.0]], [[0.25]]]


@pytest.mark.parametrize(
    ("dtype", "pixels", "mean"),
    [
        # Integers are added exactly.
        ("uint32", [2**32 - 1] * 3 + [3], 3221225472),
        ("int32", [-(2**31), 2**31 - 1, 7, -6], 0),
        ("int64", [-(2**63), 2**63 - 1, 9, -4], 1),
        ("uint64", [2**64 - 1] * 4, 2.0**64),
        # Floats are added as float64, in the order of rows.
        ("float64", [2.0**60, 1, -(2.0**60), 1], 0.25),
        ("float64", [2.0**60, -(2.0**60), 1, 1], 0.5),
        ("float32", [2.0**100, 1, -(2.0**100), 3], 0.75),
        ("float64", [1e300] * 4, INF),
        ("float16", [65504] * 4, 65504),
    ],
)
def test_sums(dtype: str, pixels: Any, mean: float) -> None:
    assert block_means(np.array(pixels, dtype).reshape(2, 2), 2).tolist() == [[mean]]


def test_what_is_not_a_number_has_the_same_bits_everywhere() -> None:
    quiet = np.array([0x7FC12345], np.uint32).view(np.float32)[0]
    pixels = np.array([[INF, -INF, quiet, 1]], np.float32)
    assert block_means(pixels, 1).view(np.uint32).tolist() == [
        [0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000]
    ]
    mixed = np.array([[INF, -INF], [1, 1]], np.float32)
    assert block_means(mixed, 2).view(np.uint32).tolist() == [[0x7FC00000]]


@pytest.mark.parametrize("binning", [64, 65, 100])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
def test_large_blocks(dtype: str, binning: int) -> None:
    rng = np.random.default_rng(binning)
    pixels = (rng.random((2, 130, 201)) * 200).astype(dtype)
    assert same_bits(block_means(pixels, binning), means(pixels, binning))


@given(
    data=st.data(),
    dtype=st.sampled_from(["uint8", "int16", "uint32", "int64", "uint64", "float16", "float32"]),
    shape=st.tuples(*[st.integers(1, 9)] * 3),
)
def test_any_pixels(data: st.DataObject, dtype: str, shape: tuple[int, ...]) -> None:
    pixels = data.draw(arrays(dtype, shape))
    binning = data.draw(st.integers(1, min(shape[-2:])))
    assert same_bits(block_means(pixels, binning), means(pixels, binning))
