"""Missing rows of files of frames, of a run whose process was killed."""

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from daqiri_ophyd.documents import (
    REFERENCES,
    FrameFiles,
    frame_resource,
    load_reference,
    master_path,
    write_master,
)

from ._backup import Documents

__all__ = ["FrameColumns", "columns_of"]


def _address(resource: Mapping[str, Any]) -> str:
    """Return the address of the file, or of the first of several files, of a StreamResource."""
    parameters, uri = resource["parameters"], resource["uri"]
    if "template" not in parameters:
        return str(uri)
    return f"{uri.rstrip('/')}/{parameters['template'].format(parameters['first_number'])}"


@dataclass
class _File:
    """A file, or the numbered files of a fly scan."""

    uri: str  # of the first file
    files: FrameFiles | None = None  # if there are several
    frames: int = 0  # rows of the file
    counted: int = 0  # frames in it
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)  # by column
    rows: dict[str, int] = field(default_factory=dict)  # in documents, by column
    datums: dict[str, int] = field(default_factory=dict)


def columns_of(descriptor: Mapping[str, Any]) -> "list[FrameColumns]":
    """Return the frame detectors of a stream."""
    keys = {k: v for k, v in descriptor["data_keys"].items() if "external" in v}
    external = {key: of_key["source"] for key, of_key in keys.items()}
    shapes = {key: of_key["shape"] for key, of_key in keys.items()}
    return [
        FrameColumns(
            device,
            {key: own for key, own in external.items() if own.startswith(f"{source}/")},
            shapes,
        )
        for device, source in external.items()
        if external.get(f"{device}_timestamp") == f"{source}/timestamp"
    ]


