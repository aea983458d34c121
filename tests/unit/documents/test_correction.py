"""Frames corrected with reference data."""

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from corrected_frames import TYPES, bits, cases, scalar_correction, special
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from daqiri_ophyd.documents import Correction

SHAPE = (2, 3)
NAN_BITS = 0x7FC00000


def numbers(dtype: str) -> st.SearchStrategy[Any]:
    """Return a strategy for any number of a type, and those at which results could differ."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        width: Any = 8 * kind.itemsize
        return st.one_of(st.sampled_from(list(special(dtype))), st.floats(width=width))
    limits = np.iinfo(kind)
    return st.one_of(
        st.sampled_from(list(special(dtype))),
        st.integers(int(limits.min), int(limits.max)),
    )


@given(st.data())
def test_the_bits_are_those_of_numbers_computed_one_by_one(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(TYPES))
    stack = data.draw(st.sampled_from([(), (1,), (2, 2)]))
    shape = (*stack, *SHAPE)
    frames = data.draw(arrays(dtype, shape, elements=numbers(dtype)))
    references = [
        data.draw(arrays(kind, SHAPE, elements=numbers(kind)))
        for kind in data.draw(st.tuples(*[st.sampled_from([*TYPES, "int64", "uint64"])] * 2))
    ]
    mask = data.draw(arrays("uint32", SHAPE, elements=st.sampled_from([0, 0, 0, 1, 2**31])))
    valid = data.draw(arrays("bool", shape))
    fill = data.draw(st.sampled_from([np.nan, 0.0, -1.5, 0.1, 1e300]))
    dark, flat = references
    found = Correction(dark=dark, flatfield=flat, pixel_mask=mask, fill=fill).apply(frames, valid)
    whole = [np.broadcast_to(each, shape) for each in (dark, flat, mask)]
    assert found.shape == shape
    with np.errstate(over="ignore"):
        assert bits(found) == bits(scalar_correction(frames, *whole, valid, fill))


def test_the_cases_of_a_gpu_are_right_on_a_cpu() -> None:
    shape = (3, 5, 7)
    for correction, frames, valid in cases(shape):
        known = correction.references
        whole = [
            np.broadcast_to(known[name], shape) for name in ("dark", "flatfield", "pixel_mask")
        ]
        expected = scalar_correction(frames, *whole, valid, float(correction.fill))
        before = frames.copy()
        assert bits(correction.apply(frames, valid)) == bits(expected)
        assert frames.tobytes() == before.tobytes()
        every = scalar_correction(frames, *whole, np.ones(shape, bool), float(correction.fill))
        assert bits(correction.apply(frames)) == bits(every)
        # Of other orders of bytes and of axes.
        swapped = frames.astype(frames.dtype.newbyteorder(">"), order="F")
        assert bits(correction.apply(swapped)) == bits(every)


def test_each_step_is_rounded_by_itself() -> None:
    """A fused or wider computation has other bits."""
    dark, flat = np.full(SHAPE, 0.1, np.float32), np.full(SHAPE, 3.0, np.float32)
    frames = np.full(SHAPE, 2**24 + 2, np.uint32)
    (found, *_) = Correction(dark=dark, flatfield=flat).apply(frames).ravel()
    assert found == np.float32(np.float32(2**24 + 2) / np.float32(3))
    # 2^24 + 1 becomes 2^24, ties to even.
    frames = np.full(SHAPE, 2**24 + 1, np.uint32)
    assert (Correction(dark=np.full(SHAPE, 2**24)).apply(frames) == 0).all()


def test_what_has_no_number_has_the_fill_value() -> None:
    flat = np.array([[0.0, np.nan, np.inf], [1e-300, -0.0, 2.0]])  # 1e-300 is 0 as float32
    correction = Correction(flatfield=flat)
    assert correction.masked.tolist() == [[True] * 3, [True, True, False]]
    found = correction.apply(np.full(SHAPE, 8, np.uint8))
    assert bits(found) == [NAN_BITS] * 5 + [np.float32(4).view(np.uint32)]
    quiet = np.array([0xFFC12345], np.uint32).view(np.float32)[0]
    frames = np.full(SHAPE, quiet)
    frames[0] = np.inf, -np.inf, 1
    correction = Correction(dark=[[0, 0, np.inf], [0, 0, 0]], fill=quiet)
    assert bits(correction.apply(frames)) == [0x7F800000, 0xFF800000] + [NAN_BITS] * 4
    masked = Correction(pixel_mask=[[False, True, False], [False] * 3], fill=-1)
    assert masked.apply(np.full(SHAPE, 8, np.int32)).tolist() == [[8, -1, 8], [8, 8, 8]]
    valid = np.ones(SHAPE, bool)
    valid[1, 2] = False
    stack = np.full((2, *SHAPE), 8, np.int32)
    assert masked.apply(stack, valid).tolist() == [[[8, -1, 8], [8, 8, -1]]] * 2


def test_references_are_read_from_files(tmp_path: Path) -> None:
    dark = np.arange(6, dtype=np.uint16).reshape(SHAPE)
    np.save(tmp_path / "dark.npy", dark)
    with h5py.File(tmp_path / "flat.h5", "w") as file:
        file["entry/flat"] = np.full(SHAPE, 2.0)
    correction = Correction(dark=tmp_path / "dark.npy", flatfield=f"{tmp_path}/flat.h5:/entry/flat")
    assert correction.apply(dark + 2).tolist() == [[1.0] * 3] * 2
    assert repr(correction) == "<Correction of frames 2 x 3: dark, flatfield, 0 pixels masked>"
    copied = pickle.loads(pickle.dumps(correction))
    assert copied.apply(dark + 2).tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "without reference data; accepted are dark, flatfield and pixel_mask"),
        (
            {"dark": np.zeros(SHAPE), "flatfield": np.ones((2, 2))},
            "flatfield has the shape 2 x 2, and dark 2 x 3; accepted is one shape",
        ),
        (
            {"dark": np.zeros(SHAPE, complex)},
            "dark: the array has the type complex128; accepted are integers and floats",
        ),
        (
            {"pixel_mask": np.zeros(SHAPE)},
            "pixel_mask: the array has the type float64; accepted are integers and booleans",
        ),
        ({"dark": "dark.tiff"}, "dark is 'dark.tiff'; accepted are NAME.npy and NAME.h5:/DATASET"),
    ],
)
def test_references_that_do_not_fit_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Correction(**given)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "bool", "complex64", "longdouble"])
def test_frames_of_other_types_are_refused(dtype: str) -> None:
    correction = Correction(dark=np.zeros(SHAPE))
    text = f"frames have the type {np.dtype(dtype)}; accepted are integers of up to 32 bits"
    with pytest.raises(TypeError, match=text):
        correction.apply(np.zeros(SHAPE, dtype))


def test_frames_that_do_not_fit_are_refused() -> None:
    correction = Correction(dark=np.zeros(SHAPE))
    for shape in ((3,), (3, 2), (2, 3, 2)):
        with pytest.raises(ValueError, match=r"and the reference data 2 x 3; accepted are frames"):
            correction.apply(np.zeros(shape, np.uint16))
    frames = np.zeros((4, *SHAPE), np.uint16)
    for valid in (np.ones((4, 8), bool), np.ones(SHAPE, np.uint8)):
        with pytest.raises(ValueError, match=r"accepted are booleans of the shape 4 x 2 x 3"):
            correction.apply(frames, valid)
