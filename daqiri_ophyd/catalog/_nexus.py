"""A NeXus file for a stored run: metadata, rows as plots, links to the files of frames."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from daqiri_ophyd import __version__
from daqiri_ophyd.documents import run_metadata

if TYPE_CHECKING:
    import h5py

__all__ = ["write_nexus"]

# Group of the frames in a file of frames.
_FRAMES = "/entry/data"


def write_nexus(
    path: Path,
    run: Any,
    tables: Mapping[str, pd.DataFrame],
    files: Mapping[tuple[str, str], Sequence[Path]],
) -> None:
    """Write a NeXus file with the rows of a run, and links to its frames.

    Each stream is an ``NXdata`` with its first hinted column as signal, over the motor of the scan
    or the time. Each frame detector is an ``NXdata``: that of its file, or one with virtual
    datasets over several files. The documents are in the ``NXcollection`` ``bluesky``, as JSON.

    Parameters
    ----------
    path : Path
        The file; links are relative to its folder.
    run : bluesky_tiled_plugins.BlueskyRun
        The run.
    tables : mapping of str to DataFrame
        Rows by stream.
    files : mapping of (str, str) to sequence of Path
        Files by stream and data key, relative to the folder.
    """
    import h5py

    start, stop = dict(run.metadata["start"]), dict(run.metadata["stop"])
    with h5py.File(path, "w") as file:
        file.attrs.update(
            NX_class="NXroot",
            creator=f"daqiri-ophyd {__version__}",
            file_time=_iso(datetime.now(UTC).timestamp()),
            default="entry",
        )
        entry = _group(file, "entry", "NXentry")
        told = run_metadata(start, "")
        facts = {
            "title": told.get("title"),
            "start_time": _iso(start["time"]),
            "end_time": _iso(stop["time"]),
            "entry_identifier": told["uid"],
            "program_name": "daqiri-ophyd",
            "experiment_identifier": told.get("experiment_identifier"),
        }
        for name, value in facts.items():
            if value is not None:
                entry[name] = value
        entry["program_name"].attrs["version"] = __version__
        if "sample" in told:
            _group(entry, "sample", "NXsample")["name"] = told["sample"]
        documents = _group(entry, "bluesky", "NXcollection")
        documents["start"] = json.dumps(start, default=str)
        documents["stop"] = json.dumps(stop, default=str)
        plots = {}
        for stream, table in tables.items():
            description = run.base[stream].metadata
            name = _free(entry, stream)
            if _write_rows(entry, name, stream, table, description, start):
                plots[stream] = name
            documents[f"descriptor_{stream}"] = json.dumps(dict(description), default=str)
        for (stream, key), paths in files.items():
            if paths[0].suffix == ".h5":
                # A detector may be in several streams.
                name = key if key not in entry else f"{key}_{stream}"
                _link_frames(entry, _free(entry, name), paths, path.parent)
        if plots:
            entry.attrs["default"] = plots.get("primary", next(iter(plots.values())))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _free(entry: "h5py.Group", name: str) -> str:
    """Return a name that the entry does not have yet."""
    name = name.replace("/", "_")
    return name if name not in entry else _free(entry, f"{name}_")


def _group(parent: "h5py.Group", name: str, kind: str) -> "h5py.Group":
    group = parent.create_group(name)
    group.attrs["NX_class"] = kind
    return group


def _write_rows(
    entry: "h5py.Group",
    name: str,
    stream: str,
    table: pd.DataFrame,
    description: Mapping[str, Any],
    start: Mapping[str, Any],
) -> bool:
    """Write the rows of a stream; whether there are some."""
    # When each was read.
    stamps = {f"ts_{name}" for name in table} - set(description["data_keys"])
    columns = {name: _plain(table[name]) for name in table if name not in stamps}
    columns = {name: values for name, values in columns.items() if values is not None}
    if not columns:
        return False
    group = _group(entry, name, "NXdata")
    data_keys = description["data_keys"]
    for column, values in columns.items():
        group[column] = values
        group[column].attrs["long_name"] = column
        if units := data_keys.get(column, {}).get("units"):
            group[column].attrs["units"] = units
    times = columns.get("time") if "elapsed" not in columns else None
    if times is not None:
        # Seconds since the run began, as plots need.
        group["elapsed"] = times - start["time"]
        group["elapsed"].attrs["units"] = "s"
        group["elapsed"].attrs["start"] = _iso(start["time"])
        group["time"].attrs["units"] = "s"
    numbers = [name for name, values in columns.items() if values.dtype.kind in "iuf"]
    dimensions = (start.get("hints") or {}).get("dimensions") or []
    scanned = [fields[0] for fields, name in dimensions if name == stream and fields]
    motors = [name for name in scanned if name in numbers]
    hinted = [
        field
        for hints in (description.get("hints") or {}).values()
        for field in hints.get("fields", ())
        if field in numbers and field not in motors
    ]
    others = [name for name in numbers if name in data_keys and name not in motors]
    if hinted or others:
        # Counters of losses are hinted, too; a number of the frames or of a diode is a float.
        shown = hinted or others
        measured = [name for name in shown if columns[name].dtype.kind == "f"]
        group.attrs["signal"] = (measured or shown)[0]
        # Scans of several motors have one axis here: rows are points along the path.
        axes = [name for name in motors if name != "time"][:1]
        group.attrs["axes"] = axes or (["elapsed"] if times is not None else ["."])
    return True


def _plain(values: pd.Series) -> np.ndarray[Any, Any] | None:
    """Return a column as numbers or texts; None: it is neither."""
    if values.dtype.kind == "M":
        return values.to_numpy("datetime64[ns]").astype(np.int64) / 1e9
    if values.dtype.kind in "biuf":
        return values.to_numpy()
    import h5py

    if values.map(lambda value: isinstance(value, str)).all():
        return values.to_numpy().astype(h5py.string_dtype())
    return None


def _link_frames(entry: "h5py.Group", key: str, paths: Sequence[Path], folder: Path) -> None:
    """Link the frames of one file, or make virtual datasets of those in several."""
    import h5py

    if len(paths) == 1:
        entry[key] = h5py.ExternalLink(str(paths[0]), _FRAMES)
        return
    found: dict[str, list[tuple[Path, tuple[int, ...], Any]]] = {}
    attributes: dict[str, Any] = {}
    for path in paths:
        with h5py.File(folder / path) as file:
            frames = file[_FRAMES]
            attributes = attributes or dict(frames.attrs)
            for name, each in frames.items():
                if isinstance(each, h5py.Dataset) and each.ndim:
                    found.setdefault(name, []).append((path, each.shape, each.dtype))
    group = _group(entry, key, "NXdata")
    group.attrs.update(attributes)
    for name, parts in found.items():
        shape = (sum(part[1][0] for part in parts), *parts[0][1][1:])
        layout = h5py.VirtualLayout(shape, parts[0][2])
        begin = 0
        for path, size, dtype in parts:
            source = h5py.VirtualSource(str(path), f"{_FRAMES}/{name}", size, dtype)
            layout[begin : begin + size[0]] = source
            begin += size[0]
        group.create_virtual_dataset(name, layout)
