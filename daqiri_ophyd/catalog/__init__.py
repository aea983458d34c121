"""Stored runs: writing them, reading them, and finding their capture files.

`Catalog` embeds a Tiled server or connects to one. `register` adds support for captures to Tiled in
this process. A separate server uses `confined_tree`; see the how-to on facility catalogs.
"""

from typing import TYPE_CHECKING, Any

from ._address import CatalogError
from ._backup import BackupError
from ._captures import (
    CaptureNotFoundError,
    FileFinder,
    capture_files,
    captures_of,
    run_files,
    stored_files,
)
from ._catalog import Catalog
from ._confine import UnreadableFileError
from ._export import export_run
from ._find import RunNotFoundError, find_run
from ._frames_dataset import FramesNotFoundError, frames_dataset
from ._recover import Recovery, recover_runs
from ._register import CaptureConsolidator, register
from ._summarize import NotPcapError, summarize
from ._writer import RunWriter, ingest_backup

if TYPE_CHECKING:
    from ._adapter import (
        CaptureSequenceAdapter,
        CounterSequenceAdapter,
        SummarySequenceAdapter,
    )
    from ._tree import confined_tree

__all__ = [
    "BackupError",
    "CaptureNotFoundError",
    "FileFinder",
    "Catalog",
    "CatalogError",
    "NotPcapError",
    "CaptureConsolidator",
    "CaptureSequenceAdapter",
    "CounterSequenceAdapter",
    "FramesNotFoundError",
    "Recovery",
    "RunNotFoundError",
    "RunWriter",
    "SummarySequenceAdapter",
    "UnreadableFileError",
    "capture_files",
    "captures_of",
    "confined_tree",
    "export_run",
    "find_run",
    "frames_dataset",
    "ingest_backup",
    "recover_runs",
    "register",
    "run_files",
    "stored_files",
    "summarize",
]


def __getattr__(name: str) -> Any:
    # These need the Tiled server, which clients do not have to install.
    if name.endswith("SequenceAdapter") and name in __all__:
        from . import _adapter

        return getattr(_adapter, name)
    if name == "confined_tree":
        from ._tree import confined_tree

        return confined_tree
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
