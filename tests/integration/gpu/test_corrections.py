"""Frames in GPU memory are corrected with the bits of a CPU."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from daqiri_ophyd.documents import Correction
from daqiri_ophyd.engine import DeviceArray, Engine

from ..corrected_frames import bits, cases
from .sent_frames import SHAPE
from .test_device_frames import on_the_gpu, received


@pytest.mark.gpu
def test_a_gpu_corrects_frames_with_the_bits_of_a_cpu() -> None:
    import cupy

    for correction, frames, valid in cases((3, 61, 67)):
        expected = bits(correction.apply(frames, valid))
        every = bits(correction.apply(frames))
        on_gpu = cupy.asarray(frames)
        before = on_gpu.copy()
        found = correction.apply(on_gpu, cupy.asarray(valid))
        assert isinstance(found, cupy.ndarray)
        assert bits(found.get()) == expected
        assert bits(correction.apply(on_gpu, valid).get()) == expected  # of the CPU's memory
        assert bits(correction.apply(on_gpu).get()) == every
        assert bits(correction.apply(on_gpu[1]).get()) == bits(correction.apply(frames[1]))
        assert on_gpu.tobytes() == before.tobytes()
        # Of another order of axes, and with gaps.
        turned = cupy.asarray(frames.transpose(2, 1, 0).copy()).transpose(2, 1, 0)
        assert bits(correction.apply(turned).get()) == every
        wide = cupy.asarray(np.repeat(frames, 2, axis=0))[::2]
        assert bits(correction.apply(wide).get()) == every


@pytest.mark.gpu
def test_frames_are_corrected_where_they_lie() -> None:
    import cupy

    random = np.random.default_rng(1)
    mask = random.random(SHAPE) < 0.1
    correction = Correction(
        dark=random.random(SHAPE), flatfield=random.random(SHAPE), pixel_mask=mask
    )
    with Engine.open(on_the_gpu()) as engine:
        frame, sent = received(engine, 0)
        assert isinstance(frame.data, DeviceArray)
        expected = bits(correction.apply(sent))
        for taken in (frame, frame.data, cupy.asarray(frame)):
            assert bits(correction.apply(taken).get()) == expected


@pytest.mark.gpu
def test_threads_with_streams_of_their_own_may_share_a_correction() -> None:
    import cupy

    (correction, frames, valid), *_ = cases((3, 61, 67))
    expected = bits(correction.apply(frames, valid))

    def corrected(_: int) -> list[int]:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            found = correction.apply(cupy.asarray(frames), cupy.asarray(valid))
            stream.synchronize()
            return bits(found.get())

    with ThreadPoolExecutor(8) as pool:
        assert all(each == expected for each in pool.map(corrected, range(32)))


@pytest.mark.gpu
def test_frames_that_do_not_fit_are_refused_on_a_gpu() -> None:
    import cupy

    correction = Correction(dark=np.zeros((2, 3)))
    with pytest.raises(TypeError, match="frames have the type uint64; accepted are"):
        correction.apply(cupy.zeros((2, 3), np.uint64))
    with pytest.raises(ValueError, match="frames have the shape 3 x 2"):
        correction.apply(cupy.zeros((3, 2), np.uint16))
    with pytest.raises(ValueError, match="valid has the shape 2 and type bool"):
        correction.apply(cupy.zeros((2, 3), np.uint16), cupy.ones(2, bool))
