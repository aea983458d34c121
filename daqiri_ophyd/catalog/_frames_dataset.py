"""Frames of a stored run, each with the positions of motors at its time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tiled.client.array import DaskArrayClient

from ._find import why_incomplete

if TYPE_CHECKING:
    import xarray

    from daqiri_ophyd.documents import Correction

__all__ = ["OF_FRAMES", "FramesNotFoundError", "frames_dataset"]

OF_FRAMES = ("timestamp", "batch", "missing")
"""Numbers of each frame, which end the data keys of a detector of frames."""

Seconds = NDArray[np.float64]


class FramesNotFoundError(LookupError):
    """The run does not have the requested frames or readings, or has several."""


@dataclass(frozen=True)
class _Readings:
    """Readings of one signal: values, and their times on its own clock.

    Parameters
    ----------
    values, times : ndarray, shape (n,)
        Sorted by time, s since the epoch.
    offset : tuple of float
        Lowest and highest number of seconds that may have to be added to `times` to convert them to
        the RunEngine's clock.
    units : str
        Units; empty if not known.
    """

    values: NDArray[Any]
    times: Seconds
    offset: tuple[float, float]
    units: str


def frames_dataset(
    run: Any,
    *,
    stream: str | None = None,
    key: str | None = None,
    signals: Sequence[str] | None = None,
    method: Literal["linear", "previous"] = "linear",
    correction: Correction | None = None,
) -> xarray.Dataset:
    """Return the frames of a run as a Dataset that has the positions of motors for each frame.

    Positions of motors that moved while frames arrived are read from monitors (`bluesky`'s
    ``monitor_during_wrapper``) and interpolated at the arrival of each frame's first packet.
    Positions of a step scan, which are in the same events as the frames, are used unchanged.

    Parameters
    ----------
    run : bluesky_tiled_plugins.BlueskyRun
        The run, from ``catalog.client[...]`` or ``catalog.databroker().v2[...]``.
    stream, key : str, optional
        Stream and data key of the frames; needed only if the run has several.
    signals : sequence of str, optional
        Data keys of the readings. Default: all numbers in the events of the frames or in monitors,
        except those of the detector itself.
    method : {"linear", "previous"}
        Value between two readings of a monitor: linear interpolation, or the reading before. Before
        the first and after the last reading it is constant: monitors report changes.
    correction : daqiri_ophyd.documents.Correction, optional
        Applied to the frames as they are read. The catalog does not know which pixels a missing
        packet had: frames with `missing` have the plan's ``fill`` there, corrected like a pixel.
        Leave them out with ``dataset.isel(frame=dataset.missing == 0)``, or read the file that
        `write_corrected` makes.

    Returns
    -------
    xarray.Dataset
        With the dimension ``frame``, whose coordinate is the number of the frame (from 0):

        ``frames``
            The frames, shape ``(n, *shape)``: a dask array, which is read on demand. float32, if
            they are corrected.
        ``timestamp``
            Coordinate: arrival of the first packet, ``datetime64[ns]``, UTC.
        ``batch``, ``missing``, ``row``
            Number of the batch, missing packets of the frame, row of the stream (from 0).
        each column of the detector's plan
            The number from the frame's packets, uint64; with ``from: packets`` a number for each
            packet, on a further dimension ``packet``.
        each reduction of the detector
            The number of the frame, or that of the reading to which it belongs.
        each signal
            Value at that time. Its attribute ``clock_difference_s`` has two numbers: the lowest and
            the highest time, s, that may have to be added to the signal's times to convert them to
            the clock of the frames, as limited by the run's documents (see Notes). With monitors,
            ``gap_s`` is the longest time between two readings with frames in between.

        Variables have the attribute ``units``, if their data keys have units.

    Raises
    ------
    FramesNotFoundError
        If there are no such frames or readings, or several.
    ValueError, TypeError
        If ``method`` is not accepted, or the frames do not fit the correction.

    Notes
    -----
    A reading cannot be reported before it was made, and readings of a run were not made before its
    start. So for times t on another clock, the RunEngine's time minus that clock is at least
    ``start - min(t)`` and at most ``min(reported - t)``. The difference of two clocks follows from
    the limits of both. Synchronized clocks agree far better; the numbers are only the limits that
    follow from the documents.
    """
    if method not in ("linear", "previous"):
        raise ValueError(f"method is {method!r}; accepted are 'linear' and 'previous'")
    # Read plain containers: runs from databroker have another interface to streams.
    streams = dict(run.base.items())
    name, key = _the_frames(run, streams, stream, key)
    source = streams[name]
    device = source.metadata["data_keys"][key].get("object_name", key)

    import xarray

    arrays = {field: _array(source, f"{key}_{field}") for field in OF_FRAMES}
    row_shape = arrays["timestamp"].shape
    count, rows = math.prod(row_shape), row_shape[0]
    frames = _lazy(source.base[key])
    frames = frames.reshape((count, *frames.shape[len(row_shape) :]))
    if correction is not None:
        frames = _corrected(frames, correction)
    stamps = arrays["timestamp"].ravel()
    dims = ("frame", "y", "x")[: frames.ndim] if frames.ndim <= 3 else None
    dims = dims or ("frame", *(f"dim_{i}" for i in range(1, frames.ndim)))
    per_row = count // rows if rows else 1
    variables: dict[str, Any] = {
        "frames": (dims, frames),
        **{
            field: ("frame", arrays[field].ravel(), _units(source, f"{key}_{field}"))
            for field in ("batch", "missing")
        },
        "row": ("frame", np.repeat(np.arange(rows), per_row)),
    }
    coordinates = {
        "frame": np.arange(count),
        "timestamp": ("frame", stamps.astype("datetime64[ns]")),
    }
    start, stop = run.metadata["start"], run.metadata.get("stop") or {}
    events = _events(source)
    reported = events.get("time")
    if reported is None or len(reported) != rows:
        reported = np.full(rows, stop.get("time", math.inf))
    seconds = stamps / 1e9
    offset = (
        start["time"] - seconds.min(initial=math.inf),
        float((np.repeat(reported, per_row) - seconds).min(initial=math.inf)),
    )
    for column in _of_plan(source, key):
        numbers = _array(source, column)
        numbers = numbers.reshape((count, *numbers.shape[len(row_shape) :]))
        variables[column] = (("frame", "packet")[: numbers.ndim], numbers)
    for number, values, attributes in _reduced(source, key, events):
        variables[number] = ("frame", np.repeat(values, per_row), attributes)
    found = dict(_of_events(source, events, device, rows))
    for signal in found if signals is None else [s for s in signals if s in found]:
        values, attributes = found[signal]
        variables[signal] = ("frame", np.repeat(values, per_row), attributes)
    monitored = dict(_monitored(streams, name, device, start["time"]))
    for signal in monitored if signals is None else [s for s in signals if s in monitored]:
        if signal not in variables:
            variables[signal] = _at(seconds, offset, monitored[signal], method)
    for signal in signals or ():
        if signal not in variables:
            known = ", ".join(sorted({*found, *monitored})) or "none"
            raise FramesNotFoundError(
                f"Run {start['uid']}: no readings of {signal!r}. Found: {known}."
            )
    attributes = {"run": start["uid"], "stream": name, "key": key}
    return xarray.Dataset(variables, coordinates, attributes)


def _the_frames(
    run: Any, streams: Mapping[str, Any], stream: str | None, key: str | None
) -> tuple[str, str]:
    found = [
        (name, data_key)
        for name, container in streams.items()
        for data_key in container.metadata["data_keys"]
        if all(f"{data_key}_{field}" in container.metadata["data_keys"] for field in OF_FRAMES)
    ]
    wanted = [(s, k) for s, k in found if stream in (None, s) and key in (None, k)]
    if len(wanted) == 1:
        return wanted[0]
    problem = "several detectors with frames; name one by stream and key"
    listed = ", ".join(f"{k!r} in stream {s!r}" for s, k in found) or "none"
    raise FramesNotFoundError(
        f"Run {run.metadata['start']['uid']}: {problem if wanted else 'no such frames'}. "
        f"Found: {listed}.{why_incomplete(run)}"
    )


def _array(stream: Any, key: str) -> NDArray[Any]:
    return np.asarray(stream.base[key].read())


def _units(stream: Any, key: str) -> dict[str, Any]:
    units = stream.metadata["data_keys"][key].get("units")
    return {"units": units} if units else {}


def _lazy(array: Any) -> Any:
    client = DaskArrayClient(array.context, item=array.item, structure_clients="dask")
    return client.read()


def _corrected(frames: Any, correction: Correction) -> Any:
    correction.apply(
        np.empty((0, *frames.shape[1:]), frames.dtype)
    )  # raises now if they do not fit
    whole = frames.rechunk(dict.fromkeys(range(1, frames.ndim), -1))
    meta = np.empty((0,) * frames.ndim, np.float32)
    return whole.map_blocks(correction.apply, dtype=np.float32, meta=meta)


def _events(stream: Any) -> dict[str, NDArray[Any]]:
    """Return the columns of a stream's events; empty: it has none."""
    if "internal" not in stream.base:
        return {}
    table = stream.base["internal"].read()
    return {name: table[name].to_numpy() for name in table.columns}


