"""Stream documents for frames in HDF5 files."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._sequence import StreamAsset, directory_uri

if TYPE_CHECKING:
    from event_model import ComposeStreamResourceBundle
    from event_model.documents import DataKey

__all__ = [
    "FRAMES_MIMETYPE",
    "FRAME_FILES_MIMETYPE",
    "FrameFiles",
    "FrameStream",
    "frame_files",
    "frame_resource",
]

FRAMES_MIMETYPE = "application/x-hdf5"
"""Mimetype of a file of frames."""

FRAME_FILES_MIMETYPE = "multipart/related;type=application/vnd.daqiri-ophyd.frames"
"""Mimetype of numbered files of frames, read as one: rows are counted through all of them."""

# Values that a file has for each frame, besides its data: type, unit.
_OF_FRAMES = {"timestamp": ("<i8", "ns"), "batch": ("<u8", ""), "missing": ("<u4", "packets")}
_FROM_PACKETS = ("<u8", "")
_LOSSY = {"lossy": ("|b1", "")}
_SCALARS = {"i": "integer", "u": "integer", "b": "boolean", "f": "number"}
_NUMBERS_PER_CHUNK = 1024


def frame_resource(
    uri: str,
    data_key: str,
    column: str,
    frames_per_row: int = 1,
    files: FrameFiles | None = None,
    numbers: int = 1,
) -> ComposeStreamResourceBundle:
    """Return a StreamResource document, and the composer of its StreamDatum documents.

    Parameters
    ----------
    uri : str
        Address of the file, or of the directory of ``files``.
    data_key : str
        Key in descriptors.
    column : str
        Dataset of the file: ``data``, ``timestamp``, ...
    frames_per_row : int
        Frames that are read together.
    files : FrameFiles, optional
        Numbered files of one fly scan. Default: one file.
    numbers : int
        Numbers that the dataset has for each frame; not for ``data``.
    """
    from event_model import compose_stream_resource  # as in CaptureSequence

    more: dict[str, Any] = {"multiplier": frames_per_row} if frames_per_row > 1 else {}
    if files is not None:
        more |= asdict(files)
    return compose_stream_resource(
        mimetype=FRAMES_MIMETYPE if files is None else FRAME_FILES_MIMETYPE,
        uri=uri,
        data_key=data_key,
        parameters={
            "dataset": f"/entry/data/{column}",
            "chunk_shape": (1 if column == "data" else max(1, _NUMBERS_PER_CHUNK // numbers),),
            "swmr": True,
            **more,
        },
    )


@dataclass(frozen=True)
class FrameFiles:
    """Numbered files of a fly scan, as parameters of its StreamResource documents.

    Parameters
    ----------
    template : str
        Names of the files, ``images_{:06d}.h5``.
    first_number : int
        Number of the first file.
    frames_per_file : int
        Frames of each file but the last; 0: they differ, and only the files have their numbers.
    """

    template: str
    first_number: int
    frames_per_file: int = 0


def frame_files(
    resource: Mapping[str, Any], rows: int, frames_of: Callable[[str], int], skip: int = 0
) -> Iterator[tuple[str, int]]:
    """Yield the files that have the rows of a StreamResource document.

    Parameters
    ----------
    resource : mapping
        StreamResource of mimetype `FRAME_FILES_MIMETYPE`.
    rows : int
        Number of rows, without those of files that are skipped.
    frames_of : callable
        Returns the number of frames of the file at an address; called if the document does not have
        it.
    skip : int
        Files to skip.

    Yields
    ------
    tuple of str and int
        Address of a file, and how many of the rows are in it.
    """
    parameters, folder = resource["parameters"], resource["uri"].rstrip("/")
    number, per_file = parameters["first_number"] + skip, parameters["frames_per_file"]
    while rows > 0:
        uri = f"{folder}/{parameters['template'].format(number)}"
        frames = min(rows, per_file or frames_of(uri))
        yield uri, frames
        rows -= frames
        number += 1


@dataclass
class _Resource:
    """A file, or the numbered files of a fly scan."""

    uri: str  # of the directory
    frames_per_row: int
    flown: bool
    paths: list[Path]
    frames: list[int] = field(default_factory=lambda: [0])  # of each file, complete
    per_file: int | None = None  # None: one file; 0: numbers of frames differ
    full: int = 0  # frames of the files before the latest
    emitted: int = 0
    bundles: dict[str, ComposeStreamResourceBundle] = field(default_factory=dict)
    datum: Any = None  # latest document

    @property
    def rows(self) -> int:
        """Complete rows."""
        return (self.full + self.frames[-1]) // self.frames_per_row

    @property
    def whole(self) -> list[Path]:
        """Files with rows."""
        pairs = zip(self.paths, self.frames, strict=True)
        return [path for path, frames in pairs if frames >= self.frames_per_row]

    def leave_out(self) -> None:
        """Leave out rows that are in no document."""
        rest = self.emitted * self.frames_per_row
        for index, frames in enumerate(self.frames):
            self.frames[index] = min(frames, rest)
            rest -= self.frames[index]
        self.full = sum(self.frames[:-1])

    @property
    def files(self) -> FrameFiles | None:
        """Its files, if it has several."""
        if self.per_file is None:
            return None
        stem, number = _numbered(self.paths[0])
        return FrameFiles(f"{stem}_{{:06d}}{self.paths[0].suffix}", number, self.per_file)

    def follows(self, path: Path) -> bool:
        """Return whether a file can be its next."""
        if self.per_file is None or path.parent != self.paths[-1].parent:
            return False
        stem, number = _numbered(self.paths[-1])
        full = not self.per_file or self.frames[-1] == self.per_file
        return full and _numbered(path) == (stem, number + 1)


def _numbered(path: Path) -> tuple[str, int]:
    stem, _, number = path.stem.rpartition("_")
    return stem, int(number)


def _address(path: Path, folder: str | None) -> str:
    return directory_uri(path.parent) if folder is None else folder.rstrip("/")


class FrameStream:
    """Documents of a device that writes frames to HDF5 files.

    A row is a frame, or several frames that are read together. In addition to the data, each row
    has the arrival time of its frames, the number of their batch and their missing packets, in the
    columns ``<device>_timestamp``, ``<device>_batch`` and ``<device>_missing``. A file of readings
    has its own StreamResource documents, and so have all files of a fly scan together. The indices
    of StreamDatum documents are rows of the file, or of all these files, from 0. A file belongs to
    one stream of one run, because readers read all of its rows.

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
    columns : mapping of str to tuple of int, optional
        Shapes of the numbers from packets that the file has for each frame, by their names: columns
        ``<device>_<name>``, of 64 bits. One number has the shape ().
    lossy : bool
        Whether rows of fly scans have the column ``<device>_lossy``, which is set if the
        frame did not come, or some were lost since the row before.
    reductions : mapping of str to str, optional
        Units of numbers that the file has for each frame, by the names of their datasets: columns
        ``<device>_<name>`` of fly scans.
    """

    def __init__(
        self,
        device: str,
        source: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        columns: Mapping[str, tuple[int, ...]] | None = None,
        lossy: bool = False,
        reductions: Mapping[str, str] | None = None,
    ) -> None:
        self._device = device
        self._source = source
        self._shape = shape
        self._dtype = dtype
        self._shapes = dict(columns or {})
        self._of_frames = _OF_FRAMES | dict.fromkeys(self._shapes, _FROM_PACKETS)
        numbers = {name: ("<f8", units) for name, units in (reductions or {}).items()}
        self._of_flown = (_LOSSY if lossy else {}) | numbers
        self._lock = threading.Lock()
        self._resources: list[_Resource] = []
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
        columns = self._of_frames | (self._of_flown if flown else {})
        for name, (dtype, units) in columns.items():
            scalar: Any = _SCALARS[dtype[1]]
            shape: list[int | None] = [*of_row, *self._shapes.get(name, ())]
            key: DataKey = {
                "source": f"{self._source}/{name}",
                "dtype": "array" if shape else scalar,
                "shape": shape,
                "dtype_numpy": dtype,
                "external": "STREAM:",
            }
            if units:
                key["units"] = units
            keys[f"{self._device}_{name}"] = key
        return keys

    def begin(
        self,
        path: Path,
        *,
        uri: str | None = None,
        frames_per_row: int = 1,
        flown: bool = False,
        per_file: int | None = None,
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
        per_file : int, optional
            Frames of each file of a fly scan that has several; 0: they differ. Default: one file.

        Raises
        ------
        ValueError
            If the directory cannot be expressed as a URI.
        """
        resource = _Resource(_address(path, uri), frames_per_row, flown, [path], per_file=per_file)
        with self._lock:
            self._resources.append(resource)

    def follow(self, path: Path, *, uri: str | None = None) -> None:
        """Continue a fly scan with its next file; `begin` has described it.

        Files that follow each other and are full belong to one StreamResource.

        Parameters
        ----------
        path, uri
            As for `begin`.
        """
        with self._lock:
            latest = self._resources[-1]
            if not latest.rows and not latest.bundles and len(latest.paths) == 1:
                latest.paths, latest.uri = [path], _address(path, uri)
            elif latest.follows(path):
                latest.full += latest.frames[-1]
                latest.paths.append(path)
                latest.frames.append(0)
            else:
                self._resources.append(
                    _Resource(
                        _address(path, uri),
                        latest.frames_per_row,
                        latest.flown,
                        [path],
                        per_file=latest.per_file,
                    )
                )

    def grow(self, frames: int) -> None:
        """Set the number of frames in the latest file that other processes can read."""
        with self._lock:
            self._resources[-1].frames[-1] = frames

    def discard(self) -> None:
        """Leave out rows that are in no document; a later reading replaces them."""
        with self._lock:
            for resource in self._resources:
                resource.leave_out()

    @property
    def paths(self) -> list[Path]:
        """All files with rows, in their order."""
        with self._lock:
            return [path for resource in self._resources for path in resource.whole]

    @property
    def recordings(self) -> dict[Hashable, list[Path]]:
        """Files with rows by the descriptor of their stream; those in no document, by fly scan."""
        found: dict[Hashable, list[Path]] = {}
        with self._lock:
            for resource in self._resources:
                stream = resource.datum and resource.datum["descriptor"]
                found.setdefault(stream or id(resource), []).extend(resource.whole)
        return {stream: paths for stream, paths in found.items() if paths}

    @property
    def current(self) -> Path | None:
        """The latest file; None if there is none."""
        with self._lock:
            return self._resources[-1].paths[-1] if self._resources else None

    @property
    def documented(self) -> int:
        """Rows of the latest file that are in documents; 0 if there is no file."""
        with self._lock:
            return self._resources[-1].emitted if self._resources else 0

    @property
    def uncollected(self) -> list[Path]:
        """Files with rows that are in no document."""
        with self._lock:
            rest = (each for each in self._resources if each.emitted < each.rows)
            return [path for each in rest for path in _uncollected(each)]

    @property
    def parts_to_collect(self) -> int:
        """StreamResource documents with rows that are in no document: one for each `collect`."""
        with self._lock:
            return sum(each.emitted < each.rows for each in self._resources)

    @property
    def whole(self) -> int:
        """Frames of the latest file that are in its rows, in documents or not."""
        with self._lock:
            if not self._resources:
                return 0
            latest = self._resources[-1]
            return latest.frames[-1] // latest.frames_per_row * latest.frames_per_row

    @property
    def latest_datum(self) -> Any:
        """The latest StreamDatum document of the latest file; None if it has none.

        The RunEngine enters its descriptor when it saves the row. Until then it is empty, and stays
        empty if the reading is interrupted or dropped.
        """
        with self._lock:
            return self._resources[-1].datum if self._resources else None

    @property
    def index(self) -> int:
        """Rows of fly scans since `restart_index`."""
        with self._lock:
            return self._flown + sum(r.rows - r.emitted for r in self._resources if r.flown)

    def restart_index(self) -> None:
        """Count rows of fly scans from now on, as other flyers of the stream do."""
        with self._lock:
            self._flown = 0

    def collect_asset_docs(self, index: int | None = None) -> Iterator[StreamAsset]:
        """Yield the documents of new rows: those of one StreamResource.

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
        resource = next((r for r in self._resources if r.emitted < r.rows), None)
        if resource is None:
            # The file can then be found even if this process is killed.
            latest = self._resources[-1] if self._resources else None
            if latest is not None and latest.flown and not latest.bundles:
                yield from self._describe(latest)
            return
        stop = resource.rows
        if index is not None and resource.flown:
            stop = min(stop, resource.emitted + max(0, index - self._flown))
        if stop == resource.emitted:
            return
        if not resource.bundles:
            yield from self._describe(resource)
        start, resource.emitted = resource.emitted, stop
        if resource.flown:
            self._flown += stop - start
        indices: Any = {"start": start, "stop": stop}
        for bundle in reversed(resource.bundles.values()):  # frames last
            resource.datum = bundle.compose_stream_datum(indices=indices)
            yield "stream_datum", resource.datum

    def _describe(self, resource: _Resource) -> Iterator[StreamAsset]:
        files = resource.files
        uri = resource.uri if files else f"{resource.uri}/{resource.paths[0].name}"
        for key in self.describe(resource.frames_per_row, flown=resource.flown):
            column = key.removeprefix(self._device).removeprefix("_") or "data"
            numbers = math.prod(self._shapes.get(column, ()))
            bundle = frame_resource(uri, key, column, resource.frames_per_row, files, numbers)
            resource.bundles[key] = bundle
            yield "stream_resource", bundle.stream_resource_doc


def _uncollected(resource: _Resource) -> list[Path]:
    rest, found = resource.emitted * resource.frames_per_row, []
    for path, frames in zip(resource.paths, resource.frames, strict=True):
        if frames - rest >= resource.frames_per_row:
            found.append(path)
        rest = max(0, rest - frames)
    return found