class FrameColumns:
    """The columns of a frame detector in a stream of rows that are frames.

    Parameters
    ----------
    device : str
        Key of the frames.
    sources : mapping of str to str
        Sources of the other columns, by their keys.
    shapes : mapping of str to sequence of int
        Shapes of their rows, by their keys.
    """

    def __init__(
        self, device: str, sources: Mapping[str, str], shapes: Mapping[str, Sequence[int]]
    ) -> None:
        # Names in files by key. Frames are last, as in `FrameStream`.
        names = {key: source.rpartition("/")[2] for key, source in sources.items()}
        self.device = device
        self.columns = {**names, device: "data"}
        self._numbers = {key: math.prod(shapes[key]) for key in names}
        self._files: dict[str, _File] = {}

    def take_resource(self, doc: dict[str, Any]) -> None:
        """Register a StreamResource document."""
        uri, parameters = _address(doc), doc["parameters"]
        file = self._files.setdefault(uri, _File(uri))
        if "template" in parameters:
            file.files = FrameFiles(
                parameters["template"], parameters["first_number"], parameters["frames_per_file"]
            )
        file.resources[doc["data_key"]] = doc

    def take_datum(self, doc: dict[str, Any], resource: dict[str, Any]) -> None:
        """Register a StreamDatum document."""
        self.take_resource(resource)
        file, key = self._files[_address(resource)], resource["data_key"]
        file.rows[key] = max(file.rows.get(key, 0), doc["indices"]["stop"])
        file.datums[key] = file.datums.get(key, 0) + 1
        file.frames = max(file.frames, file.rows[key])

    @property
    def uris(self) -> list[str]:
        """Addresses of the files, in their order."""
        return list(self._files)

    @property
    def documented(self) -> int:
        """Rows with all columns in documents."""
        return min(sum(f.rows.get(key, 0) for f in self._files.values()) for key in self.columns)

    def per_row(self, uri: str) -> int:
        """Return the frames of a row of a file."""
        resources = self._files[uri].resources.values()
        return max((doc["parameters"].get("multiplier", 1) for doc in resources), default=1)

    def frames_in(self, uri: str) -> int:
        """Return the frames of a file that are in documents, for all columns."""
        rows = self._files[uri].rows
        return min(rows.get(key, 0) for key in self.columns) * self.per_row(uri)

    def addresses(self, uri: str) -> Iterator[str]:
        """Yield the address of a file, or those of files that follow each other, without an end."""
        files = self._files[uri].files
        if files is None:
            yield uri
            return
        folder = uri.rpartition("/")[0]
        for number in count(files.first_number):
            yield f"{folder}/{files.template.format(number)}"

    def complete(self, uri: str) -> tuple[int, int]:
        """Return how many of the files at an address are complete and in documents; their frames.

        The latest of these is not counted.
        """
        files = self._files[uri].files
        if files is None or not files.frames_per_file:
            return 0, 0
        number = max(0, self.frames_in(uri) // files.frames_per_file - 1)
        return number, number * files.frames_per_file

    def is_known(self, uri: str) -> bool:
        """Return whether a file is in a document."""
        return bool(self._files[uri].resources)

    @property
    def rest(self) -> dict[str, int]:
        """Frames that are in no document, by the addresses of their files."""
        rest = {uri: file.counted - self.frames_in(uri) for uri, file in self._files.items()}
        return {uri: n for uri, n in rest.items() if n > 0 or not self.is_known(uri)}

    @property
    def found(self) -> int:
        """Number of rows in the files."""
        return sum(file.frames for file in self._files.values())

    def find(self, frames_of: Callable[[str], int | None], beside: Iterable[str]) -> None:
        """Count the frames of the latest file and of the files that follow it.

        Parameters
        ----------
        frames_of : callable
            Returns the number of frames of the file at an address; None if it cannot be read.
        beside : iterable of str
            Addresses of the files that follow.
        """
        begun = sum(bool(file.rows) for file in self._files.values())
        # Earlier files are complete.
        for uri in [*self.uris[max(0, begun - 1) :], *beside]:
            frames = frames_of(uri)
            if frames is None:
                return
            file = self._files.setdefault(uri, _File(uri))
            file.counted = frames
            file.frames = max(file.frames, frames)

    def write_master(
        self, files: list[Path], descriptor: Mapping[str, Any], start: Mapping[str, Any]
    ) -> Path | None:
        """Write the master of its files, as the device does; None: it has none, or one already.

        Raises
        ------
        OSError, ValueError, DaqiriError
            If it cannot be written.
        """
        device = self.device
        told = descriptor.get("configuration", {}).get(device, {}).get("data", {})
        wanted = told.get(f"{device}_master", "auto")
        sources = {name: told.get(f"{device}_{name}") for name in REFERENCES}
        alone = wanted != "always" and not any(sources.values()) and len(files) == 1
        if not files or alone or wanted == "never" or master_path(files[0]).exists():
            return None
        key = descriptor["data_keys"][device]
        row = descriptor["data_keys"][f"{device}_timestamp"]["shape"]
        shape = tuple(key["shape"][len(row) :])
        references = {
            name: load_reference(name, source, shape) for name, source in sources.items() if source
        }
        return write_master(files, attributes=start, references=references)

    def documents(self, descriptor: str, run: str, rows: int) -> Documents:
        """Return the documents of rows up to this number that have none."""
        documents: Documents = []
        first = 0
        for file in self._files.values():
            stop = min(file.frames, rows - first)
            for key, column in self.columns.items():
                start = file.rows.get(key, 0)
                if start < stop:
                    documents += self._of_file(file, key, column, run)
                    datum = {
                        "uid": f"{file.resources[key]['uid']}/{file.datums.get(key, 0)}",
                        "stream_resource": file.resources[key]["uid"],
                        "descriptor": descriptor,
                        "indices": {"start": start, "stop": stop},
                        "seq_nums": {"start": first + start + 1, "stop": first + stop + 1},
                    }
                    documents.append(("stream_datum", datum))
                    file.rows[key] = stop
            first += file.frames
        return documents

    def _of_file(self, file: _File, key: str, column: str, run: str) -> Documents:
        if key in file.resources:
            return []
        uri = file.uri if file.files is None else file.uri.rpartition("/")[0]
        numbers = self._numbers.get(key, 1)
        composed = frame_resource(uri, key, column, files=file.files, numbers=numbers)
        resource: Any = composed.stream_resource_doc
        file.resources[key] = {**resource, "uid": str(uuid.uuid4()), "run_start": run}
        return [("stream_resource", file.resources[key])]