def _of_plan(stream: Any, key: str) -> Iterator[str]:
    """Yield the data keys of numbers from the packets of frames."""
    keys = stream.metadata["data_keys"]
    others = {f"{key}_{field}" for field in OF_FRAMES}
    for name, data_key in keys.items():
        own = data_key["source"].startswith(f"{keys[key]['source']}/")
        if own and data_key.get("dtype_numpy") == "<u8" and name not in others:
            yield name


def _reduced(
    stream: Any, key: str, events: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[str, NDArray[Any], dict[str, Any]]]:
    """Yield the numbers of frames: of readings in events, of fly scans in files."""
    keys = stream.metadata["data_keys"]
    for name, data_key in keys.items():
        if data_key["dtype"] != "number":
            continue
        if data_key["source"].startswith(f"{keys[key]['source']}/"):
            values = _array(stream, name) if "external" in data_key else events[name]
            yield name, values, _units(stream, name)


def _is_number(data_key: Mapping[str, Any]) -> bool:
    return data_key["dtype"] in ("number", "integer") and not data_key["shape"]


def _of_events(
    stream: Any, events: Mapping[str, NDArray[Any]], device: str, rows: int
) -> Iterator[tuple[str, tuple[NDArray[Any], dict[str, Any]]]]:
    """Yield signals of other devices in the events of frames: one value for each row."""
    for signal, data_key in stream.metadata["data_keys"].items():
        values = events.get(signal)
        if values is None or len(values) != rows or not _is_number(data_key):
            continue
        if data_key.get("object_name") != device:
            yield signal, (values, _units(stream, signal))


