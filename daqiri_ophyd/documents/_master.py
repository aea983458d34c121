"""A master file: the frames of several files as one, in virtual datasets (NeXus)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from daqiri_ophyd.engine import gap_mask

from ._frame_metadata import recorded_plan
from ._master_parts import (
    Column,
    Detector,
    Join,
    Part,
    detectors_of,
    recordings_of,
    require_facts,
    require_one_form,
    require_one_mode,
)
from ._opened_file import opened_file
from ._reference_data import REFERENCES
from ._sidecar import (
    SidecarError,
    no_link,
    read_sidecar_content,
    sidecar_part,
    sidecar_path,
    write_sidecar,
)

__all__ = ["MASTER", "is_master", "master_path", "read_master", "write_master"]

MASTER = "_master"
"""End of the name of a master file, before its suffix."""

INSTRUMENT = "/entry/instrument"
_GROUPS = ("configuration", "run", "sample")
_COUNTS = ("frames", "packets", "missing", "bytes", "dropped")
# Of the first file of a recording, in the metadata file of its master.
KEPT = ("format", "reorder_plan", "mode", "clock", "run", "detector", "configuration", "host")


def master_path(first: Path) -> Path:
    """Return the path of the master of files that begin with this one."""
    return first.with_name(f"{first.stem}{MASTER}{first.suffix}")


def is_master(path: str | Path) -> bool:
    """Whether a file is a master, by its metadata file."""
    parts = read_sidecar_content(path).get("parts")
    return isinstance(parts, list) and all(isinstance(part, str) for part in parts)


def read_master(path: str | Path) -> dict[str, Any]:
    """Return what the metadata file of a master has.

    Parameters
    ----------
    path : path
        The master.

    Returns
    -------
    dict
        All keys; those that `write_master` writes are there.

    Raises
    ------
    SidecarError
        If it lacks one, or has a value of a wrong kind.
    """
    path = Path(path)
    told = read_sidecar_content(path)
    require_facts(path, told)
    lacking = [key for key in (*_COUNTS, "t_first_ns", "t_last_ns") if key not in told]
    if lacking or not told.get("parts"):
        raise SidecarError(
            f"{sidecar_path(path)} lacks {', '.join(lacking or ['parts'])}, which a master has; "
            "write the master again: daqiri-ophyd frames master FILE..."
        )
    return told


def write_master(
    files: Iterable[str | Path],
    path: str | Path | None = None,
    *,
    attributes: Mapping[str, Any] | None = None,
    references: Mapping[str, np.ndarray[Any, Any]] | None = None,
    join: Join = "number",
    column: str = "batch",
    compare: bool = True,
) -> Path:
    """Write a master file: one HDF5 file in which the frames of others are one dataset.

    It has virtual datasets, with the names of the files relative to its own: the folder can be
    moved. Its own data are the run, the configuration, and reference data; its metadata file names
    the files in ``parts``.

    Files of one recording, ``images_000000.h5`` and following, are in the order of their numbers.
    Several recordings are joined by the numbers of frames (``batch``). Those of one plan that have
    different frames, such as of receivers that take turns, become one detector; all others, such as
    modules, a detector each, with a row for each frame that any of them has.

    Parameters
    ----------
    files : iterable of path
        The files; complete. Those that are in an object store only need their metadata files, and
        the first file with frames of each recording has to be here.
    path : path, optional
        Where to write it. Default: ``images_000000_master.h5``, beside the first file.
    attributes : mapping, optional
        Values to write to ``/entry/run``: numbers and texts, such as those of a start document.
        Others are left out, and so are names that the files have.
    references : mapping of str to ndarray, optional
        Reference data of the detector, which are not applied: ``pixel_mask``, ``dark`` and
        ``flatfield``, of the shape of a frame. See `load_reference`.
    join : {"number", "row"}
        How several recordings are joined: see above; or row by row, each a detector, which is for
        plans whose numbers differ, and needs equally many rows.
    column : str
        Column with the numbers by which recordings are joined: one of the ``columns`` of their
        plans, such as a pulse id, instead of ``batch``. Frames of which no packet came have no such
        number, and are left out.
    compare : bool
        Whether to open each file and compare its form with that of the first, 4 ms each. Not needed
        for the files of one recorder.

    Returns
    -------
    Path
        Where it is.

    Raises
    ------
    ValueError
        If there are no frames, a file is none of frames or takes data from other files, files have
        frames of different forms or modes of a plan, or recordings cannot be joined.
    FileExistsError
        If the file exists.
    OSError
        If a file cannot be read, or this one cannot be written. Nothing is left of it.

    Notes
    -----
    A row of which no packet came has ``packets`` 0, and frames have the fill value of their plan
    there. So it is with rows that a recording lacks, and with those of a file that is not found:
    HDF5 raises no error for it.
    """
    recordings = recordings_of(map(Path, files))
    first = recordings[0].parts[0].path
    target = master_path(first) if path is None else Path(path)
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists; remove it to write it again.")
    require_one_form(recordings, all_files=compare)
    require_one_mode(recordings)
    detectors = detectors_of(recordings, join, column)
    parts = [part for recording in recordings for part in recording.parts]
    told = _metadata(parts, target, detectors)
    image = _image(detectors, parts, target, dict(attributes or {}), dict(references or {}))
    _write(target, image, told)
    return target


def _metadata(parts: Sequence[Part], target: Path, detectors: Sequence[Detector]) -> dict[str, Any]:
    first = parts[0].facts
    found = {key: first[key] for key in KEPT if key in first}
    found |= {key: sum(part.facts.get(key, 0) for part in parts) for key in _COUNTS}
    begins = [part.facts["t_first_ns"] for part in parts if part.frames]
    ends = [part.facts["t_last_ns"] for part in parts if part.frames]
    return {
        **found,
        "frames": detectors[0].rows,
        "t_first_ns": min(begins),
        "t_last_ns": max(ends),
        "parts": [_relative(part.path, target) for part in parts],
    }


def _with_gaps(
    references: dict[str, np.ndarray[Any, Any]], detector: Detector
) -> dict[str, np.ndarray[Any, Any]]:
    """Mark the pixels between modules in the mask, with bit 0, as NXdetector has it."""
    part = detector.recordings[0].parts[0]
    plan = recorded_plan(part.facts, part.path, detector.plan)
    frame = None if plan is None else plan.frame
    if frame is None or frame.modules is None or not (gaps := gap_mask(frame)).any():
        return references
    mask = references.get("pixel_mask", np.zeros(gaps.shape, np.uint32))
    return {**references, "pixel_mask": mask | gaps.astype(np.uint32)}


def _relative(path: Path, target: Path) -> str:
    return os.path.relpath(os.path.realpath(path), os.path.realpath(target.parent))


def _image(
    detectors: Sequence[Detector],
    parts: Sequence[Part],
    target: Path,
    attributes: dict[str, Any],
    references: dict[str, np.ndarray[Any, Any]],
) -> bytes:
    """Return the contents of the file: HDF5 cannot close a file on a full disk."""
    import h5py

    with h5py.File(target.name, "w", driver="core", backing_store=False) as master:
        for number, detector in enumerate(detectors):
            with detector.opened() as template:
                if number == 0:
                    _copy_entry(template, master, parts)
                _write_detector(template, master, detector, target)
                if number == 0:
                    _write_attributes(master["entry"], attributes)
                # Of the first: a mask has the shape of one detector.
                values = _with_gaps(references if number == 0 else {}, detector)
                _write_references(master[f"{INSTRUMENT}/{detector.name}"], values)
        master.flush()
        return bytes(master.id.get_file_image())


def _copy_entry(template: Any, master: Any, parts: Sequence[Part]) -> None:
    master.attrs.update(template.attrs)
    master.attrs["file_time"] = _iso(int(datetime.now(UTC).timestamp() * 1e9))
    entry = master.create_group("entry")
    with _of_run(template, parts) as source:
        copy_entry(source["entry"], entry, but=("start_time", "end_time"))
    begins = [part.facts["t_first_ns"] for part in parts if part.frames]
    ends = [part.facts["t_last_ns"] for part in parts if part.frames]
    entry["start_time"], entry["end_time"] = _iso(min(begins)), _iso(max(ends))
    instrument = entry.create_group("instrument")
    instrument.attrs.update(template[INSTRUMENT].attrs)


def copy_entry(source: Any, entry: Any, *, but: Collection[str] = ()) -> None:
    """Copy what files of frames have in their entry, without frames and what others have added."""
    entry.attrs.update(source.attrs)
    for name, part in source.items():
        if name not in but and (name in _GROUPS or getattr(part, "shape", None) == ()):
            source.copy(part, entry, name)


@contextmanager
def _of_run(template: Any, parts: Sequence[Part]) -> Iterator[Any]:
    """Open the file that tells the run: a later one, if the first ended before the run began."""
    here = [part.path for part in parts if part.path.is_file()]
    if not here or _tells_run(template):
        yield template
        return
    with opened_file(here[-1]) as last:
        yield last if _tells_run(last) else template


def _tells_run(file: Any) -> bool:
    entry = file["entry"]
    return "entry_identifier" in entry and bool(entry["entry_identifier"][()])


def _iso(ns: int) -> str:
    second = datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}.{ns % 1_000_000_000:09d}Z"


def _write_detector(template: Any, master: Any, detector: Detector, target: Path) -> None:
    source = template[f"{INSTRUMENT}/{detector.plan}"]
    group = master[INSTRUMENT].create_group(detector.name)
    group.attrs.update(source.attrs)
    columns = {column.name: column for column in detector.columns}
    for name in source:
        if name not in columns and getattr(source[name], "shape", None) == ():
            template.copy(source[name], group, name)
    plot_name = "data" if "data" not in master["entry"] else detector.name
    # A plan may be called as what is in the entry, such as run.
    while plot_name in master["entry"]:
        plot_name += "_data"
    plot = master["entry"].create_group(plot_name)
    plot.attrs.update(template["entry/data"].attrs)
    files = [_escaped(_relative(part.path, target)) for part, _ in detector.placed]
    for name, column in columns.items():
        if name == detector.joined and detector.numbers is not None:
            group[name] = detector.numbers.astype(column.dtype)
        else:
            _write_virtual(group, column, detector, files)
        group[name].attrs.update(source[name].attrs)
        plot[name] = group[name]
    # Names of NeXus.
    group["sequence_number"] = group["batch"]
    if (number := detector.first_number()) is not None:
        group["frame_start_number"] = number


def _write_virtual(group: Any, column: Column, detector: Detector, names: list[bytes]) -> None:
    # h5py's own interface takes a second for a few hundred files.
    from h5py import h5d, h5p, h5s, h5t

    rest = column.shape
    zeros, ones = (0,) * len(rest), (1,) * len(rest)

    def selected(rows: int, span: slice) -> Any:
        space = h5s.create_simple((rows, *rest))
        count, step = len(range(rows)[span]), span.step or 1
        space.select_hyperslab((span.start, *zeros), (count, *ones), (step, *ones), (1, *rest))
        return space

    settings = h5p.create(h5p.DATASET_CREATE)
    settings.set_fill_value(np.asarray(detector.fill_of(column), column.dtype))
    place = _escaped(f"/entry/data/{column.name}")
    for name, (part, spans) in zip(names, detector.placed, strict=True):
        for of_part, of_master in spans:
            settings.set_virtual(
                selected(detector.rows, of_master), name, place, selected(part.frames, of_part)
            )
    kind = h5t.py_create(column.dtype, logical=True)
    whole = h5s.create_simple((detector.rows, *rest))
    h5d.create(group.id, column.name.encode(), kind, whole, settings)


def _escaped(name: str) -> bytes:
    """Return a name of a virtual source: HDF5 takes ``%b`` for the number of a block."""
    return os.fsencode(name.replace("%", "%%"))


def _write_attributes(entry: Any, attributes: Mapping[str, Any]) -> None:
    if not attributes:
        return
    group = entry.require_group("run")
    group.attrs["NX_class"] = "NXcollection"
    for key, value in attributes.items():
        name = str(key).replace("/", "_")
        plain = isinstance(value, str | bool | int | float | np.number | np.bool_)
        too_large = type(value) is int and not -(2**63) <= value < 2**64
        if not plain or too_large or name in group or name in ("", "."):
            continue
        if isinstance(value, str):
            # HDF5 texts end at a zero byte.
            value = value.replace("\0", " ").encode("utf-8", "replace").decode()
        group[name] = value


def _write_references(group: Any, references: Mapping[str, np.ndarray[Any, Any]]) -> None:
    for name, values in references.items():
        group[name] = values
        group[name].attrs["long_name"] = REFERENCES[name]
        group[f"{name}_applied"] = False


def _write(target: Path, image: bytes, told: Mapping[str, Any]) -> None:
    """Write the file and its metadata file; neither is left half."""
    part = target.with_name(f".{target.name}.part")
    try:
        # A killed process may have left them.
        for left in (part, sidecar_part(target)):
            left.unlink(missing_ok=True)
        with open(part, "xb", opener=no_link) as file:
            file.write(image)
            file.flush()
            os.fsync(file.fileno())
        write_sidecar(target, told)
        part.replace(target)
    except BaseException as error:
        for left in (part, sidecar_part(target), sidecar_path(target)):
            with suppress(OSError):
                left.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
