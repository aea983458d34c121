"""A file of corrected frames, made of a file of frames or of a master."""

from __future__ import annotations

import math
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    InvalidParameterError,
    ReorderConfig,
    examine_frames,
    gap_mask,
    valid_pixels,
)

from ._correction import Correction
from ._frame_metadata import frame_facts, recorded_plan, told_by_frames
from ._master import INSTRUMENT, KEPT, copy_entry, is_master
from ._opened_file import opened_file
from ._reference_data import REFERENCES
from ._repair import is_written
from ._sidecar import read_sidecar_content, sidecar_part, sidecar_path, write_sidecar

__all__ = ["CORRECTED", "corrected_path", "write_corrected"]

CORRECTED = "_corrected"
"""End of the name of a file of corrected frames, before its suffix."""

_CHUNK_BYTES = 32 << 20
# Of groups, attributes and chunks.
_METADATA = 4 << 20


def corrected_path(source: Path) -> Path:
    """Return the default path of the corrected frames of a file."""
    return source.with_name(f"{source.stem}{CORRECTED}{source.suffix}")


def write_corrected(
    source: str | Path,
    correction: Correction,
    path: str | Path | None = None,
) -> Path:
    """Write a file of corrected frames; the frames as they were recorded stay where they are.

    It has all that a file of frames has, with frames of float32, and the reference data that were
    applied: ``dark_applied`` and so on are true. Pixels of packets that did not come have the fill
    value of the correction, and so have those between modules. If neither the source nor its
    metadata file tells which pixels a packet has, all pixels of a frame that lacks packets have it.

    Parameters
    ----------
    source : path
        A file of frames, or a master of one detector; complete.
    correction : Correction
        The correction, for frames of that shape.
    path : path, optional
        Where to write it. Default: ``images_000000_corrected.h5``, beside the source.

    Returns
    -------
    Path
        Where it is.

    Raises
    ------
    ValueError
        If the source is being written, damaged, corrected already, or has several detectors; if its
        frames do not fit the correction.
    FileExistsError
        If the file exists.
    OSError
        If the source or a file of it cannot be read, this one cannot be written, or the disk lacks
        space. Nothing is left of it.
    """
    import h5py

    with suppress(ImportError):
        import hdf5plugin  # noqa: F401 - for compressed frames
    source = Path(source)
    target = corrected_path(source) if path is None else Path(path)
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists; remove it to write it again.")
    told = read_sidecar_content(source)
    _require_complete(source, told)
    told = told or told_by_frames(source)
    part = target.with_name(f".{target.name}.part")
    try:
        # A killed process may have left them.
        for left in (part, sidecar_part(target)):
            left.unlink(missing_ok=True)
        with opened_file(source) as opened:
            detector = _detector_of(opened, source)
            group = f"{INSTRUMENT}/{detector}"
            plan = recorded_plan(told, source, detector)
            _create(part, opened, detector, correction)
            with h5py.File(part, "r+") as made:
                written = made[f"{group}/data"]
                _write_frames(opened[group], written, correction, plan)
        kept = {key: told[key] for key in KEPT if key in told}
        write_sidecar(target, {**kept, "dropped": 0, **frame_facts(examine_frames(part))})
        part.replace(target)
    except BaseException as error:
        for left in (part, sidecar_part(target), sidecar_path(target)):
            with suppress(OSError):
                left.unlink(missing_ok=True)
        unnamed = (None, str(part), str(sidecar_part(target)))
        if isinstance(error, OSError) and error.errno and error.filename in unnamed:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    return target


def _require_complete(source: Path, told: dict[str, Any]) -> None:
    if is_master(source):
        missing = [part for part in told["parts"] if not (source.parent / part).is_file()]
        if missing:
            raise FileNotFoundError(
                f"{source}: {len(missing)} of its files are not where it names them, such as "
                f"{missing[0]}. Move them there, or write a master of the files that are here."
            )
        return
    if is_written(source):
        raise ValueError(f"{source} is being written by a recorder; stop the recorder first.")
    found = examine_frames(source)
    if found.marked or set(found.lengths.values()) != {found.frames}:
        raise ValueError(
            f"{source} is damaged, as a killed recorder leaves it; repair it first: daqiri-ophyd "
            f"frames repair {source}"
        )


def _detector_of(opened: Any, source: Path) -> str:
    names = [name for name, group in opened[INSTRUMENT].items() if "data" in group]
    if len(names) != 1:
        raise ValueError(
            f"{source} has detectors {', '.join(names) or 'none'}; accepted is one. Correct the "
            "files of each, or a master of them."
        )
    group = opened[f"{INSTRUMENT}/{names[0]}"]
    for name in REFERENCES:
        if f"{name}_applied" in group and group[f"{name}_applied"][()]:
            raise ValueError(
                f"{source}: {name} is applied to its frames; accepted are files of frames as they "
                "were recorded, and their masters."
            )
    return names[0]


