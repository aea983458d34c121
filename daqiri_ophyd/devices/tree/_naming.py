"""Attribute names and data keys for the names in a configuration."""

import keyword
import re
from collections.abc import Iterable
from inspect import get_annotations

__all__ = ["LONGEST_COLUMN", "attribute_name", "attribute_names", "require_column"]

LONGEST_COLUMN = 60
"""Bytes of a data key. Databases accept 63, and columns of timestamps begin with ``ts_``."""

# Attributes that ophyd gives each device, in addition to those of its class.
_OF_DEVICES = frozenset({"control_layer_log", "log", "prefix", "stage_sigs"})


def attribute_name(name: str, kind: str, taken: frozenset[str]) -> str:
    """Return a Python attribute for a name in a configuration.

    Characters that are not allowed in an identifier become ``_``. A name that does not begin with a
    letter is prefixed with ``kind`` (queue ``0`` is ``queue_0``). A keyword, or a name that the
    device class uses, gets a trailing ``_`` (``stage_``).

    Parameters
    ----------
    name : str
        Name as configured.
    kind : str
        Kind of the named object: ``port``, ``queue``, ``flow``, ``plan``.
    taken : frozenset of str
        Attributes that the device class already has.
    """
    attribute = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not attribute[:1].isalpha():
        attribute = f"{kind}_{attribute.lstrip('_')}"
    if keyword.iskeyword(attribute) or attribute in taken:
        attribute += "_"
    return attribute


def attribute_names(
    names: Iterable[str], kind: str, device: type, others: Iterable[str] = ()
) -> dict[str, str]:
    """Return the attribute under ``device`` for each name.

    Parameters
    ----------
    names : iterable of str
        Names as configured, in order.
    kind : str
        Kind of the named objects.
    device : type
        Class of the device that gets the attributes.
    others : iterable of str
        Further attributes of the device.

    Returns
    -------
    dict of str to str
        Attribute by name, in order.

    Raises
    ------
    ValueError
        If two names have the same attribute.
    """
    taken = _OF_DEVICES | frozenset(dir(device)) | frozenset(get_annotations(device))
    taken |= frozenset(others)
    found: dict[str, str] = {}
    for name in names:
        attribute = attribute_name(name, kind, taken)
        for other, used in found.items():
            if used == attribute:
                raise ValueError(
                    f"{kind} names {other!r} and {name!r} would both be the attribute "
                    f"{attribute!r}. Rename one of them in the configuration."
                )
        found[name] = attribute
    return found


def require_column(key: str, origin: str, fix: str) -> None:
    """Raise if no catalog can store a data key, which would be noticed when a run is stored.

    Parameters
    ----------
    key : str
        The data key.
    origin : str
        What has it, such as ``port 'port0', queue 'rx_q0'``.
    fix : str
        How to make it shorter.

    Raises
    ------
    ValueError
        If it is longer than `LONGEST_COLUMN`.
    """
    size = len(key.encode(errors="surrogateescape"))
    if size > LONGEST_COLUMN:
        raise ValueError(
            f"{origin}: the data key {key!r} has {size} bytes, and catalogs accept up to "
            f"{LONGEST_COLUMN}. {fix}"
        )
