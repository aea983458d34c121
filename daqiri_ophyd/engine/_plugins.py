"""Filters of HDF5 files, which hdf5plugin has."""

from importlib.util import find_spec
from pathlib import Path

__all__ = ["plugin_folder"]


def plugin_folder() -> str:
    """Return the folder of hdf5plugin's filters; empty: it is not installed."""
    # Importing it would load another HDF5 library.
    spec = find_spec("hdf5plugin")
    if spec is None or spec.origin is None:
        return ""  # HDF5's default path; an error names the package to install
    return str(Path(spec.origin).parent / "plugins")
