"""Frames corrected with reference data, with the same bits on CPU and GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daqiri_ophyd.engine import DeviceArray, Frame

from ._opened_file import opened_file
from ._reference_data import REFERENCES, checked_reference, load_reference, shape_text

__all__ = ["Correction"]

_INSTRUMENT = "/entry/instrument"
_ACCEPTED = "accepted are integers of up to 32 bits, and floats of 16, 32 and 64 bits"
# One operation after the other, each rounded: the compiler may not fuse them. In PTX, because CuPy
# compiles with -ftz=true, whose operations have 0 for subnormal numbers.
_OPERATIONS = """
template <typename T> __device__ float single(T a) { return static_cast<float>(a); }
__device__ float single(double a) {
  float single;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(single) : "d"(a));
  return single;
}
__device__ float difference(float a, float b) {
  float difference;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(a), "f"(b));
  return difference;
}
__device__ float quotient(float a, float b) {
  float quotient;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}
"""
_KERNEL = """
const float value = quotient(difference(single(frame), dark), flatfield);
corrected = masked || !valid || isnan(value) ? fill : value;
"""


class Correction:
    """Corrects frames: ``(frame - dark) / flatfield``, and a fill value where pixels are masked.

    It changes no file: frames are recorded as they come, and corrected where they are read.

    Parameters
    ----------
    dark, flatfield : array_like or str, optional
        Dark frame and flat field, of the shape of a frame: numbers, or a file as for
        `load_reference`. Without one, nothing is subtracted, or pixels are divided by 1.
    pixel_mask : array_like or str, optional
        Mask of the same shape, 0 or False: good.
    fill : float
        Value of pixels that are masked, and of all others without a number.

    Attributes
    ----------
    shape : tuple of int
        Shape of a frame.
    references : dict of str to ndarray
        ``pixel_mask``, ``dark`` and ``flatfield``, those that were given, as they were given.
    masked : ndarray of bool
        Pixels that are always masked: by the mask, and where dark or flat field are no finite
        numbers, or the flat field is 0.
    fill : float32
        The fill value.

    Raises
    ------
    ValueError
        If no reference data are given, their shapes differ, or a type is not accepted. The message
        has what was found, and what is accepted.
    OSError
        If a file cannot be read.

    Notes
    -----
    All numbers are float32, IEEE 754, rounded to the nearest with ties to even, and each step is
    rounded by itself:

    1. Pixel, dark and flat field become float32. That is exact for integers up to 2^24, and for
       floats of 16 and 32 bits.
    2. The dark frame is subtracted.
    3. The difference is divided by the flat field.
    4. Pixels that are masked, that have not arrived, or whose result is not a number (NaN) become
       `fill`. NaN as `fill` has the bits 0x7FC00000.

    Numbers beyond the range of float32 are infinite; subnormal ones are kept. So a GPU computes the
    same bits as a CPU, and as numpy's float32 numbers one by one.

    Examples
    --------
    >>> correction = Correction.of_master("images_000000_master.h5")
    >>> with h5py.File("images_000000_master.h5") as file:
    ...     image = correction.apply(file["entry/data/data"][0])
    """

    def __init__(
        self,
        *,
        dark: ArrayLike | str | os.PathLike[str] | None = None,
        flatfield: ArrayLike | str | os.PathLike[str] | None = None,
        pixel_mask: ArrayLike | str | os.PathLike[str] | None = None,
        fill: float = np.nan,
    ) -> None:
        given = {"pixel_mask": pixel_mask, "dark": dark, "flatfield": flatfield}
        self.references: dict[str, NDArray[Any]] = {}
        shape: tuple[int, ...] | None = None
        for name in REFERENCES:
            source = given[name]
            if source is None:
                continue
            values = _reference(name, source)
            if shape is not None and values.shape != shape:
                first = next(iter(self.references))
                raise ValueError(
                    f"{name} has the shape {shape_text(values.shape)}, and {first} "
                    f"{shape_text(shape)}; accepted is one shape, that of a frame."
                )
            shape = values.shape
            self.references[name] = values
        if shape is None:
            raise ValueError(
                "a correction without reference data; accepted are dark, flatfield and pixel_mask, "
                "at least one of them."
            )
        self.shape = shape
        with np.errstate(over="ignore", invalid="ignore"):
            self.fill = np.float32(fill)
            dark32 = np.asarray(self.references.get("dark", np.zeros(shape)), np.float32)
            flat32 = np.asarray(self.references.get("flatfield", np.ones(shape)), np.float32)
        masked = ~np.isfinite(dark32) | ~np.isfinite(flat32) | (flat32 == 0)
        if "pixel_mask" in self.references:
            masked |= self.references["pixel_mask"] != 0
        self.masked: NDArray[np.bool_] = masked
        if np.isnan(self.fill):
            self.fill = np.float32(np.nan)  # of the many patterns of bits, this one
        self._arrays = tuple(map(np.ascontiguousarray, (dark32, flat32, masked)))
        self._on_gpus: dict[int, tuple[Any, ...]] = {}

    @classmethod
    def of_master(
        cls,
        path: str | os.PathLike[str],
        *,
        replaced: Mapping[str, ArrayLike | str | os.PathLike[str]] | None = None,
        fill: float = np.nan,
    ) -> Correction:
        """Return the correction with the reference data of a master file.

        Parameters
        ----------
        path : path
            The master file; see `write_master`.
        replaced : mapping, optional
            Reference data to use instead of its own, or beside them, by their names.
        fill : float
            As for the class.

        Raises
        ------
        ValueError
            If it has no reference data, several detectors have them, or they have been applied.
        OSError
            If it cannot be read.
        """
        found = {**_of_file(Path(path)), **(replaced or {})}
        if not found:
            raise ValueError(
                f"{path} has no reference data; accepted are {', '.join(REFERENCES)} of its "
                "detector. Write the master with them: daqiri-ophyd frames master --dark ..., or "
                "give them here."
            )
        return cls(**found, fill=fill)

    def apply(self, frames: Any, valid: Any = None) -> Any:
        """Return corrected frames, in new memory.

        Parameters
        ----------
        frames : ndarray, cupy.ndarray, Frame or DeviceArray, shape (..., shape of a frame)
            A frame, or a stack of them: integers of up to 32 bits, or floats of up to 64. Integers
            of 64 bits are not accepted, because float32 has not their digits: convert them to
            float64 where that is fine. Frames of ``bf16``, which appear as uint16, have to be
            converted to float32 before.
        valid : ndarray or cupy.ndarray of bool, optional
            Which pixels have arrived, of the shape of the frames or of one frame; see
            `daqiri_ophyd.engine.valid_pixels`. Default: all.

        Returns
        -------
        ndarray or cupy.ndarray of float32, shape (..., shape of a frame)
            In GPU memory, if the frames are there; CuPy computes it, in its current stream.

        Raises
        ------
        ValueError
            If the shape does not fit.
        TypeError
            If the type is not accepted.
        """
        pixels = frames.data if isinstance(frames, Frame) else frames
        if isinstance(pixels, DeviceArray) or hasattr(pixels, "__cuda_array_interface__"):
            return self._apply_on_gpu(pixels, valid)
        pixels = np.asarray(pixels)
        self._require(pixels)
        arrived = None if valid is None else self._arrived(np.asarray(valid), pixels.shape)
        dark, flatfield, masked = self._arrays
        with np.errstate(all="ignore"):
            corrected = pixels.astype(np.float32, order="C")
            np.subtract(corrected, dark, out=corrected)
            np.divide(corrected, flatfield, out=corrected)
        lacking = np.isnan(corrected)
        lacking |= masked
        if arrived is not None:
            lacking |= ~arrived
        np.copyto(corrected, self.fill, where=lacking)
        return corrected

    def _apply_on_gpu(self, pixels: Any, valid: Any) -> Any:
        import cupy  # pyright: ignore[reportMissingImports]

        pixels = cupy.asarray(pixels)
        self._require(pixels)
        arrived = True if valid is None else self._arrived(cupy.asarray(valid), pixels.shape)
        with pixels.device:
            dark, flatfield, masked = self._arrays_on(pixels.device.id)
            return _kernel()(pixels, dark, flatfield, masked, arrived, self.fill)

    def _arrays_on(self, device: int) -> tuple[Any, ...]:
        """Return the arrays in the memory of a GPU, the current one."""
        import cupy  # pyright: ignore[reportMissingImports]

        if device not in self._on_gpus:
            copied = tuple(map(cupy.asarray, self._arrays))
            # Later calls may use other streams.
            cupy.cuda.get_current_stream().synchronize()
            self._on_gpus[device] = copied
        return self._on_gpus[device]

    def _require(self, pixels: Any) -> None:
        wide, kind = pixels.dtype.itemsize, pixels.dtype.kind
        if not (kind in "iu" and wide <= 4 or kind == "f" and wide <= 8):
            raise TypeError(
                f"frames have the type {pixels.dtype}; {_ACCEPTED}. Convert others, such as "
                "integers of 64 bits to float64."
            )
        found = pixels.shape[-len(self.shape) :]
        if found != self.shape:
            raise ValueError(
                f"frames have the shape {shape_text(found)}, and the reference data "
                f"{shape_text(self.shape)}; accepted are frames of that shape, or stacks of them."
            )

    def _arrived(self, valid: Any, shape: tuple[int, ...]) -> Any:
        if valid.dtype != np.bool_ or valid.shape not in (shape, self.shape):
            raise ValueError(
                f"valid has the shape {shape_text(valid.shape)} and type {valid.dtype}; accepted "
                f"are booleans of the shape {shape_text(shape)}, a value for each pixel: "
                "daqiri_ophyd.engine.valid_pixels makes them of those of packets."
            )
        return valid

    def __getstate__(self) -> dict[str, Any]:
        # Arrays of a GPU stay there.
        return {**self.__dict__, "_on_gpus": {}}

    def __repr__(self) -> str:
        return (
            f"<Correction of frames {shape_text(self.shape)}: {', '.join(self.references)}, "
            f"{int(self.masked.sum())} pixels masked>"
        )


@cache
def _kernel() -> Any:
    import cupy  # pyright: ignore[reportMissingImports]

    return cupy.ElementwiseKernel(
        "T frame, float32 dark, float32 flatfield, bool masked, bool valid, float32 fill",
        "float32 corrected",
        _KERNEL,
        "daqiri_ophyd_correction",
        preamble=_OPERATIONS,
    )


def _reference(name: str, source: Any) -> NDArray[Any]:
    if isinstance(source, str | os.PathLike):
        return load_reference(name, os.fspath(source))
    return checked_reference(name, "the array", np.asarray(source), None)


def _of_file(path: Path) -> dict[str, NDArray[Any]]:
    with opened_file(path) as file:
        instrument = file.get(_INSTRUMENT, {})
        found: dict[str, dict[str, NDArray[Any]]] = {}
        for name, group in instrument.items():
            of_group = {key: np.asarray(group[key][()]) for key in REFERENCES if key in group}
            applied = [key for key in of_group if f"{key}_applied" in group]
            if any(group[f"{key}_applied"][()] for key in applied):
                raise ValueError(
                    f"{path}: {', '.join(applied)} applied to its frames already; accepted are "
                    "files of frames as they were recorded, and their masters."
                )
            if of_group:
                found[name] = of_group
    if len(found) > 1:
        raise ValueError(
            f"{path} has reference data of several detectors, {', '.join(found)}; accepted is one. "
            "Write a master of the files of each."
        )
    return next(iter(found.values()), {})
