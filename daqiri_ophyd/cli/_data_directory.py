"""The directory of catalog and captures, and the options that name it."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DATA", "CatalogName", "Data", "captures_of"]

Data = Annotated[
    Path,
    typer.Option(
        "--data", "-o", help="Directory of the catalog and the captures.", file_okay=False
    ),
]
CatalogName = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        help="Directory of the catalog, or address of a Tiled server; its key is in TILED_API_KEY. "
        "Default: catalog in the data directory.",
    ),
]
DATA = Path("daqiri-data")


def captures_of(data: Path) -> Path:
    """
    Return the directory of captures in a data directory.

    Raises
    ------
    ValueError
        If documents cannot name it.
    """
    from ..documents import CaptureSequence

    captures = data.resolve() / "captures"
    CaptureSequence("captures", captures)
    return captures
