"""Stored runs: written, read back, and followed to the capture files.

`Catalog` embeds a Tiled server or connects to one. `register` teaches Tiled pcap captures; a server
of its own is configured as shown in the how-to on facility catalogs.
"""

from typing import TYPE_CHECKING, Any

from ._captures import CaptureNotFoundError, capture_files
from ._catalog import Catalog
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
    "RunWriter",
    "capture_files",
    "ingest_backup",
    "register",
    "summarize",
]


def __getattr__(name: str) -> Any:
    # The adapter stands on the Tiled server, which clients do without.
    if name == "CaptureSequenceAdapter":
        from ._adapter import CaptureSequenceAdapter

        return CaptureSequenceAdapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
