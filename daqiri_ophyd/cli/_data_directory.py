"""The directory of catalog and captures, and the options that name it."""

import re
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "DATA",
    "RUN_SETTINGS",
    "CatalogName",
    "Data",
    "Moved",
    "Readable",
    "Run",
    "captures_of",
    "moved_folders",
]

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
        metavar="DIR|ADDRESS",
        help="Directory of the catalog, or address of a Tiled server; its key is in TILED_API_KEY. "
        "Default: catalog in the data directory.",
    ),
]
Moved = Annotated[
    list[str] | None,
    typer.Option(
        "--moved",
        metavar="OLD=NEW",
        help="New path of a folder of captures that was moved, or its address in an object store; "
        "also reads files there. Repeatable.",
        show_default=False,
    ),
]


def _readable(options: list[str] | None) -> list[str] | None:
    """Return directories, which exist, and addresses of object stores; raise for others."""
    for option in options or ():
        if "://" in option:
            from ..ship import split_address

            try:
                split_address(option)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
        elif not Path(option).is_dir():
            what = "is a file" if Path(option).exists() else "does not exist"
            raise typer.BadParameter(f"Directory {option!r} {what}.")
    return options


Readable = Annotated[
    list[str] | None,
    typer.Option(
        "--readable",
        metavar="DIR|ADDRESS",
        help="Also read captures in this directory, or object store (s3://BUCKET/PREFIX). "
        "Repeatable.",
        show_default=False,
        callback=_readable,
    ),
]
DATA = Path("daqiri-data")
# -1 is a run, not an option.
RUN_SETTINGS = {"ignore_unknown_options": True}
_FROM_THE_END = re.compile(r"-[0-9]{1,5}")


def _run_name(text: str) -> str:
    """Return the name of a run; raise if it is an option."""
    if text.startswith("-") and not _FROM_THE_END.fullmatch(text):
        raise typer.BadParameter(f"no such option: {text}")
    return text


Run = Annotated[
    str,
    typer.Argument(
        help="Run: uid or its first characters, scan id, or -1 for the latest.",
        callback=_run_name,
    ),
]


def moved_folders(options: list[str] | None) -> dict[str, str]:
    """
    Return the new paths of folders by the old ones.

    Raises
    ------
    typer.BadParameter
        If an option is not OLD=NEW with an absolute OLD.
    """
    found: dict[str, str] = {}
    for option in options or ():
        old, _, new = option.partition("=")
        if not new or not Path(old).is_absolute():
            raise typer.BadParameter(
                f"--moved: found {option!r}; accepts OLD=NEW, OLD with its full path, as "
                "/data/captures=/mnt/captures"
            )
        found[old] = new
    return found


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
