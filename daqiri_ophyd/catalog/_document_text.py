"""Documents as JSON text, whatever their metadata contain."""

import json
import re
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

__all__ = ["document_text"]

# JSON can contain these characters; PostgreSQL and UTF-8 cannot.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u(?:0000|d[89a-f])")
_REPLACEMENT = "\ufffd"
_DEEPEST = 100


class _NumpyEncoder(json.JSONEncoder):
    """Encodes the numbers of NumPy: devices report them, and plain JSON cannot contain them."""

    def default(self, o: Any) -> Any:
        if isinstance(o, np.generic | np.ndarray) and o.dtype.kind in "biu":
            return o.tolist()
        if isinstance(o, np.generic | np.ndarray) and o.dtype.kind == "f" and o.itemsize <= 8:
            return o.tolist()
        return super().default(o)


def document_text(name: str, doc: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return a document as JSON.

    Values that JSON does not know are written as ``str(value)``. NUL characters and lone surrogates
    are replaced by U+FFFD.

    Parameters
    ----------
    name : str
        Kind of the document.
    doc : mapping
        The document.

    Returns
    -------
    str
        The text; ASCII.
    dict of str to str
        Changed values by key, such as ``start['exposure']``, and what is stored instead.
    """
    try:
        text = json.dumps(doc, cls=_NumpyEncoder)
        if not _ESCAPED.search(text):
            return text, {}
    except (TypeError, ValueError, RecursionError):
        pass
    changed: dict[str, str] = {}
    # Events arrive in pages.
    plain = _plain(doc, name.removesuffix("_page"), changed, ())
    return json.dumps(plain), changed


def _plain(value: Any, key: str, changed: dict[str, str], within: tuple[int, ...]) -> Any:
    """Return a value of plain types; note in ``changed`` what is not the same."""
    if isinstance(value, np.ndarray):
        return _plain_array(value, key, changed, within)
    if isinstance(value, np.generic):
        number = value.item() if value.dtype.kind in "biufV" else value
        value = float(value) if isinstance(number, np.floating) else number
    if isinstance(value, str):
        return _plain_text(value, key, changed)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list | tuple | Set):
        if id(value) in within or len(within) >= _DEEPEST:
            return _as_text(value, key, changed)
        return _plain_items(value, key, changed, (*within, id(value)))
    return _as_text(value, key, changed)


def _plain_items(value: Any, key: str, changed: dict[str, str], within: tuple[int, ...]) -> Any:
    if not isinstance(value, Mapping):
        # Elements of a list have one key: those of a page are rows.
        return [_plain(item, key, changed, within) for item in value]
    plain = {}
    for name, item in value.items():
        inner = f"{key}[{name!r}]"
        if not (name is None or isinstance(name, str | bool | int | float)):
            name = _as_text(name, f"{key}: the key {_text_of(name)}", changed)
        elif isinstance(name, str):
            name = _plain_text(name, f"{key}: the key {name!r}", changed)
        plain[name] = _plain(item, inner, changed, within)
    return plain


def _plain_array(
    array: np.ndarray, key: str, changed: dict[str, str], within: tuple[int, ...]
) -> Any:
    if array.dtype.kind in "mMc":
        # As text, each on its own: `str` of an array leaves elements out.
        changed.setdefault(key, f"text, its type is {array.dtype}")
        return array.astype(str).tolist()
    if array.dtype.kind == "f" and array.itemsize > 8:
        return array.astype(np.float64).tolist()
    return _plain(array.tolist(), key, changed, within)


def _plain_text(value: str, key: str, changed: dict[str, str]) -> str:
    plain = _NO_TEXT.sub(_REPLACEMENT, value)
    if plain != value:
        changed.setdefault(key, "U+FFFD for a NUL or a lone surrogate in its text")
    return plain


def _as_text(value: Any, key: str, changed: dict[str, str]) -> str:
    kind = type(value)
    changed.setdefault(key, f"text, its type is {kind.__module__}.{kind.__qualname__}")
    return _NO_TEXT.sub(_REPLACEMENT, _text_of(value))


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the run is stored nevertheless
        return object.__repr__(value)
