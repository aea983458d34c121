"""Support for sequences of capture files in Tiled's writer and server."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from bluesky_tiled_plugins.utils import list_summands
from bluesky_tiled_plugins.writing.consolidators import (
    CONSOLIDATOR_REGISTRY,
    HDF5Consolidator,
    MultipartRelatedConsolidator,
    Patch,
)
from event_model.documents import StreamDatum
from tiled.media_type_registration import default_serialization_registry
from tiled.mimetypes import DEFAULT_ADAPTERS_BY_MIMETYPE
from tiled.structures.array import StructDtype
from tiled.structures.data_source import Asset, DataSource
from tiled.utils import path_from_uri

from daqiri_ophyd.documents import (
    CAPTURE_MIMETYPES,
    COMPANIONS,
    COUNTER_MIMETYPE,
    FRAME_FILES_MIMETYPE,
    FRAMES_MIMETYPE,
    frame_files,
    sidecar_path,
)
from daqiri_ophyd.ship import is_shipped

from ._moved import MovedFolders

__all__ = ["CaptureConsolidator", "moved_parts", "register"]


class CaptureConsolidator(MultipartRelatedConsolidator):
    """Collects the files that StreamDatum documents name into one data source.

    A stream may have many StreamResource documents, also from several directories. The index in a
    StreamDatum is the number of a file in its directory. The catalog stores the numbers as
    ``parts``, a list of directory (relative to that of the first file), template, first number and
    last number + 1, because documents exported from a catalog do not contain them otherwise.

    The metadata file and the index of a file are also assets, if they can be read here, so that
    clients download them with the file.
    """

    supported_mimetypes = {*CAPTURE_MIMETYPES.values(), COUNTER_MIMETYPE}

    def __init__(self, stream_resource: Any, descriptor: Any) -> None:
        stream_resource = _normalized(stream_resource)
        super().__init__(stream_resource, descriptor)
        self._first_folder = ""
        self._parts: list[list[Any]] = []
        self._companions: list[Asset] = []
        self._seen = 0
        self._take(stream_resource)

    def update_from_stream_resource(self, stream_resource: Any) -> None:
        """Continue with the files of another StreamResource of the same stream."""
        stream_resource = _normalized(stream_resource)
        super().update_from_stream_resource(stream_resource)
        self._take(stream_resource)

    def _take(self, stream_resource: Any) -> None:
        self.uri = stream_resource["uri"]
        self._first_folder = self._first_folder or self.uri
        parts = stream_resource["parameters"].get("parts")
        self._exported: list[tuple[str, str, int]] | None = None
        if parts is not None:
            self._exported = [
                (_joined(self.uri, folder), template, number)
                for folder, template, start, stop in parts
                for number in range(start, stop)
            ]

    def get_datum_uri(self, indx: int) -> str:
        """Return the URI of the file with this index."""
        folder, template, number = self._file(indx)
        return folder + template.format(number)

    def _file(self, index: int) -> tuple[str, str, int]:
        if self._exported is not None:
            return self._exported[index]
        return self.uri, self.template, index

    def consume_stream_datum(self, doc: StreamDatum) -> Patch:
        """Add the files of a document."""
        for index in range(doc["indices"]["start"], doc["indices"]["stop"]):
            folder, template, number = self._file(index)
            part = [relpath(folder, self._first_folder), template, number]
            if self._parts and [*self._parts[-1][:2], self._parts[-1][3]] == part:
                self._parts[-1][3] += 1
            else:
                self._parts.append([*part, number + 1])
        return super().consume_stream_datum(doc)

    def get_data_source(self) -> DataSource:
        """Return the files and the files next to them, as the catalog stores them."""
        for asset in self.assets[self._seen :]:
            for suffix, role in COMPANIONS.items():
                uri = asset.data_uri + suffix
                if uri.startswith("file:") and _has(path_from_uri(asset.data_uri), suffix):
                    self._companions.append(replace(asset, data_uri=uri, parameter=role))
        self._seen = len(self.assets)
        return replace(super().get_data_source(), assets=[*self.assets, *self._companions])

    def adapter_parameters(self) -> dict[str, Any]:
        """Return parameters that the catalog must store with the URIs to make exports readable."""
        # With a template, the exporter of runs leaves the parameters as they are.
        stored = {"template": self.template, "parts": self._parts}
        if field := self._sres_parameters.get("field"):
            return {**stored, "field": field}
        # Descriptors of earlier versions have a record of each file.
        return stored if isinstance(self.data_type, StructDtype) else {**stored, "value": "name"}


def _has(file: Path, suffix: str) -> bool:
    """Whether a file has such a companion; the index of a raw file may be in an object store."""
    return file.with_name(file.name + suffix).is_file() or (
        suffix == ".npy" and file.suffix == ".raw" and is_shipped(file)
    )


class FrameFilesConsolidator(HDF5Consolidator):
    """Collects the numbered files of fly scans into one data source of plain HDF5 files.

    Servers and clients need nothing of this package to read it.
    """

    supported_mimetypes = {FRAME_FILES_MIMETYPE}

    def __new__(cls, stream_resource: Any, descriptor: Any) -> "FrameFilesConsolidator":
        """Create it; the template is not one of a file for each row."""
        return object.__new__(cls)

    def __init__(self, stream_resource: Any, descriptor: Any) -> None:
        super().__init__(stream_resource, descriptor)
        self.mimetype = FRAMES_MIMETYPE
        self.assets.clear()
        self._resource = stream_resource
        self._files: list[tuple[str, int]] = []  # of this document, and rows in them
        self._complete = 0  # rows in them
        self._earlier: list[int] = []  # rows in files of earlier documents

    def update_from_stream_resource(self, stream_resource: Any) -> None:
        """Continue with the files of another StreamResource of the same stream."""
        self._earlier += [rows for _, rows in self._files]
        self._resource, self._files, self._complete = stream_resource, [], 0

    def consume_stream_datum(self, doc: StreamDatum) -> Patch:
        """Add the files that have the rows of a document."""
        known = len(self._files)
        if self._files:
            self._complete -= self._files.pop()[1]  # it may have grown
        rows = doc["indices"]["stop"] - self._complete
        files = list(frame_files(self._resource, rows, _frames_of, skip=len(self._files)))
        self._files += files
        self._complete = doc["indices"]["stop"]
        for uri, _ in self._files[known:]:
            role = self.default_asset_role
            number = len(self.assets)
            self.assets.append(Asset(uri, is_directory=False, parameter=role, num=number))
        return super().consume_stream_datum(doc)

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Chunks of the files: none goes beyond its file."""
        size = self._sres_parameters["chunk_shape"][0]
        rows = [*self._earlier, *(number for _, number in self._files)]
        leading = tuple(n for number in rows for n in list_summands(number, size))
        return (leading, *((length,) for length in self.datum_shape))


