"""HTML and PNG of names and summary records of files, which Tiled cannot create."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from tiled.media_type_registration import default_serialization_registry
from tiled.utils import SerializationError

__all__ = ["register_views"]

_Serializer = Callable[[str, Any, Any], Any]


def register_views() -> None:
    """Serve arrays of text and with fields as pages; reject pictures with a message."""
    for media_type, view in (("text/html", _html), ("image/png", _png)):
        stock = default_serialization_registry.dispatch("array", media_type)
        if getattr(stock, "func", None) is not view:
            default_serialization_registry.register("array", media_type, _View(view, stock))


class _View:
    """A serializer for arrays of text and with fields; others go to Tiled's serializer."""

    def __init__(self, func: _Serializer, stock: _Serializer) -> None:
        self.func = func
        self._stock = stock

    def __call__(self, media_type: str, array: np.ndarray, metadata: Any) -> Any:
        serializer = self.func if array.dtype.kind in "UV" else self._stock
        return serializer(media_type, array, metadata)


def _html(_media_type: str, array: np.ndarray, _metadata: Any) -> bytes:
    rows = np.atleast_1d(array).ravel()
    table = pd.DataFrame(rows) if array.dtype.names is None else pd.DataFrame.from_records(rows)
    return f"<html><body>{table.to_html()}</body></html>".encode()


def _png(_media_type: str, array: np.ndarray, _metadata: Any) -> bytes:
    fields = ", ".join(array.dtype.names or ())
    found = f"records with the fields {fields} are" if fields else "text is"
    raise SerializationError(f"{found} not a picture; see text/html.")
