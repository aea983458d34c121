"""Frames of HDF5 files of which some are in an object store, for Tiled."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import h5py
from tiled.adapters.hdf5 import HDF5ArrayAdapter
from tiled.ndslice import NDSlice

from daqiri_ophyd.ship import ObjectReader, StoredObject

from ._hdf5_references import require_own_data
from ._stored import Stored

__all__ = ["open_frames"]


def open_frames(files: Sequence[Stored], source: Any, node: Any) -> HDF5ArrayAdapter:
    """Return an adapter that reads frames in ranges of their objects, not whole ones.

    Parameters
    ----------
    files : sequence of Path or StoredObject
        The files of the data source, in order.
    source : tiled.structures.data_source.DataSource
        The data source, with its structure.
    node : tiled.catalog.orm.Node
        Its node.

    Raises
    ------
    UnreadableFileError
        If an object takes data from another file.
    FileNotFoundError, StoreError
        If an object cannot be read.
    """
    opened: list[Any] = [
        _reader(file, file.sha256) if isinstance(file, StoredObject) else file for file in files
    ]
    parameters = source.parameters
    dataset = parameters.get("dataset")
    # HDF5 reads growing files only through the operating system.
    array = HDF5ArrayAdapter.lazy_load_hdf5_array(
        *opened, dataset=dataset, swmr=False, libver="latest", locking=False
    )
    if chosen := parameters.get("slice"):
        array = array[NDSlice.from_numpy_str(chosen) if isinstance(chosen, str) else chosen]
    if parameters.get("squeeze"):
        array = array.squeeze()
    with h5py.File(opened[0], "r", locking=False) as first:
        attributes = dict(first[dataset].attrs) if dataset else dict(first.attrs)
    told = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
    return HDF5ArrayAdapter(
        array, source.structure, metadata={**node.metadata_, **told}, specs=node.specs
    )


@lru_cache(256)  # the datasets of a file are data sources of their own
def _reader(stored: StoredObject, _sha256: str) -> ObjectReader:
    """Return what reads an object that has all of its data.

    It has a position, which threads may share: HDF5 works in one thread at a time.
    """
    reader = stored.open()
    require_own_data(reader, str(stored))
    return reader
