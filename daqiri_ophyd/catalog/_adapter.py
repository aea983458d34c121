"""Tiled adapter for a sequence of capture files."""

import builtins
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from tiled.adapters.sequence import FileSequenceAdapter
from tiled.structures.array import ArrayStructure, BuiltinDtype, StructDtype

from daqiri_ophyd.documents import SUMMARY_DTYPE

from ._packet_table import PacketTableAdapter
from ._register import COMPANIONS
from ._summarize import summarize

__all__ = ["CaptureSequenceAdapter", "CounterSequenceAdapter"]


class CaptureSequenceAdapter(FileSequenceAdapter):
    """A sequence of pcap or raw files as an array of one summary record per file.

    Shape ``(files,)``, dtype `daqiri_ophyd.documents.SUMMARY_DTYPE`, one chunk per file. The files
    themselves can be downloaded with ``raw_export``; their packets are a table below the array,
    with the key ``packets``.

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
    def from_uris(cls, *data_uris: str, **_: Any) -> Self:
        """Return an adapter for these files, without the metadata and index files next to them."""
        data_uris = _captures_of(data_uris)
        files = len(data_uris)
        # The base class would derive the structure from the first file; it has no records.
        structure = ArrayStructure(
            data_type=StructDtype.from_numpy_dtype(SUMMARY_DTYPE),
            shape=(files,),
            chunks=((1,) * files,),
        )
        return cls(data_uris, structure)

    @classmethod
    def from_catalog(cls, data_source: Any, node: Any, /, **kwargs: Any) -> Self:
        """Return an adapter for a data source of the catalog."""
        uris = kwargs.get("data_uris") or [
            asset.data_uri for asset in data_source.assets if asset.parameter == "data_uris"
        ]
        return super().from_catalog(data_source, node, data_uris=uris)  # type: ignore[return-value]

    def get(self, key: str) -> PacketTableAdapter | None:
        """Return the node below the array in the tree of the server."""
        return (
            PacketTableAdapter([Path(path) for path in self.filepaths])
            if key == "packets"
            else None
        )

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
        return np.array([record[()] for record in self._map_read(selected)], dtype)

    def _read_one(self, filepath: str) -> np.ndarray:
        return summarize(filepath).record()


class CounterSequenceAdapter(CaptureSequenceAdapter):
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
        data_uris = _captures_of(data_uris)
        records = CaptureSequenceAdapter.from_uris(*data_uris)
        dtype = BuiltinDtype.from_numpy_dtype(np.dtype(bool if field == "lossy" else "<i8"))
        adapter = cls(data_uris, replace(records.structure(), data_type=dtype))
        adapter.field = field
        return adapter

    @classmethod
    def from_catalog(cls, data_source: Any, node: Any, /, **kwargs: Any) -> Self:
        """Return an adapter for a data source of the catalog."""
        adapter = super().from_catalog(data_source, node, **kwargs)
        adapter.field = data_source.parameters["field"]
        return adapter

    def get(self, key: str) -> None:
        """Return nothing, because packets are below the column of the files."""

    def _read_one(self, filepath: str) -> np.ndarray:
        file = summarize(filepath)
        lossy = self.field == "lossy"
        value = file.dropped + file.lost_before_engine > 0 if lossy else getattr(file, self.field)
        return np.array(value, self.structure().data_type.to_numpy_dtype())


def _captures_of(data_uris: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(uri for uri in data_uris if not uri.endswith(tuple(COMPANIONS)))
