"""What help and the man page say of options: words in place of types, ranges in words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ._limits import Number

__all__ = ["describe", "flowing"]

_WORDS = {bool: "", int: "NUMBER", float: "NUMBER", Path: "FILE"}


def describe(
    command: TyperCommand | TyperGroup, parent: typer.Context | None = None
) -> typer.Context:
    """
    Let the help of a command, and of those below it, name what options accept in plain words.

    Paragraphs lose their line ends, so that they are broken at the width of the terminal only.

    Returns
    -------
    typer.Context
        The context of the command, as for its help.
    """
    context = typer.Context(
        command, parent, info_name=command.name, **(command.context_settings or {})
    )
    command.help = flowing(command.help or "")
    for parameter in command.get_params(context):
        if isinstance(parameter, TyperArgument | TyperOption):
            _describe(parameter)
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            if isinstance(each, TyperCommand | TyperGroup):
                describe(each, context)
    return context


def flowing(text: str) -> str:
    """Return paragraphs of one line each."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _describe(parameter: TyperArgument | TyperOption) -> None:
    numbers = parameter.type_descriptor.parameter_info.parser
    if isinstance(numbers, Number) and (limits := numbers.limits):
        parameter.help = f"{parameter.help or ''} Accepts {limits}.".strip()
    if isinstance(parameter, TyperArgument):
        # Usage adds dots to those that can be repeated.
        parameter.metavar = (parameter.metavar or str(parameter.name).upper()).removesuffix("...")
        # Its name says what it is.
        parameter.display_type_rich = lambda ctx: None
    elif parameter.metavar is None:
        parameter.metavar = _word(parameter)


def _word(option: TyperOption) -> str:
    kind = option.type_descriptor
    if kind.is_choice:
        choices: Sequence[Any] = kind.choices or ()
        return "|".join(map(str, choices))
    if kind.is_path and kind.path_type == "dir":
        return "DIR"
    return _WORDS.get(kind.annotation, str(option.name).upper())
