"""Numbers that options accept."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

import typer

__all__ = ["MOST", "Number", "number", "seconds", "whole"]

# A larger number is not a real limit, and does not fit into the documents of a run.
MOST = 2**63 - 1
_CENTURY_S = 3_000_000_000


@dataclass(frozen=True)
class Number:
    """The numbers of an option, as a parser of Typer.

    Parameters
    ----------
    kind : {int, float}
        Type of the numbers.
    least, most : int or float
        Range.
    unit : str
        Unit in messages.
    nan : bool
        Whether the option accepts NaN, too.
    """

    kind: type[int] | type[float]
    least: float = 0
    most: float = MOST
    unit: str = ""
    nan: bool = False

    def __call__(self, text: Any) -> Any:
        """Return the number of a text; Typer gives defaults as numbers.

        Raises
        ------
        typer.BadParameter
            If it is no number, or out of range; with the text, and what is accepted.
        """
        try:
            found = self.kind(text)
        except (ValueError, OverflowError):
            found = None
        if found is not None and (self.least <= found <= self.most or (self.nan and isnan(found))):
            return found
        raise typer.BadParameter(f"found {text!r:.80}; accepts {self.accepted}")

    @property
    def accepted(self) -> str:
        """The range in words."""
        what = "whole numbers" if self.kind is int else "numbers"
        if self.least > -inf:
            what += f" from {_digits(self.least)} to {_digits(self.most)}"
        return f"{what}{' ' * bool(self.unit)}{self.unit}{', and nan' * self.nan}"

    @property
    def limits(self) -> str:
        """The range in words for help; empty if it only excludes negative and absurd numbers."""
        least = "" if self.least in (-inf, 0, 1) else _digits(self.least)
        if self.most in (MOST, _CENTURY_S, inf):
            return least and f"at least {least}"
        return f"{_digits(self.least)} to {_digits(self.most)}"


def _digits(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.9f}".rstrip("0").rstrip(".")


def whole(least: int = 0, most: int = MOST) -> Callable[[str], int]:
    """Return the parser of whole numbers in a range."""
    return Number(int, least, most)


def number(
    least: float = 0, most: float = MOST, unit: str = "", *, nan: bool = False
) -> Callable[[str], float]:
    """Return the parser of finite numbers in a range."""
    return Number(float, least, most, unit, nan)


def seconds(least: float = 0, most: float = _CENTURY_S) -> Callable[[str], float]:
    """Return the parser of times, up to a century."""
    return number(least, most, "s")
