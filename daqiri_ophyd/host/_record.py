"""Reading the recorded answers of a host, which are stored as JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ._root import FactError, Root

__all__ = ["read_record"]

T = TypeVar("T")
_INTEGER_BITS = 64


def read_record(root: Root, path: str, kind: type[T]) -> T | None:
    """
    Return the contents of a JSON file of a recorded host, or None if there is none.

    Parameters
    ----------
    root : Root
        The recorded host.
    path : str
        The file.
    kind : type
        Type of the contents: a data class, or lists, tuples and dictionaries of these or of plain
        values, as in a type hint.

    Raises
    ------
    FactError
        If it has other contents.
    """
    value = root.json(path)
    try:
        return None if value is None else _shaped(value, kind)
    except TypeError as error:
        raise FactError(f"{path}: {error}") from None


def _shaped(value: Any, kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        # Of something and None.
        return None if value is None else _shaped(value, inner[0])
    if isinstance(value, dict) and is_dataclass(kind):
        return _filled(value, kind)
    if isinstance(value, dict) and origin is dict:
        return {_shaped(key, inner[0]): _shaped(each, inner[1]) for key, each in value.items()}
    if isinstance(value, list) and origin is list:
        return [_shaped(each, inner[0]) for each in value]
    if isinstance(value, list) and origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return tuple(map(_shaped, value, kinds))
    if isinstance(kind, type) and type(value) is kind:
        if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
            raise TypeError(f"an integer is beyond {_INTEGER_BITS} bits")
        if not isinstance(value, str) or value.isprintable():
            return value
    found = type(value).__name__ if isinstance(value, list | dict) else repr(value)[:40]
    raise TypeError(f"found {found}, wanted is {kind.__name__ if type(kind) is type else kind}")


def _filled(value: dict[str, Any], kind: Any) -> Any:
    names = [field.name for field in fields(kind)]
    if unknown := [name for name in value if name not in names]:
        raise TypeError(f"found {unknown[0]!r}; accepted are objects with {', '.join(names)}")
    hints = get_type_hints(kind)
    return kind(**{name: _shaped(each, hints[name]) for name, each in value.items()})
