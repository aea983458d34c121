"""Packet source: recorded frames, as packets of their reorder plan."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.documents import other_files, sidecar_path
from daqiri_ophyd.engine import ConfigSource, load_config
from daqiri_ophyd.ship import StoredObject, fetch_ahead

from ._frame_format import FrameFormat
from ._pace import ReplayPace
from ._source import Chunk, ReplayError

__all__ = ["FrameReplay", "frame_plan"]

_CHUNK_BYTES = 8 << 20
_COLUMNS = ("batch", "timestamp", "last_timestamp")


class FrameReplay:
    """Recorded frames, sent again as packets of their reorder plan, with their original times.

    Frames have the packets that they were made of, and no others: a packet that was missing is
    missing again. The packets of a frame are evenly between the arrival of its first and of its
    last one, in the order of their positions. Header fields that the plan does not read are 0. Of
    the plan's ``columns``, they have the numbers again that are of the first packet, in all packets
    of a frame, and those of each packet. Where a pixel goes on in a packet that was missing,
    they have the plan's fill value. On Ethernet ports, they have the addresses and ports that
    the plan's flows match.

    Parameters
    ----------
    files : iterable of path or StoredObject
        HDF5 files of one plan, with their metadata files, in order. An object of a store is fetched
        while the file before it is sent.
    config : dict, path, str or NetworkConfig
        Configuration of the engine that made the frames.
    link_type : int
        Link type of the port to send on: 1 Ethernet, 101 UDP.
    speed, max_gap_ns, loops, loop_gap_ns
        As for `Replay`.

    Raises
    ------
    ReplayError
        If a file is not of frames of the configuration's plans, or takes data from another file; no
        packet is to be sent, packets cannot be made of the frames (data was converted, or packets
        had different lengths), or an option is not valid.
    """

    stream_bytes: int | None = None
    """Frames are not sent on TCP ports."""

    def __init__(
        self,
        files: Iterable[str | os.PathLike[str] | StoredObject],
        config: ConfigSource,
        *,
        link_type: int,
        speed: float = 1.0,
        max_gap_ns: int | None = None,
        loops: int = 1,
        loop_gap_ns: int | None = None,
    ) -> None:
        self._pace = ReplayPace(
            speed=speed, max_gap_ns=max_gap_ns, loops=loops, loop_gap_ns=loop_gap_ns
        )
        self._files = [f if isinstance(f, StoredObject) else Path(f) for f in files]
        names = {frame_plan(file) for file in self._files}
        if len(names) != 1:
            found = ", ".join(sorted(names)) or "none"
            raise ReplayError(f"The files are of these reorder plans: {found}; accepted is one.")
        modes = {_mode(file) for file in self._files}
        if len(modes) != 1:
            found = ", ".join(map(repr, sorted(modes)))
            raise ReplayError(
                f"The files are of several modes of their reorder plan: {found}; accepted is one."
            )
        (plan,), (mode,) = names, modes
        self._format = FrameFormat(load_config(config), plan, link_type, mode)
        self._once, self._original_ns = self._survey()
        if not self._once:
            raise ReplayError(f"The files have no frames with packets: {self._files[0]}, ...")
        if isinstance(self._files[0], StoredObject):
            self._files[0].fetch()  # before its packets are due

    @property
    def packets(self) -> int:
        """Number of packets to send in all loops."""
        return self._once * self._pace.loops

    @property
    def duration_ns(self) -> int:
        """Time between the first and the last packet, ns."""
        return self._pace.duration_ns(self._once, self._original_ns)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the packets of all frames in order."""
        began = 0
        for _ in range(self._pace.loops):
            times = self._pace.times()
            for rows, columns, valid in self._parts():
                found = {name: columns[name] for name in self._format.columns if name in columns}
                packets = self._format.packets_of(rows, columns["batch"], valid, found)
                due, _anew = times.of(_arrivals(columns, valid))
                offsets = np.arange(len(packets), dtype=np.int64) * packets.shape[1]
                lengths = np.full(len(packets), packets.shape[1], np.int64)
                when = self._pace.scaled(began + due)
                yield Chunk(packets.reshape(-1), offsets, lengths, when)
            began += times.elapsed_ns + self._pace.loop_gap(self._once, times.elapsed_ns)

    def _survey(self) -> tuple[int, int]:
        """Return the number of packets, and the time between the first and the last one."""
        count, times = 0, self._pace.times()
        for _, columns, valid in self._parts(data=False):
            count += int(valid.sum())
            times.of(_arrivals(columns, valid))
        return count, times.elapsed_ns

    def _parts(
        self, *, data: bool = True
    ) -> Iterator[tuple[NDArray[Any], dict[str, NDArray[Any]], NDArray[np.bool_]]]:
        """Yield frames, their columns, and which of their packets came, without empty frames."""
        try:
            import h5py
        except ImportError:
            text = "Frames are read with h5py: pip install h5py"
            raise ReplayError(text) from None
        with contextlib.suppress(ImportError):
            import hdf5plugin  # noqa: F401 - for compressed frames
        for file, following in zip_longest(self._files, self._files[1:]):
            source: Any = file
            if isinstance(file, StoredObject):
                # Few numbers of each frame are needed before they are sent.
                source = file.fetch() if data else file.open()
            if data:
                fetch_ahead(following)
            with h5py.File(source, "r", locking=False) as opened:
                _require_own_data(opened, file)
                group: Any = opened[self._format.group]
                frames = group["data"]
                self._format.require_form(str(file), frames.shape[1:], frames.dtype)
                size = frames.dtype.itemsize * int(np.prod(frames.shape[1:]))
                step = max(1, _CHUNK_BYTES // size)
                for first in range(0, len(frames), step):
                    part = slice(first, first + step)
                    bits = np.unpackbits(group["valid"][part], axis=1, bitorder="little")
                    valid = bits[:, : self._format.packets].astype(bool)
                    kept = valid.any(axis=1)
                    if not kept.any():
                        continue
                    columns = {
                        name: group[name][part][kept]
                        for name in (*_COLUMNS, *self._format.columns)
                        if name in _COLUMNS
                        or (name in group and group[name].shape[1:] in self._format.column_shapes)
                    }
                    rows = frames[part][kept] if data else np.zeros(0)
                    yield rows, columns, valid[kept]


def _require_own_data(opened: Any, file: Path | StoredObject) -> None:
    """Raise if it takes data from another file: a catalog could have any file sent."""
    for name, _, other in other_files(opened):
        raise ReplayError(
            f"{file} cannot be sent again: its object {name!r} takes data from another file, "
            f"{other}. Name the files that recorders wrote."
        )


def _arrivals(columns: dict[str, NDArray[Any]], valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return times of the packets: evenly between those of the first and the last of a frame."""
    frame, _ = np.nonzero(valid)
    number = (np.cumsum(valid, axis=1) - 1)[valid]
    steps = np.maximum(valid.sum(axis=1) - 1, 1)[frame]
    first, last = columns["timestamp"][frame], columns["last_timestamp"][frame]
    return first + np.maximum(last - first, 0) * number // steps


def frame_plan(file: Path | StoredObject) -> str:
    """Return the reorder plan of a file of frames, ``port0/images``, from its metadata file."""
    path = f"{file}.json" if isinstance(file, StoredObject) else sidecar_path(file)
    try:
        return str(_described(file)["reorder_plan"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReplayError(
            f"{file} cannot be sent again: {path} does not name the reorder plan of its frames "
            f"({error!r})."
        ) from error


def _mode(file: Path | StoredObject) -> str:
    """Return the mode of the plan of a file of frames."""
    mode = _described(file).get("mode", "")
    if not isinstance(mode, str):
        raise ReplayError(
            f"{file} cannot be sent again: the mode in its metadata file is {mode!r}, no text."
        )
    return mode


def _described(file: Path | StoredObject) -> dict[str, Any]:
    """Return the metadata of a file."""
    if isinstance(file, StoredObject):
        return dict(file.metadata)
    return json.loads(sidecar_path(file).read_text("utf-8"))
