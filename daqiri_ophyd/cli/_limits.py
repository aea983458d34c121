"""Ranges of options."""

import typer

__all__ = ["MOST", "seconds"]

# A larger number is not a real limit, and does not fit into the documents of a run.
MOST = 2**63 - 1
_CENTURY_S = 3_000_000_000.0


def seconds(value: float | None) -> float | None:
    """Return the time of an option.

    Raises
    ------
    typer.BadParameter
        If it is negative, longer than a century, or not a number.
    """
    if value is None or 0.0 <= value <= _CENTURY_S:
        return value
    raise typer.BadParameter(f"{value:g} is out of range; accepted are 0 to {_CENTURY_S:g} s")