def _create(part: Path, opened: Any, detector: str, correction: Correction) -> None:
    """Write all but the values of frames, and reserve the space of these."""
    import h5py

    frames = opened[f"{INSTRUMENT}/{detector}/data"]
    _require_space(part, 4 * frames.size + _beside(opened, detector, correction))
    with h5py.File(part, "w", libver=("v110", "v110")) as made:
        _copy(opened, made, detector)
        group = made[f"{INSTRUMENT}/{detector}"]
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        settings.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        group.create_dataset(
            "data", frames.shape, np.float32, fillvalue=correction.fill, dcpl=settings
        )
        group["data"].attrs.update(frames.attrs)
        made["entry/data/data"] = group["data"]
        _write_applied(group, correction)
    # HDF5 cannot close a file on a full disk.
    with open(part, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, max(part.stat().st_size, 1))


def _beside(opened: Any, detector: str, correction: Correction) -> int:
    """Return the bytes that others than frames need, at most: chunks may have unused space."""
    values = [opened[f"{INSTRUMENT}/{detector}"].values(), opened["entry"].values()]
    others = [each for group in values for each in group if hasattr(each, "shape")]
    numbers = sum(each.nbytes for each in others if each.name.rpartition("/")[2] != "data")
    references = sum(each.nbytes for each in correction.references.values())
    return 2 * numbers + references + _METADATA


def _require_space(part: Path, needed: int) -> None:
    """Raise OSError if there cannot be such a file.

    A disk tells what is free, but not a quota or a limit of file sizes: that is tried out, since
    HDF5 cannot close a file that it cannot write, and ends the process.
    """
    free = shutil.disk_usage(part.parent).free
    if free < needed:
        raise OSError(
            f"{part.parent} has {_size(free)} free, and the frames need {_size(needed)}. Free "
            "space, or name a file on another disk."
        )
    with open(part, "xb") as file:
        os.posix_fallocate(file.fileno(), 0, needed)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def _copy(opened: Any, made: Any, detector: str) -> None:
    """Copy all but the frames and reference data; values of a master are no longer virtual."""
    made.attrs.update(opened.attrs)
    source, entry = opened["entry"], made.create_group("entry")
    copy_entry(source, entry)
    instrument = entry.create_group("instrument")
    instrument.attrs.update(opened[INSTRUMENT].attrs)
    group, of = instrument.create_group(detector), opened[f"{INSTRUMENT}/{detector}"]
    group.attrs.update(of.attrs)
    others = {"data", *REFERENCES, *(f"{name}_applied" for name in REFERENCES)}
    for name, each in of.items():
        if name in others or not hasattr(each, "shape"):
            continue
        if each.shape == ():
            opened.copy(each, group, name)
            continue
        most = (None, *each.shape[1:])
        group.create_dataset(name, data=each[()], chunks=True, maxshape=most)
        group[name].attrs.update(each.attrs)
    plot = entry.create_group("data")
    plot.attrs.update(source["data"].attrs)
    for name in source["data"]:
        if name in group:
            plot[name] = group[name]


def _write_frames(
    group: Any, written: Any, correction: Correction, plan: ReorderConfig | None
) -> None:
    frames = group["data"]
    count, *shape = frames.shape
    step = max(1, _CHUNK_BYTES // (4 * math.prod(shape)))
    for first in range(0, max(count, 1), step):  # also of no frames, which are checked
        rows = slice(first, first + step)
        pixels = frames[rows]
        if plan is not None and plan.data_types and plan.data_types.output_type == "bf16":
            pixels = (pixels.astype(np.uint32) << 16).view(np.float32)
        written[rows] = correction.apply(pixels, _arrived(group, rows, pixels.shape, plan))


def _arrived(
    group: Any, rows: slice, shape: tuple[int, ...], plan: ReorderConfig | None
) -> NDArray[np.bool_]:
    """Return which pixels of frames have arrived."""
    arrived = np.ones(shape, np.bool_)
    if plan is not None and plan.frame is not None and plan.frame.shape == shape[1:]:
        arrived &= ~gap_mask(plan.frame)
    lacking = group["missing"][rows] != 0
    if lacking.any():
        arrived[lacking] = False
        known = lacking & (group["packets"][rows] != 0)
        if plan is not None and known.any():
            bits = np.unpackbits(group["valid"][rows][known], axis=1, bitorder="little")
            with suppress(InvalidParameterError):  # packets of which no place is known
                arrived[known] = valid_pixels(plan, bits)
    return arrived


def _write_applied(group: Any, correction: Correction) -> None:
    for name, values in correction.references.items():
        group[name] = values
        group[name].attrs["long_name"] = REFERENCES[name]
        group[f"{name}_applied"] = True