def _frames_of(uri: str) -> int:
    """Return the frames of a file, or more than there can be if a recorder is writing it."""
    path = path_from_uri(uri)
    name = sidecar_path(path)
    # A complete file may be in an object store, and not here any more.
    if not path.is_file() and not name.is_file():
        raise FileNotFoundError(
            f"{path} is not here. Files of frames that roll by time, or resume after errors, are "
            "stored by a process that sees them."
        )
    return int(json.loads(name.read_bytes())["frames"]) if name.is_file() else sys.maxsize


def _normalized(stream_resource: Any) -> Any:
    """Return the document with a directory as its URI, and with a template."""
    parameters, uri = stream_resource["parameters"], stream_resource["uri"]
    if "template" in parameters and "parts" not in parameters:
        return stream_resource
    folder, _, name = uri.rpartition("/")
    return {**stream_resource, "uri": folder + "/", "parameters": {"template": name, **parameters}}


def _joined(uri: str, folder: str) -> str:
    scheme, _, path = uri.partition("://")
    return f"{scheme}://{normpath(path + folder)}/"


def moved_parts(source: Any, moved: MovedFolders) -> dict[str, Any]:
    """Return the parameters of a data source whose files are in moved folders.

    Folders of captures are stored relative to the first, and may have moved differently.
    """
    parameters: dict[str, Any] = source.parameters
    first = min(source.assets, key=lambda asset: asset.num or 0, default=None)
    if first is None or not parameters.get("parts"):
        return parameters
    before = first.data_uri.rpartition("/")[0] + "/"
    after = moved.uri(before)
    parts = [
        [relpath(moved.uri(_joined(before, folder)), after), *rest]
        for folder, *rest in parameters["parts"]
    ]
    return {**parameters, "parts": parts}


def _adapter() -> type:
    from ._adapter import CaptureSequenceAdapter

    return CaptureSequenceAdapter


def _counter_adapter() -> type:
    from ._adapter import CounterSequenceAdapter

    return CounterSequenceAdapter


def _exporter() -> Any:
    from bluesky_tiled_plugins.exporters import json_seq_exporter

    return json_seq_exporter


def register() -> None:
    """Register capture files with the Tiled writer and with servers of this process.

    Also registers the export of runs as documents, which ``run.documents()`` needs. Call it before
    a server is started; calling it again changes nothing. A server in a separate process gets the
    same settings from its configuration file.
    """
    for mimetype in CAPTURE_MIMETYPES.values():
        CONSOLIDATOR_REGISTRY[mimetype] = CaptureConsolidator
        DEFAULT_ADAPTERS_BY_MIMETYPE.set(mimetype, _adapter)
    CONSOLIDATOR_REGISTRY[FRAME_FILES_MIMETYPE] = FrameFilesConsolidator
    CONSOLIDATOR_REGISTRY[COUNTER_MIMETYPE] = CaptureConsolidator
    DEFAULT_ADAPTERS_BY_MIMETYPE.set(COUNTER_MIMETYPE, _counter_adapter)
    default_serialization_registry.register("BlueskyRun", "application/json-seq", _exporter())
