"""Stored runs: writing them, reading them, and finding their capture files.

`Catalog` embeds a Tiled server or connects to one. `register` adds support for pcap captures to
Tiled in this process; a separate server is configured as shown in the how-to on facility catalogs.
"""

from typing import TYPE_CHECKING, Any

from ._captures import CaptureNotFoundError, capture_files
from ._catalog import Catalog
from ._find import RunNotFoundError, find_run
from ._handler import LEGACY_SPEC, PcapHandler
from ._register import CaptureConsolidator, register
from ._server import CatalogError
from ._summarize import NotPcapError, summarize
from ._writer import BackupError, RunWriter, ingest_backup

if TYPE_CHECKING:
    from ._adapter import CaptureSequenceAdapter

__all__ = [
    "LEGACY_SPEC",
    "BackupError",
    "CaptureNotFoundError",
    "Catalog",
    "CatalogError",
    "NotPcapError",
    "CaptureConsolidator",
    "PcapHandler",
    "CaptureSequenceAdapter",
    "RunNotFoundError",
    "RunWriter",
    "capture_files",
    "find_run",
    "ingest_backup",
    "register",
    "summarize",
]


def __getattr__(name: str) -> Any:
    # The adapter needs the Tiled server, which clients do not have to install.
    if name == "CaptureSequenceAdapter":
        from ._adapter import CaptureSequenceAdapter

        return CaptureSequenceAdapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
