"""Finds a stored run by scan id, position or uid."""

from typing import Any

from bluesky_tiled_plugins import BlueskyRun, CatalogOfBlueskyRuns

__all__ = ["RunNotFoundError", "find_run", "why_incomplete"]


class RunNotFoundError(LookupError):
    """There is no such run in the catalog, or several."""


def find_run(runs: CatalogOfBlueskyRuns, run: str | int) -> BlueskyRun:
    """Return a run of a catalog.

    Parameters
    ----------
    runs : CatalogOfBlueskyRuns
        The runs: `Catalog.client`.
    run : str or int
        Scan id (the latest run that has it); -1 for the latest run, -2 for the one before; uid, or
        its first 5 or more characters. Scan ids may be strings, as from a form or a command
        line. Digits that are not a scan id may be the beginning of a uid.

    Raises
    ------
    RunNotFoundError
        If there is no such run, or several uids begin with the text.
    """
    text = str(run)
    number = text.removeprefix("-")
    is_number = number.isascii() and number.isdecimal() and len(number) < 7
    try:
        try:
            return runs[int(text) if is_number else text]
        except LookupError:
            if not is_number or isinstance(run, int) or len(text) < 5 or text != number:
                raise
            return runs[text]
    except (LookupError, ValueError) as error:
        several = f" ({error.args[0]})" if isinstance(error, ValueError) else ""
        raise RunNotFoundError(
            f"Run {run!r} is not in the catalog, which has {len(runs)} runs{several}. Give a scan "
            "id, a uid or its first 5 or more characters, or -1 for the latest run; "
            "`daqiri-ophyd runs` lists them."
        ) from error


def why_incomplete(run: Any) -> str:
    """Return why a run may lack data, for the end of a message; empty if it is complete."""
    if run.metadata.get("stop"):
        return ""
    return (
        " The run has no stop document yet: it is in progress, its process is still storing it, or "
        "was killed (`daqiri-ophyd catalog recover`)."
    )
