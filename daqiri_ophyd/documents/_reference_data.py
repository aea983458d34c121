"""Reference data of a detector: pixel mask, dark and flat field, from files of a user."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._opened_file import opened_file

__all__ = ["REFERENCES", "checked_reference", "load_reference", "shape_text"]

REFERENCES = {
    "pixel_mask": "bits of each pixel, 0: good (NXdetector)",
    "dark": "frame without light, in counts",
    "flatfield": "frame of even light",
}
"""Reference data, by their names in files of frames."""

_ACCEPTED = "accepted are NAME.npy and NAME.h5:/DATASET"
_LARGEST_MASK = 2**32 - 1


def load_reference(name: str, source: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return reference data from a file, checked.

    Parameters
    ----------
    name : str
        ``pixel_mask``: integers of 32 bits, or booleans, 0: good. ``dark``, ``flatfield``: numbers.
    source : str
        Path of an ``.npy`` file, or of an HDF5 file with a dataset: ``mask.h5:/entry/mask``.
    shape : tuple of int, optional
        Shape of a frame, which they have to have.

    Returns
    -------
    ndarray
        A mask as uint32.

    Raises
    ------
    ValueError
        If the shape or the type differs, or there is no such dataset. The message has what was
        found, and what is accepted.
    OSError
        If the file cannot be read.
    """
    return checked_reference(name, source, _load(name, source), shape)


def checked_reference(
    name: str, source: str, values: NDArray[Any], shape: tuple[int, ...] | None
) -> NDArray[Any]:
    """Return reference data if they have the shape and an accepted type; see `load_reference`."""
    if shape is not None and values.shape != tuple(shape):
        raise ValueError(
            f"{name}: {source} has the shape {shape_text(values.shape)}, and a frame "
            f"{shape_text(shape)}; accepted is the shape of a frame."
        )
    accepted = "bui" if name == "pixel_mask" else "buif"
    if values.dtype.kind not in accepted:
        kinds = "integers and booleans" if name == "pixel_mask" else "integers and floats"
        raise ValueError(f"{name}: {source} has the type {values.dtype}; accepted are {kinds}.")
    if name != "pixel_mask":
        return values
    if values.size and not 0 <= int(values.min()) <= int(values.max()) <= _LARGEST_MASK:
        raise ValueError(
            f"{name}: {source} has values from {values.min()} to {values.max()}; accepted is 0 to "
            f"{_LARGEST_MASK}, bits of 32."
        )
    return values.astype(np.uint32)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape for messages."""
    return " x ".join(map(str, shape)) or "of a scalar"


def _load(name: str, source: str) -> NDArray[Any]:
    file, _, dataset = source.partition(":/")
    suffix = Path(file).suffix
    if suffix == ".npy" and not dataset:
        try:
            return np.load(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{name}: {source} is no array of numpy: {error}.") from error
    if suffix not in (".h5", ".hdf5", ".nxs") or not dataset:
        raise ValueError(f"{name} is {source!r}; {_ACCEPTED}.")
    import h5py

    with opened_file(Path(file)) as opened:
        found = opened.get(dataset)
        if not isinstance(found, h5py.Dataset):
            known: list[str] = []
            opened.visititems(
                lambda at, part: known.append(f"/{at}") if isinstance(part, h5py.Dataset) else None
            )
            raise ValueError(
                f"{name}: {file} has no dataset '/{dataset}'; it has "
                f"{', '.join(known[:10]) or 'none'}."
            )
        return np.asarray(found[()])
