"""Stream documents for frames in HDF5 files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._sequence import StreamAsset, directory_uri

if TYPE_CHECKING:
    from event_model import ComposeStreamResourceBundle
    from event_model.documents import DataKey

__all__ = ["FRAMES_MIMETYPE", "FrameStream", "frame_resource"]

FRAMES_MIMETYPE = "application/x-hdf5"
"""Mimetype of a file of frames."""

# Values that a file has for each frame, besides its data: type, unit.
_OF_FRAMES = {"timestamp": ("<i8", "ns"), "batch": ("<u4", ""), "missing": ("<u4", "packets")}
_LOSSY = {"lossy": ("|b1", "")}
_NUMBERS_PER_CHUNK = 1024


def frame_resource(
    uri: str, data_key: str, column: str, frames_per_row: int = 1
) -> ComposeStreamResourceBundle:
    """Return a StreamResource document, and the composer of its StreamDatum documents.

    Parameters
    ----------
    uri : str
        Address of the file.
    data_key : str
        Key in descriptors.
    column : str
        Dataset of the file: ``data``, ``timestamp``, ...
    frames_per_row : int
        Frames that are read together.
    """
    from event_model import compose_stream_resource  # as in CaptureSequence

    of_row = {"multiplier": frames_per_row} if frames_per_row > 1 else {}
    return compose_stream_resource(
        mimetype=FRAMES_MIMETYPE,
        uri=uri,
        data_key=data_key,
        parameters={
            "dataset": f"/entry/data/{column}",
            "chunk_shape": (1 if column == "data" else _NUMBERS_PER_CHUNK,),
            "swmr": True,
            **of_row,
        },
    )


@dataclass
class _File:
    path: Path
    uri: str
    frames_per_row: int
    flown: bool
    rows: int = 0  # complete rows
    emitted: int = 0
    bundles: dict[str, ComposeStreamResourceBundle] = field(default_factory=dict)
    datum: Any = None  # latest document


def _address(path: Path, folder: str | None) -> str:
    folder = directory_uri(path.parent) if folder is None else folder.rstrip("/")
    return f"{folder}/{path.name}"


class FrameStream:
    """Documents of a device that writes frames to HDF5 files.

    A row is a frame, or several frames that are read together. In addition to the data, each row
    has the arrival time of its frames, the number of their batch and their missing packets, in the
    columns ``<device>_timestamp``, ``<device>_batch`` and ``<device>_missing``. Each file has its
    own StreamResource documents. The indices of StreamDatum documents are rows of the file, from 0.
    A file belongs to one stream of one run, because readers read all of its rows.

    Files may grow on a thread other than the one that collects.

    Parameters
    ----------
    device : str
        Name of the device, which is the key of the frames.
    source : str
        Source of the frames, such as ``daqiri://port0/reorder/images``.
    shape : tuple of int
        Shape of a frame.
    dtype : dtype
        Type of the elements of a frame.
    lossy : bool
        Whether rows of fly scans have the column ``<device>_lossy``, which is set if the
        frame did not come, or some were lost since the row before.
    """

    def __init__(
        self,
        device: str,
        source: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        lossy: bool = False,
    ) -> None:
        self._device = device
        self._source = source
        self._shape = shape
        self._dtype = dtype
        self._lossy = lossy
        self._lock = threading.Lock()
        self._files: list[_File] = []
        self._flown = 0  # rows of fly scans in documents since `restart_index`

    def describe(self, frames_per_row: int = 1, *, flown: bool = False) -> dict[str, DataKey]:
        """Return the data keys.

        Parameters
        ----------
        frames_per_row : int
            Frames that are read together. Rows of one frame have its shape; others have an
            additional dimension.
        flown : bool
            Whether the keys are those of a fly scan.
        """
        of_row = [frames_per_row] if frames_per_row > 1 else []
        keys: dict[str, DataKey] = {
            self._device: {
                "source": self._source,
                "dtype": "array",
                "shape": [*of_row, *self._shape],
                "dtype_numpy": self._dtype.str,
                "external": "STREAM:",
            }
        }
        columns = _OF_FRAMES | (_LOSSY if flown and self._lossy else {})
        for name, (dtype, units) in columns.items():
            scalar: Any = "boolean" if name in _LOSSY else "integer"
            key: DataKey = {
                "source": f"{self._source}/{name}",
                "dtype": "array" if of_row else scalar,
                "shape": list(of_row),
                "dtype_numpy": dtype,
                "external": "STREAM:",
            }
            if units:
                key["units"] = units
            keys[f"{self._device}_{name}"] = key
        return keys

    def begin(
        self, path: Path, *, uri: str | None = None, frames_per_row: int = 1, flown: bool = False
    ) -> None:
        """Continue with a new file, which has no row yet.

        Parameters
        ----------
        path : Path
            The file, with its full path.
        uri : str, optional
            Address of its directory for readers that mount it elsewhere. Default: as on this host.
        frames_per_row : int
            Frames that are read together.
        flown : bool
            Whether its rows are rows of a fly scan, which `index` counts.

        Raises
        ------
        ValueError
            If the directory cannot be expressed as a URI.
        """
        with self._lock:
            self._files.append(_File(path, _address(path, uri), frames_per_row, flown))

    def grow(self, frames: int) -> None:
        """Set the number of frames in the latest file that other processes can read."""
        with self._lock:
            file = self._files[-1]
            file.rows = frames // file.frames_per_row

    def relocate(self, path: Path, *, uri: str | None = None) -> bool:
        """Rename the latest file, if it is in no document and has no row.

        Parameters
        ----------
        path, uri
            As for `begin`.
        """
        with self._lock:
            file = self._files[-1] if self._files else None
            if file is None or file.rows or file.bundles:
                return False
            file.path, file.uri = path, _address(path, uri)
            return True

    def discard(self) -> None:
        """Leave out rows that are in no document; a later reading replaces them."""
        with self._lock:
            for file in self._files:
                file.rows = file.emitted

    @property
    def paths(self) -> list[Path]:
        """All files with rows, in their order."""
        with self._lock:
            return [file.path for file in self._files if file.rows]

    @property
    def current(self) -> Path | None:
        """The latest file; None if there is none."""
        with self._lock:
            return self._files[-1].path if self._files else None

    @property
    def documented(self) -> int:
        """Rows of the latest file that are in documents; 0 if there is no file."""
        with self._lock:
            return self._files[-1].emitted if self._files else 0

    @property
    def uncollected(self) -> list[Path]:
        """Files with rows that are in no document."""
        with self._lock:
            return [file.path for file in self._files if file.emitted < file.rows]

    @property
    def latest(self) -> tuple[str, str] | None:
        """Run and descriptor of the latest row in documents; None if this file has none.

        The RunEngine enters them in the documents that it collects. Until then they are empty; they
        stay empty if a reading is interrupted, so that its row is in no document.
        """
        with self._lock:
            file = self._files[-1] if self._files else None
            if file is None or file.datum is None:
                return None
            bundle = file.bundles[self._device]
            return bundle.stream_resource_doc.get("run_start", ""), file.datum["descriptor"]

    @property
    def whole(self) -> int:
        """Frames of the latest file that are in its rows, in documents or not."""
        with self._lock:
            file = self._files[-1] if self._files else None
            return 0 if file is None else file.rows * file.frames_per_row

    def retract(self) -> None:
        """Remove the latest row, which was not collected."""
        with self._lock:
            file = self._files[-1]
            file.emitted -= 1
            file.rows, file.datum = file.emitted, None

    @property
    def index(self) -> int:
        """Rows of fly scans since `restart_index`."""
        with self._lock:
            return self._flown + sum(f.rows - f.emitted for f in self._files if f.flown)

    def restart_index(self) -> None:
        """Count rows of fly scans from now on, as other flyers of the stream do."""
        with self._lock:
            self._flown = 0

    def collect_asset_docs(self, index: int | None = None) -> Iterator[StreamAsset]:
        """Yield the documents of new rows in one file; rows in two files need two calls.

        The RunEngine numbers rows by these documents, and treats the documents of one call as
        documents of the same rows.

        Parameters
        ----------
        index : int, optional
            Yield rows up to this `index`; default: all rows.
        """
        with self._lock:
            documents = list(self._next_documents(index))
        yield from documents

    def _next_documents(self, index: int | None) -> Iterator[StreamAsset]:
        file = next((f for f in self._files if f.emitted < f.rows), None)
        if file is None:
            # The file can then be found even if this process is killed.
            latest = self._files[-1] if self._files else None
            if latest is not None and latest.flown and not latest.bundles:
                yield from self._resources(latest)
            return
        stop = file.rows
        if index is not None and file.flown:
            stop = min(stop, file.emitted + max(0, index - self._flown))
        if stop == file.emitted:
            return
        if not file.bundles:
            yield from self._resources(file)
        start, file.emitted = file.emitted, stop
        if file.flown:
            self._flown += stop - start
        indices: Any = {"start": start, "stop": stop}
        for bundle in reversed(file.bundles.values()):  # frames last
            file.datum = bundle.compose_stream_datum(indices=indices)
            yield "stream_datum", file.datum

    def _resources(self, file: _File) -> Iterator[StreamAsset]:
        for key in self.describe(file.frames_per_row, flown=file.flown):
            column = key.removeprefix(self._device).removeprefix("_") or "data"
            bundle = frame_resource(file.uri, key, column, file.frames_per_row)
            file.bundles[key] = bundle
            yield "stream_resource", bundle.stream_resource_doc
