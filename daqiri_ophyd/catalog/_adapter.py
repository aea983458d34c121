"""Tiled adapters for a sequence of capture files."""

import builtins
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
from tiled.adapters.sequence import FileSequenceAdapter
from tiled.structures.array import ArrayStructure, BuiltinDtype, StructDtype

from daqiri_ophyd.documents import (
    COMPANIONS,
    NAME_DTYPE,
    SUMMARY_DTYPE,
    FileSummary,
    row_counters,
)
from daqiri_ophyd.ship import StoredObject

from ._moved import MovedFolders
from ._packet_table import PacketTableAdapter, answered
from ._stored import StoredFiles
from ._summarize import summarize

__all__ = ["CaptureSequenceAdapter", "CounterSequenceAdapter", "SummarySequenceAdapter"]


class _FilesAdapter(FileSequenceAdapter):
    """A sequence of capture files as an array, shape ``(files,)``, one chunk per file."""

    stored = StoredFiles(MovedFolders())
    """Finds files that are not on this host."""

    @classmethod
    def from_catalog(cls, data_source: Any, node: Any, /, **kwargs: Any) -> Self:
        """Return an adapter for a data source of the catalog."""
        uris = kwargs.get("data_uris") or [
            asset.data_uri for asset in data_source.assets if asset.parameter == "data_uris"
        ]
        return super().from_catalog(data_source, node, data_uris=uris)  # type: ignore[return-value]

    def _summary(self, path: str) -> FileSummary:
        with answered():
            found = self.stored.find(Path(path))
            if isinstance(found, StoredObject):
                return found.sidecar.summary(Path(path))
        return summarize(path)

    def _load_from_files(
        self, slice: builtins.slice | int | Iterable[int] = slice(None)
    ) -> np.ndarray:
        if isinstance(slice, int):
            return self._read_one(self.filepaths[slice])[np.newaxis]
        if isinstance(slice, builtins.slice):
            selected = self.filepaths[slice]
        else:
            selected = [self.filepaths[i] for i in slice]
        dtype = self.structure().data_type.to_numpy_dtype()
        return np.array([value[()] for value in self._map_read(selected)], dtype)


class CaptureSequenceAdapter(_FilesAdapter):
    """A sequence of pcap or raw files as an array of the name of each file.

    Shape ``(files,)``, one chunk per file. The files themselves can be downloaded with
    ``raw_export``. Below the array are their packets, a table with the key ``packets``, and an
    array with the key ``summaries``, see `SummarySequenceAdapter`.

    Runs stored by earlier versions have a summary record of each file in place of its name.

    Parameters
    ----------
    data_uris : sequence of str
        URIs of the files, in order.
    structure : ArrayStructure
        Structure to present.
    metadata, specs, chunks : optional
        As for `tiled.adapters.sequence.FileSequenceAdapter`.
    """

    @classmethod
    def from_uris(cls, *data_uris: str, value: str = "", **_: Any) -> Self:
        """Return an adapter for these files, without the metadata and index files next to them.

        Parameters
        ----------
        *data_uris : str
            URIs of the files, in order.
        value : str
            Value of a file, a parameter of the data source: ``name``, or empty for its record.
        """
        uris = _captures_of(data_uris)
        dtype = np.dtype(NAME_DTYPE) if value == "name" else SUMMARY_DTYPE
        return cls(uris, _structure(len(uris), dtype))

    def get(self, key: str) -> "PacketTableAdapter | SummarySequenceAdapter | None":
        """Return the node below the array in the tree of the server."""
        paths = [Path(path) for path in self.filepaths]
        if key == "packets":
            with answered():
                return PacketTableAdapter([self.stored.find(path) for path in paths])
        if key == "summaries":
            # Not quoted: readers of these addresses do not unquote them.
            uris = (f"file://localhost{path}" for path in paths)
            summaries = SummarySequenceAdapter.from_uris(*uris)
            summaries.stored = self.stored
            return summaries
        return None

    def _read_one(self, filepath: str) -> np.ndarray:
        dtype = self.structure().data_type.to_numpy_dtype()
        if dtype.names is not None:
            return self._summary(filepath).record()
        return np.array(Path(filepath).name, dtype)


class SummarySequenceAdapter(_FilesAdapter):
    """A sequence of capture files as an array of one summary record per file.

    Shape ``(files,)``, dtype `daqiri_ophyd.documents.SUMMARY_DTYPE`, one chunk per file.
    """

    @classmethod
    def from_uris(cls, *data_uris: str, **_: Any) -> Self:
        """Return an adapter for these files."""
        return cls(data_uris, _structure(len(data_uris), SUMMARY_DTYPE))

    def _read_one(self, filepath: str) -> np.ndarray:
        return self._summary(filepath).record()


class CounterSequenceAdapter(_FilesAdapter):
    """A sequence of capture files as an array of one counter per file.

    Shape ``(files,)``, one chunk per file.

    Attributes
    ----------
    field : str
        The counter, a parameter of the data source: a field of
        `daqiri_ophyd.documents.FileSummary`, or ``lossy``.
    """

    field = ""

    @classmethod
    def from_uris(cls, *data_uris: str, field: str, **_: Any) -> Self:
        """Return an adapter for a counter of these files, without the files next to them."""
        uris = _captures_of(data_uris)
        dtype = np.dtype(bool if field == "lossy" else "<i8")
        adapter = cls(uris, _structure(len(uris), dtype))
        adapter.field = field
        return adapter

    @classmethod
    def from_catalog(cls, data_source: Any, node: Any, /, **kwargs: Any) -> Self:
        """Return an adapter for a data source of the catalog."""
        adapter = super().from_catalog(data_source, node, **kwargs)
        adapter.field = data_source.parameters["field"]
        return adapter

    def _read_one(self, filepath: str) -> np.ndarray:
        value = row_counters([self._summary(filepath)])[self.field]
        return np.array(value, self.structure().data_type.to_numpy_dtype())


def _structure(files: int, dtype: np.dtype) -> ArrayStructure:
    """Return a structure; the base class would read the first file for it."""
    kind = BuiltinDtype if dtype.names is None else StructDtype
    return ArrayStructure(
        data_type=kind.from_numpy_dtype(dtype), shape=(files,), chunks=((1,) * files,)
    )


def _captures_of(data_uris: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(uri for uri in data_uris if not uri.endswith(tuple(COMPANIONS)))