def _monitored(
    streams: Mapping[str, Any], frames: str, device: str, begin: float
) -> Iterator[tuple[str, _Readings]]:
    """Yield signals of other devices with events of their own."""
    for name, stream in streams.items():
        if name == frames:
            continue
        events = _events(stream)
        for signal, data_key in stream.metadata["data_keys"].items():
            times = events.get(f"ts_{signal}")
            if times is None or not _is_number(data_key):
                continue
            if data_key.get("object_name") == device:
                continue
            # The first value of a monitor may be older than the run.
            fresh = times[1:].min(initial=math.inf)
            late = float((events["time"] - times).min(initial=math.inf))
            order = np.argsort(times, kind="stable")
            offset = (begin - fresh, late)
            yield (
                signal,
                _Readings(events[signal][order], times[order], offset, data_key.get("units") or ""),
            )


def _at(
    seconds: Seconds, offset: tuple[float, float], readings: _Readings, method: str
) -> tuple[str, NDArray[Any], dict[str, Any]]:
    """Return the variable of a signal at the times of frames."""
    after = np.searchsorted(readings.times, seconds, side="right")
    between = after[(after > 0) & (after < len(readings.times))]
    gaps = readings.times[between] - readings.times[between - 1]
    if method == "previous":
        values = readings.values[np.maximum(after - 1, 0)]
    else:
        values = np.interp(seconds, readings.times, readings.values)
    attributes: dict[str, Any] = {
        "clock_difference_s": (
            readings.offset[0] - offset[1],
            readings.offset[1] - offset[0],
        ),
        "gap_s": float(gaps.max(initial=0.0)),
        "method": method,
    }
    if readings.units:
        attributes["units"] = readings.units
    return "frame", values, attributes
